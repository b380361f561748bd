"""Which model is asked, where, as whom, and within what limits; and what is told before a night when it cannot be."""

from __future__ import annotations

import os

import pytest
from pydantic import SecretStr

from environments.plugins import Refused
from tasks.llm.account import Account, ModelOptions, accounts, check
from tasks.proposing.brief import RemainingBudget
from tasks.system.redact import scrub_text
from tests.support.fake_llm import FakeLLM

KEY = "sk-canary-93b2d8aa"
FREELY = RemainingBudget()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the keys and servers of whoever runs the tests."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")) or name == "PREFECT_API_URL":
            monkeypatch.delenv(name)


@pytest.mark.parametrize("model", ["openai/qwen3", "hosted_vllm/meta-llama/Llama-3.1-8B"])
def test_at_an_endpoint_of_ones_own_a_model_needs_no_provider(model: str) -> None:
    stated = ModelOptions(model=model.removeprefix("openai/"), base_url="http://gpu:8000/v1")
    assert accounts(stated)[0].model == model


def test_the_key_of_an_account_has_to_be_there_and_is_known_to_the_scrubber(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = ModelOptions(model="openai/gpt-4o", key_variable="MY_MODEL_ACCESS")  # which does not tell that it is one
    with pytest.raises(Refused, match="key_variable = MY_MODEL_ACCESS"):
        accounts(stated)
    monkeypatch.setenv("MY_MODEL_ACCESS", KEY)
    assert KEY not in repr(accounts(stated)) + accounts(stated)[0].model_dump_json()
    assert scrub_text(f"key: {KEY}") == "key: [secret MY_MODEL_ACCESS]"


def test_stated_prices_come_first_then_the_providers_and_one_that_nobody_knows_is_none() -> None:
    stated = Account(model="openai/gpt-4o", usd_per_million_input=1, usd_per_million_output=3)
    assert stated.usd(1_000_000, 1_000_000) == 4
    assert 0 < (Account(model="openai/gpt-4o").usd(1000, 1000) or 0) < 1
    for model, url in (("openai/none", None), ("openai/gpt-4o", "http://gpu:8000/v1"), ("ollama_chat/llama3", None)):
        assert Account(model=model, base_url=url).usd(1000, 1000) is None


def test_an_endpoint_is_asked_for_its_models_and_nothing_is_bought() -> None:
    with FakeLLM(key=KEY) as server:
        mine = Account(model="openai/test", base_url=server.url, key=SecretStr(KEY))
        check(mine, FREELY)
        with pytest.raises(Refused, match=r"401.*key_variable"):
            check(mine.model_copy(update={"key": SecretStr("wrong")}), FREELY)
        with pytest.raises(Refused, match="price of 'openai/test' is not known"):
            check(mine, RemainingBudget(usd=1.0))
    with pytest.raises(Refused, match="no language model answers at base_url"):
        check(mine, FREELY)
    assert server.requests == []


def test_a_model_without_a_provider_and_a_missing_key_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"'big-model' .*provider/model"):
        check(Account(model="big-model"), FREELY)
    claude = Account(model="anthropic/claude-sonnet-4-5")
    with pytest.raises(Refused, match=f"'{claude.model}' .*ANTHROPIC_API_KEY"):
        check(claude, FREELY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    check(claude, FREELY)
