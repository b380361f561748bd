"""The saved block of a language model: what it refuses, and how it is found."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from blocks.llm import LLM
from environments.plugins import Refused
from tasks.llm.account import Account, ModelOptions, accounts
from tasks.system.redact import scrub_text

KEY = "sk-canary-c41d70fe"


def test_the_block_has_its_name_and_hides_its_key() -> None:
    assert LLM.get_block_type_slug() == "nightshift-llm"
    assert KEY not in repr(LLM(models=["openai/gpt-4o"], key=SecretStr(KEY)))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"models": []}, "models\n.*at least 1 item"),
        ({"key": KEY, "key_variable": "MY_KEY"}, "key and key_variable are both given"),
        ({"key_variable": KEY}, "key_variable\n.*should match pattern"),
        ({"base_url": "gpu:8000/v1"}, "base_url\n.*should match pattern"),
        ({"usd_per_million_output": 2}, r"prices are None \(input\) and 2.0 \(output\): give both, or neither"),
    ],
)
def test_a_block_that_cannot_be_asked_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as caught:
        LLM(**{"models": ["openai/gpt-4o"], **values})

    assert KEY not in str(caught.value)


@pytest.mark.slow
def test_a_saved_block_is_found_and_what_is_stated_is_laid_over_it(
    lone_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import BlockDocumentUpdate
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.setenv("PREFECT_API_URL", lone_server)
    with pytest.raises(Refused, match="language model"):
        accounts(ModelOptions())
    address = {"base_url": "http://gpu:8000/v1", "key": SecretStr(KEY)}
    prices = {"usd_per_million_input": 1, "usd_per_million_output": 2}
    with temporary_settings({PREFECT_API_URL: lone_server}):
        mine = LLM(models=["hosted_vllm/small", "large"], temperature=0.5, **address, **prices)
        mine.save("nightshift", overwrite=True)
        LLM(models=["openai/gpt-4o"], key_variable="NO_SUCH_VARIABLE").save("cloud", overwrite=True)
        limited = LLM(models=["openai/gpt-4o"]).save("limited", overwrite=True)
        with get_client(sync_client=True) as client:  # as an earlier version saved it
            client.update_block_document(
                limited, BlockDocumentUpdate(data={"models": ["gpt-4o"], "provider": "openai"})
            )

    small, large = accounts(ModelOptions(temperature=0.9))
    assert small == Account(model="hosted_vllm/small", temperature=0.9, **address, **prices)
    assert large.model == "openai/large"
    assert scrub_text(KEY) == "[secret LLM_KEY]"
    (other,) = accounts(ModelOptions(block="nightshift", model="hosted_vllm/another"))
    assert (other.model, other.key) == ("hosted_vllm/another", SecretStr(KEY))
    assert other.usd_per_million_input is None, "a price holds for the block's own models"
    assert accounts(ModelOptions(block="nightshift", model="hosted_vllm/small"))[0].usd_per_million_input == 1
    (elsewhere,) = accounts(ModelOptions(block="nightshift", model="small", base_url="http://other/v1"))
    assert elsewhere.key is None, "a block's key goes to the block's own address only"
    assert accounts(ModelOptions(model="openai/gpt-4o"))[0].key is None, "a model alone touches no block"
    with pytest.raises(Refused, match="'mine'"):
        accounts(ModelOptions(block="mine"))
    with pytest.raises(Refused, match="key_variable = NO_SUCH_VARIABLE"):
        accounts(ModelOptions(block="cloud"))
    with pytest.raises(Refused, match="'limited' has provider, "):
        accounts(ModelOptions(block="limited"))
