"""Asking a language model: over real HTTP, through LiteLLM, from a server that does what its script says."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tasks.llm.account import Account
from tasks.llm.chat import PATIENCE, Message, Patience, ask
from tasks.proposing.brief import Brief, Refusal, RemainingBudget, Unavailable
from tasks.system import interrupt, redact
from tasks.trial import Usage
from tests.support.fake_llm import (
    Asked,
    FakeLLM,
    Reply,
    Script,
    broken,
    fenced,
    filtered,
    hangs,
    rate_limited,
    refuses,
    trickles,
    truncated,
)

KEY = "sk-canary-5f0c1e77"
QUICK = Patience(pauses=(0.0, 0.0, 0.0))
QUESTION = (Message("system", "You are brief."), Message("user", "What next?"))
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def account(server: FakeLLM, **more: Any) -> Account:
    """An account at the server with prices: 1 USD and 2 USD for a million tokens in and out."""
    known = {"key": SecretStr(KEY), "usd_per_million_input": 1.0, "usd_per_million_output": 2.0}
    return Account(**{"model": "openai/test", "base_url": server.url, **known, **more})


def brief(desk: Path | None = None, **more: Any) -> Brief:
    return Brief({}, (), traces=desk, **more)


def traces(desk: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((desk / "asked").iterdir())]


def fails(script: Script, reason: str, patience: Patience = QUICK, **more: Any) -> Usage:
    """What it took to ask a server with this script, which gives no answer for this reason."""
    with FakeLLM(script) as server, pytest.raises(Unavailable, match=reason) as caught:
        ask(account(server, **more), QUESTION, brief(), patience=patience)
    return caught.value.usage


# An answer


def test_an_answer_comes_with_its_tokens_and_its_price() -> None:
    with FakeLLM([Reply("try a larger step", usage=(1000, 500))]) as server:
        answer = ask(account(server, temperature=0.3, max_output_tokens=700), QUESTION, brief())

    assert (answer.text, answer.finish, answer.model) == ("try a larger step", "stop", "openai/test")
    assert answer.usage == Usage(1, 1000, 500, 0.002)
    assert server.requests[0].messages == [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "What next?"},
    ]
    body = server.requests[0].body
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("test", 0.3, 700)
    assert server.requests[0].key == KEY


def test_a_fenced_answer_is_returned_as_it_came() -> None:
    with FakeLLM([fenced('{"x": 1}')]) as server:
        assert '```json\n{"x": 1}\n```' in ask(account(server), QUESTION, brief()).text


def test_half_a_character_in_an_answer_harms_nothing(tmp_path: Path) -> None:
    with FakeLLM(["half a pair: \ud83d"]) as server:
        answer = ask(account(server), QUESTION, brief(tmp_path))

    assert answer.text.startswith("half a pair: ")
    assert traces(tmp_path)[0]["answer"]["text"].startswith("half a pair: ")


def test_a_truncated_answer_is_returned_and_says_so() -> None:
    with FakeLLM([truncated('{"x": ')]) as server:
        answer = ask(account(server), QUESTION, brief())

    assert (answer.text, answer.finish) == ('{"x": ', "length")


def test_a_price_that_nobody_knows_is_unknown_and_not_nothing() -> None:
    with FakeLLM(["yes"]) as server:
        free = account(server, usd_per_million_input=None, usd_per_million_output=None)
        assert ask(free, QUESTION, brief()).usage == Usage(1, 100, 20, None)


def test_tokens_are_counted_here_where_the_server_does_not() -> None:
    with FakeLLM([Reply("one two three four five", usage=None)]) as server:
        usage = ask(account(server), QUESTION, brief()).usage

    assert 5 <= usage.output_tokens <= 8
    assert 8 <= usage.input_tokens <= 30
    assert usage.usd == pytest.approx((usage.input_tokens + 2 * usage.output_tokens) / 1e6)


def test_thoughts_are_paid_for_where_a_server_counts_them_apart_or_not_at_all() -> None:
    message = {"role": "assistant", "content": "yes", "reasoning_content": "hm " * 500}
    apart = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 5120}
    body = {"model": "test", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with FakeLLM([Reply(body=json.dumps({**body, "usage": apart})), Reply(body=json.dumps(body))]) as server:
        said, counted = (ask(account(server), QUESTION, brief()).usage for _ in range(2))

    assert said == Usage(1, 100, 5020, pytest.approx(0.01014))
    assert 500 <= counted.output_tokens <= 1100


def test_the_key_of_the_usual_variable_is_not_sent_to_an_endpoint_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FakeLLM(["yes"]) as server:
        ask(account(server, key=None), QUESTION, brief())

    assert KEY not in str(server.requests[0].headers)


# A schema


def test_a_schema_is_sent_as_the_format_of_the_answer() -> None:
    with FakeLLM(['{"x": 1}']) as server:
        ask(account(server), QUESTION, brief(), SCHEMA)

    sent = server.requests[0].body["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]) == ("json_schema", SCHEMA)


def test_an_endpoint_that_knows_no_formats_is_asked_once_more_without(tmp_path: Path) -> None:
    script = [Reply("response_format is not supported", status=400), '{"x": 1}']
    with FakeLLM(script) as server:
        answer = ask(account(server), QUESTION, brief(tmp_path), SCHEMA, patience=QUICK)

    assert answer.text == '{"x": 1}'
    assert answer.usage.calls == 2
    assert ["response_format" in asked.body for asked in server.requests] == [True, False]
    assert [one["with_schema"] for one in traces(tmp_path)[0]["attempts"]] == [True, False]


def test_a_bad_request_without_a_schema_is_final() -> None:
    fails([Reply("no such parameter", status=400)], r"openai/test at http://127.*: bad request: no such parameter")


# Trying again


@pytest.mark.parametrize(
    "trouble",
    [
        *(broken(status) for status in (500, 502, 503, 504, 529, 408)),
        rate_limited(),
        rate_limited(None),
        Reply(cut=True),
        Reply(body="not JSON"),
        Reply(body='{"choices": []}'),
        Reply(""),
    ],
)
def test_what_may_pass_is_tried_again_and_every_try_counts(trouble: Reply) -> None:
    with FakeLLM([trouble, "here I am"]) as server:
        answer = ask(account(server), QUESTION, brief(), patience=QUICK)

    assert answer.text == "here I am"
    assert answer.usage.calls == len(server.requests) == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Reply("Incorrect API key", status=401), "the key is not accepted: Incorrect API key"),
        (Reply("not in your country", status=403), "access denied: not in your country"),
        (Reply("The model does not exist", status=404), "no such model or address: The model does not exist"),
        (Reply("You have no money left", status=402), "no credit: You have no money left"),
        (
            Reply("This model's maximum context length is 4096 tokens", status=400),
            "bad request: This model's maximum context length is 4096 tokens|longer than the model's context",
        ),
        (
            Reply("rejected as a result of our safety system", status=400, code="content_policy_violation"),
            "refused the request|bad request: rejected as a result",
        ),
    ],
)
def test_what_cannot_pass_is_not_tried_again(trouble: Reply, reason: str) -> None:
    assert fails([trouble], reason) == Usage(1, 0, 0, 0.0)


def test_an_outage_ends_after_the_last_try_and_says_how_many_there_were() -> None:
    assert fails([broken(503)] * 4, r"after 4 tries: outage \(503\)") == Usage(4, 0, 0, 0.0)


def test_a_server_that_is_not_there_is_an_outage() -> None:
    with FakeLLM() as server:
        gone = account(server)
    with pytest.raises(Unavailable, match=r"4 tries: .*onnection"):
        ask(gone, QUESTION, brief(), patience=QUICK)


@pytest.mark.parametrize("stated", ["0.05", formatdate(0, usegmt=True)])
def test_a_pause_that_the_server_asks_for_replaces_ours(stated: str) -> None:
    never = Patience(pauses=(1e6,))  # would be beyond all patience
    with FakeLLM([rate_limited(stated), "now"]) as server:
        assert ask(account(server), QUESTION, brief(), patience=never).text == "now"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("3600", r"rate limit: Rate limit reached \(it asks us to wait 3600 s\)"),
        ("60", r"rate limit: Rate limit reached \(no time is left of 5 s\)"),
    ],
)
def test_nobody_waits_for_a_pause_beyond_patience_or_the_deadline(stated: str, reason: str) -> None:
    fails([rate_limited(stated)], reason, PATIENCE, timeout_seconds=5)


@pytest.mark.parametrize("trouble", [hangs(), trickles("an answer that nobody waits for")])
def test_a_server_that_hangs_or_trickles_is_left_at_the_deadline(trouble: Reply) -> None:
    usage = fails([trouble], "timeout: no answer within", timeout_seconds=0.4)

    assert usage.calls == 1
    assert usage.input_tokens > 0, "what was read is paid for"


def test_a_signal_ends_the_waiting() -> None:
    def hang(_: Asked) -> Reply:
        os.kill(os.getpid(), signal.SIGTERM)
        return hangs()

    with interrupt.deferred(), FakeLLM(hang) as server, pytest.raises(KeyboardInterrupt):
        ask(account(server, timeout_seconds=60), QUESTION, brief())


# No answer


def test_a_refusal_is_not_asked_again_and_is_paid_for() -> None:
    usage = fails([refuses("I cannot help.")], r"refused: I cannot help\.")

    assert usage == Usage(1, 100, 20, pytest.approx(0.00014))


def test_an_answer_that_a_content_filter_held_back_is_a_refusal() -> None:
    fails([filtered()], "refused: a content filter")


def test_an_answer_that_stays_empty_is_none() -> None:
    assert fails([Reply(""), Reply(" \n")], "after 2 tries: an empty answer").tokens == 240


def test_an_answer_of_thoughts_alone_names_the_limit_to_raise() -> None:
    fails([truncated("")], "max_output_tokens = 8192: raise it")


# Limits


def spending(usage: Usage) -> tuple[Refusal, ...]:
    return (Refusal("out of the space", usage=usage),)


def test_a_request_that_could_pass_the_limit_of_tokens_is_not_sent() -> None:
    with FakeLLM(["yes"]) as server:
        limited = account(server, max_tokens=2000, max_output_tokens=500)
        almost, over = Usage(1, 1000, 400, 0.0), Usage(1, 1000, 490, 0.0)
        ask(limited, QUESTION, brief(refusals=spending(almost)))
        with pytest.raises(Unavailable, match="max_tokens = 2,000, 1,490 "):
            ask(limited, QUESTION, brief(refusals=spending(over)))

    assert len(server.requests) == 1


def test_a_request_that_could_pass_the_limit_of_money_is_not_sent() -> None:
    with FakeLLM(["yes"]) as server:
        limited = account(server, max_usd=0.002, max_output_tokens=500)
        ask(limited, QUESTION, brief())
        with pytest.raises(Unavailable, match=r"max_usd = 0\.002, 0\.0015 "):
            ask(limited, QUESTION, brief(refusals=spending(Usage(1, 0, 0, 0.0015))))


def test_money_that_cannot_be_counted_does_not_pass_a_limit() -> None:
    with FakeLLM([]) as server:
        limited = account(server, max_usd=1.0)
        with pytest.raises(Unavailable, match="max_usd = 1 "):
            ask(limited, QUESTION, brief(refusals=spending(Usage(1, 10, 10, None))))
        unpriced = account(server, usd_per_million_input=None, usd_per_million_output=None)
        with pytest.raises(Unavailable, match=r"USD .* = 1 "):
            ask(unpriced, QUESTION, brief(left=RemainingBudget(usd=1.0)))


@pytest.mark.parametrize(
    ("left", "name"),
    [(RemainingBudget(tokens=1000), "tokens left to the campaign"), (RemainingBudget(usd=0.0015), "USD left")],
)
def test_what_is_left_is_as_of_the_beginning_of_the_trial(left: RemainingBudget, name: str) -> None:
    with FakeLLM(["yes"]) as server:
        limited = account(server, max_output_tokens=500)
        ask(limited, QUESTION, brief(left=left))
        with pytest.raises(Unavailable, match=name):
            ask(limited, QUESTION, brief(left=left, refusals=spending(Usage(1, 400, 400, 0.0012))))
        with pytest.raises(Unavailable, match=name):
            ask(limited, QUESTION, brief(left=left), bought=Usage(1, 400, 400, 0.0012))

    assert len(server.requests) == 1


def test_the_limits_hold_between_two_tries() -> None:
    script = [Reply("", usage=(900, 300))]
    assert fails(script, "the limit is reached", max_tokens=1500, max_output_tokens=500).tokens == 1200


# Traces


def test_what_was_asked_and_answered_is_kept(tmp_path: Path) -> None:
    with FakeLLM([broken(), "an answer", refuses("no")]) as server:
        ask(account(server), QUESTION, brief(tmp_path), patience=QUICK)
        with pytest.raises(Unavailable):
            ask(account(server), QUESTION[1:], brief(tmp_path), patience=QUICK)

    good, bad = traces(tmp_path)
    assert [path.name for path in sorted((tmp_path / "asked").iterdir())] == ["01.json", "02.json"]
    assert [one["content"] for one in good["request"]["messages"]] == ["You are brief.", "What next?"]
    assert (good["answer"]["text"], good["error"]) == ("an answer", "")
    assert [bool(attempt["error"]) for attempt in good["attempts"]] == [True, False]
    assert good["usage"] == {"calls": 2, "input_tokens": 100, "output_tokens": 20, "usd": 0.00014}
    assert bad["answer"] is None
    assert "refused: no" in bad["error"]


def test_the_very_same_request_is_answered_from_its_trace(tmp_path: Path) -> None:
    with FakeLLM(["the only answer"]) as server:
        first = ask(account(server), QUESTION, brief(tmp_path), SCHEMA)
        again = ask(account(server), QUESTION, brief(tmp_path), SCHEMA)

    assert again == first


@pytest.mark.parametrize(
    "other",
    [
        lambda known, told: ask(known, QUESTION[1:], told),
        lambda known, told: ask(known, QUESTION, told, SCHEMA),
        lambda known, told: ask(known, QUESTION, replace(told, seed=1)),
        lambda known, told: ask(known, QUESTION, replace(told, refusals=(Refusal("not in the space"),))),
        lambda known, told: ask(known.model_copy(update={"temperature": 1.0}), QUESTION, told),
        lambda known, told: ask(known.model_copy(update={"model": "openai/other"}), QUESTION, told),
    ],
)
def test_any_other_request_is_asked(other: Callable[[Account, Brief], object], tmp_path: Path) -> None:
    with FakeLLM(["one", "two"]) as server:
        ask(account(server), QUESTION, brief(tmp_path))
        other(account(server), brief(tmp_path))

    assert len(server.requests) == 2


def test_a_request_that_was_not_answered_is_asked_again(tmp_path: Path) -> None:
    with FakeLLM([Reply("wrong key", status=401), "better now"]) as server:
        with pytest.raises(Unavailable):
            ask(account(server), QUESTION, brief(tmp_path))
        assert ask(account(server), QUESTION, brief(tmp_path)).text == "better now"


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

    assert told == [f"your key is {KEY}"] * 2
    assert len(server.requests) == 2, "an answer with a hole in it is no answer to read again"
    assert "Incorrect API key provided: [secret LLM_KEY]" in str(caught.value)
    kept = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "your key is [secret LLM_KEY]" in kept
    assert KEY not in kept + caplog.text + "".join(capfd.readouterr()) + repr(account(server))


def test_an_error_shows_its_words_on_one_short_line_without_control_characters() -> None:
    script = [Reply("\x1b[31mbad\x1b[0m\nnews " + "x" * 5000, status=401)]
    with FakeLLM(script) as server, pytest.raises(Unavailable, match="bad news xxx") as caught:
        ask(account(server), QUESTION, brief())

    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
def test_a_reply_of_an_unknown_form_is_no_outage_and_shows_no_traceback() -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}
    reply = Reply(body=json.dumps({"model": "test", "choices": [{"index": 0, "message": message}]}))
    with FakeLLM([reply] * 4) as server, pytest.raises(Unavailable, match="form of the reply: Invalid") as caught:
        ask(account(server), QUESTION, brief(), patience=QUICK)
    assert not [word for word in ("Traceback", "outage", ".py") if word in str(caught.value)]


def test_thoughts_that_a_provider_tells_apart_are_kept_and_are_no_answer(tmp_path: Path) -> None:
    with FakeLLM([Reply("42", thoughts="six by nine")]) as server:
        answer = ask(account(server), QUESTION, brief(tmp_path))
    assert answer.text == "42"
    (kept,) = traces(tmp_path)
    assert kept["attempts"][0]["thoughts"] == "six by nine"


def test_thoughts_without_an_answer_and_calls_of_tools_are_named_as_the_reason() -> None:
    fails([Reply("", thoughts="hm", finish="length")], "all of it spent on thoughts: raise it")
    fails([Reply("", thoughts="hm")] * 2, "thoughts, and no answer after them")
    fails([Reply("", called="read_file", finish="tool_calls")] * 2, "it called read_file in place of an answer")


def test_a_model_that_is_known_to_reason_has_room_for_its_thoughts() -> None:
    assert Account(model="openai/gpt-4o").answer_tokens == 8_192
    assert Account(model="openai/o3").answer_tokens == 32_768
    assert Account(model="openai/o3", max_output_tokens=500).answer_tokens == 500
