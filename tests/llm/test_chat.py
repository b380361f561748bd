"""Asking a language model, through LiteLLM, over real HTTP: whom, as whom, and a server that does what its script says."""

from __future__ import annotations

import json
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from environments.plugins import Refused
from tasks.llm import litellm_client
from tasks.llm.account import Account, ModelOptions, accounts, check
from tasks.llm.chat import Message, ask
from tasks.proposing.brief import Brief, Refusal, RemainingBudget, Unavailable, Unusable
from tasks.system import interrupt, redact
from tasks.system.redact import scrub_text
from tasks.trial import Usage
from tests.support.fake_llm import Asked, FakeLLM, Reply, Script

KEY = "sk-canary-5f0c1e77"
THOUGHTS = {"reasoning_content": "six by nine"}
CALL = {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]}
HANGS = Reply(pause=float("inf"))
QUESTION = (Message("system", "You are brief."), Message("user", "What next?"))


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the keys and servers of whoever runs the tests."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")) or name == "PREFECT_API_URL":
            monkeypatch.delenv(name)


def account(server: FakeLLM, **more: Any) -> Account:
    """An account at the server with prices: 1 USD and 2 USD for a million tokens in and out."""
    known = {"key": SecretStr(KEY), "usd_per_million_input": 1.0, "usd_per_million_output": 2.0}
    return Account(**{"model": "openai/test", "base_url": server.url, **known, **more})


def brief(desk: Path | None = None, **more: Any) -> Brief:
    return Brief({}, (), traces=desk, **more)


def fails(script: Script, reason: str, **more: Any) -> Usage:
    """What it took to ask a server with this script, which gives no answer for this reason."""
    with FakeLLM(script) as server, pytest.raises(Unavailable, match=reason) as caught:
        ask(account(server, **more), QUESTION, brief())
    return caught.value.usage


# Whom


def test_the_key_of_an_account_has_to_be_there_and_is_known_to_the_scrubber(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = ModelOptions(model="openai/gpt-4o", key_variable="MY_MODEL_ACCESS")  # which does not tell that it is one
    with pytest.raises(Refused, match="key_variable = MY_MODEL_ACCESS"):
        accounts(stated)
    monkeypatch.setenv("MY_MODEL_ACCESS", "sk-canary-93b2d8aa")
    assert "sk-canary" not in repr(accounts(stated)) + accounts(stated)[0].model_dump_json()
    assert scrub_text("key: sk-canary-93b2d8aa") == "key: [secret MY_MODEL_ACCESS]"


def test_stated_prices_come_first_then_the_providers_and_one_that_nobody_knows_is_none() -> None:
    stated = Account(model="openai/gpt-4o", usd_per_million_input=1, usd_per_million_output=3)
    assert stated.usd(1_000_000, 1_000_000) == 4
    assert 0 < (Account(model="openai/gpt-4o").usd(1000, 1000) or 0) < 1
    for model, url in (("openai/none", None), ("openai/gpt-4o", "http://gpu:8000/v1"), ("ollama_chat/llama3", None)):
        assert Account(model=model, base_url=url).usd(1000, 1000) is None


def test_an_endpoint_is_asked_for_its_models_and_nothing_is_bought() -> None:
    with FakeLLM(key=KEY) as server:
        mine = Account(model="openai/test", base_url=server.url, key=SecretStr(KEY))
        check(mine, RemainingBudget())
        with pytest.raises(Refused, match=r"401.*key_variable"):
            check(mine.model_copy(update={"key": SecretStr("wrong")}), RemainingBudget())
        with pytest.raises(Refused, match="price of 'openai/test' is not known"):
            check(mine, RemainingBudget(usd=1.0))
    with pytest.raises(Refused, match="no language model answers at base_url"):
        check(mine, RemainingBudget())
    assert server.requests == []


def test_a_model_without_a_provider_and_a_missing_key_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"'big-model' .*provider/model"):
        check(Account(model="big-model"), RemainingBudget())
    claude = Account(model="anthropic/claude-sonnet-4-5")
    with pytest.raises(Refused, match=f"'{claude.model}' .*ANTHROPIC_API_KEY"):
        check(claude, RemainingBudget())
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    check(claude, RemainingBudget())


# An answer


def test_an_answer_comes_with_its_tokens_and_its_price() -> None:
    with FakeLLM([Reply("try a larger step", usage=(1000, 500))]) as server:
        answer = ask(account(server, temperature=0.3, max_output_tokens=700), QUESTION, brief())

    assert (answer.text, answer.finish, answer.request.model) == ("try a larger step", "stop", "openai/test")
    assert answer.usage == Usage(1, 1000, 500, 0.002)
    assert [one["content"] for one in server.requests[0].messages] == ["You are brief.", "What next?"]
    body = server.requests[0].body
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("test", 0.3, 700)
    assert server.requests[0].key == KEY


def test_thoughts_are_paid_for_where_a_server_counts_them_apart_or_not_at_all() -> None:
    message = {"role": "assistant", "content": "yes", "reasoning_content": "hm " * 500}
    apart = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 5120}
    body = {"model": "test", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with FakeLLM([Reply(body=json.dumps({**body, "usage": apart})), Reply(body=json.dumps(body))]) as server:
        stated, counted = (ask(account(server), QUESTION, brief()).usage for _ in range(2))

    assert stated == Usage(1, 100, 5020, pytest.approx(0.01014))
    assert 500 <= counted.output_tokens <= 1100


def test_the_key_of_the_usual_variable_is_not_sent_to_an_endpoint_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FakeLLM(["yes"]) as server:
        ask(account(server, key=None), QUESTION, brief())

    assert KEY not in str(server.requests[0].headers)


# No answer


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(status=500), Reply(status=529), Reply(status=429), Reply(status=429, headers={"Retry-After": "0"}),
        Reply(cut=True), Reply(body="not JSON"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(trouble: Reply) -> None:
    with FakeLLM([trouble, "here I am"]) as server:
        assert ask(account(server), QUESTION, brief()).text == "here I am"


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Reply("Incorrect API key", status=401), r"AuthenticationError \(401\): .*Incorrect API key"),
        (Reply("no such parameter", status=400), r"test at http://127.*: BadRequestError \(400\): .*no such para"),
        (Reply(message={"content": None, "refusal": "I cannot help."}), r"refused: I cannot help\."),
        (Reply(finish="content_filter"), "refused: a content filter"),
    ],
)
def test_what_cannot_pass_is_not_tried_again(trouble: Reply, reason: str) -> None:
    spent = Usage(1, 100, 20, pytest.approx(0.00014)) if trouble.status == 200 else Usage(1, 0, 0, 0.0)
    assert fails([trouble], reason) == spent


@pytest.mark.parametrize("trouble", [HANGS, Reply("nobody waits for this", pause=0.5)])
def test_a_server_that_hangs_or_trickles_is_left_at_the_deadline(trouble: Reply) -> None:
    usage = fails([trouble], "timeout: no answer in 2 s", timeout_seconds=2)

    assert usage.calls == 1
    assert usage.input_tokens > 0, "what was read is paid for"


def test_a_signal_ends_the_waiting() -> None:
    def hang(_: Asked) -> Reply:
        os.kill(os.getpid(), signal.SIGTERM)
        return HANGS

    with interrupt.deferred(), FakeLLM(hang) as server, pytest.raises(KeyboardInterrupt):
        ask(account(server, timeout_seconds=60), QUESTION, brief())


@pytest.mark.parametrize(
    ("reply", "fault", "text"),
    [
        (Reply('{"x": ', finish="length"), "was cut off at max_output_tokens = 8192: be brief", '{"x":'),
        (Reply(message=THOUGHTS, finish="length"), "all of it spent on thoughts", ""),
        (Reply(message=THOUGHTS), "thoughts, and no answer after them", ""),
        (Reply("<think>hm"), "ends within its thoughts", ""),
        (Reply(message=CALL, finish="tool_calls"), "it called read_file in place of an answer", ""),
        (Reply(" \n"), "an empty answer", ""),
        (Reply(body='{"choices": []}'), "the reply holds no answer", ""),
        (Reply("x" * (2**19 + 1)), "the answer has 524289 characters", ""),
    ],
)
def test_an_answer_that_is_none_is_named_as_what_it_is_and_is_paid_for(reply: Reply, fault: str, text: str) -> None:
    with FakeLLM([reply]) as server, pytest.raises(Unusable, match=fault) as caught:
        ask(account(server), QUESTION, brief())

    assert caught.value.refusal.text == text
    assert caught.value.refusal.usage.calls == 1 and caught.value.refusal.usage.tokens > 0


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
def test_a_reply_of_an_unknown_form_is_no_outage_and_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_client, "RETRIES", 1)  # the router waits longer before each further try
    message = {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}
    reply = Reply(body=json.dumps({"model": "test", "choices": [{"index": 0, "message": message}]}))
    with FakeLLM([reply] * 2) as server, pytest.raises(Unavailable, match=r"form of the reply: .*Invalid") as caught:
        ask(account(server), QUESTION, brief())
    assert not [word for word in ("Traceback", "500", ".py") if word in str(caught.value)]
    assert caught.value.usage.input_tokens > 0, "what was read is paid for"


# Limits


@pytest.mark.parametrize(
    ("left", "name"), [(RemainingBudget(tokens=1000), "1000 tokens"), (RemainingBudget(usd=0.0015), "0.0015 USD")]
)
def test_what_is_left_is_as_of_the_beginning_of_the_trial(left: RemainingBudget, name: str) -> None:
    with FakeLLM(["yes"]) as server:
        limited = account(server, max_output_tokens=500)
        ask(limited, QUESTION, brief(left=left))
        with pytest.raises(Unavailable, match=name):
            ask(limited, QUESTION, brief(left=left, refusals=(Refusal("", usage=Usage(1, 400, 400, 0.0012)),)))
        with pytest.raises(Unavailable, match=name):
            ask(limited, QUESTION, brief(left=left), bought=Usage(1, 400, 400, 0.0012))

    assert len(server.requests) == 1


# Traces


def test_what_was_asked_and_answered_is_kept(tmp_path: Path) -> None:
    with FakeLLM([Reply("half a pair: \ud83d", message=THOUGHTS), Reply(message={"refusal": "no"})]) as server:
        assert ask(account(server), QUESTION, brief(tmp_path)).text.startswith("half a pair: ")
        with pytest.raises(Unavailable):
            ask(account(server), QUESTION[1:], brief(tmp_path))

    good, bad = (json.loads((tmp_path / f"asked/{name}.json").read_text()) for name in ("01", "02"))
    assert [one["content"] for one in good["request"]["messages"]] == ["You are brief.", "What next?"]
    assert (good["thoughts"], good["fault"]) == ("six by nine", "")
    assert good["text"].startswith("half a pair: ")
    assert good["usage"] == bad["usage"] == {"calls": 1, "input_tokens": 100, "output_tokens": 20, "usd": 0.00014}
    assert bad["finish"] == "" and "refused: no" in bad["fault"]


def test_the_very_same_request_is_answered_from_its_trace_and_any_other_is_asked(tmp_path: Path) -> None:
    with FakeLLM(["one", "two", "three", Reply("half", finish="length"), "five"]) as server:
        known, told, refused = account(server), brief(tmp_path), []
        for messages, one in ((QUESTION, told), (QUESTION[1:], told), (QUESTION, replace(told, seed=1))):
            assert ask(known, messages, one) == ask(known, messages, one)
        for _ in range(2):
            with pytest.raises(Unusable) as unusable:
                ask(known.model_copy(update={"model": "openai/other"}), QUESTION, told)
            refused.append(unusable.value.refusal)
        assert refused[0] == refused[1]
        first, later = (ask(known, [Message("user", f"{QUESTION}\n\n## Left\n\n{n} minutes.\n")], told) for n in (9, 8))
        assert first == later, "as after a kill"
    assert len(server.requests) == 5


def test_a_key_stands_in_no_trace_no_error_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    redact.remember("LLM_KEY", KEY)

    def echo(asked: Asked) -> Reply:
        return Reply(f"Incorrect API key provided: {asked.key}", status=401)

    with caplog.at_level(logging.DEBUG), FakeLLM(echo) as server, pytest.raises(Unavailable) as caught:
        ask(account(server), QUESTION, brief(tmp_path))
    with FakeLLM(lambda asked: f"your key is {asked.key}") as server:
        told = [ask(account(server), QUESTION, brief(tmp_path)).text for _ in range(2)]

    assert told == [f"your key is {KEY}"] * 2, "an answer with a hole in it is no answer to read again"
    assert "Incorrect API key provided: [secret LLM_KEY]" in str(caught.value)
    kept = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "your key is [secret LLM_KEY]" in kept
    assert KEY not in kept + caplog.text + "".join(capfd.readouterr()) + repr(account(server))
