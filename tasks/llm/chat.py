"""Requests to a language model: limits before, the answer or the reason why there is none after, and a trace.

LiteLLM asks again after what may pass (tasks/llm/litellm_client.py). What it could not get an answer to is Unavailable;
an answer that says nothing usable, such as one of thoughts alone, is Unusable: the model is told, and asked again.

Each request with its answer is kept beside the trial as `asked/01.json`, `02.json` ..., without secrets. An answer is
read again when the same request comes once more, as after a kill, so it is not paid for twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tasks.llm import litellm_client
from tasks.llm.account import Account
from tasks.llm.answers import ANSWER_LIMIT, without_thoughts
from tasks.llm.litellm_client import Message
from tasks.proposing.brief import Brief, Unavailable, Unusable
from tasks.system.files import write_atomic
from tasks.system.redact import capped, one_line, without_passwords
from tasks.trial import NOTHING_BOUGHT, Usage

FOLDER = "asked"
LEFT = re.compile(r"\n## Left\n\n.*")
"""The section of a prompt (prompts/campaign.md) whose sentence is one line."""
THOUGHTS, SHOWN = 20_000, 300
"""Characters of a model's thoughts that its trace keeps, and of an endpoint's own words in a reason."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as far as it decides the answer."""

    model: str
    base_url: str | None
    """Without a password."""
    messages: tuple[Message, ...]
    temperature: float | None
    max_output_tokens: int
    seed: int
    """The brief's: under another one the same messages are asked anew."""


@dataclass(frozen=True)
class Trace:
    """A request, and what became of it: a file of the folder."""

    request: RecordedRequest
    text: str
    """The answer, without the model's thoughts."""
    usage: Usage
    finish: str
    """The reason of its end; `length`: cut off at the limit of output tokens. Empty: there is no answer."""
    fault: str = ""
    """Why there is none, or it cannot be used; empty when it can."""
    thoughts: str = ""
    """What it thought; kept for people, and never sent back."""
    seconds: float = 0.0


TRACE, REQUEST = TypeAdapter(Trace), TypeAdapter(RecordedRequest)


def ask(account: Account, messages: Sequence[Message], brief: Brief, *, bought: Usage = NOTHING_BOUGHT) -> Trace:
    """The model's answer to these messages; one that this trial has had is not bought again.

    Args:
        bought: what this suggestion has cost so far, and the brief does not know of.

    Raises:
        Unusable: the answer is empty, was cut off, is too long, or calls a tool.
        Unavailable: there is no answer; the reason says why, and the usage what it took all the same.
    """
    request = RecordedRequest(
        account.model, account.base_url, tuple(messages), account.temperature, account.answer_tokens, brief.seed
    )
    kept = REQUEST.validate_json(without_passwords(json.dumps(REQUEST.dump_python(request, mode="json"))))
    asked = _lasting(kept)
    earlier = [one for one in recorded(brief.traces) if one.finish and _lasting(one.request) == asked]
    # One from which a secret was taken is not as it came.
    answer = next((one for one in earlier if "[secret" not in one.text), None)
    if answer is None:
        _check_limits(account, messages, brief, bought)
        litellm_client.litellm()  # what loading it takes is not the model's time
        began = time.monotonic()
        answer = _answer(account, request)
        answer = replace(answer, seconds=round(time.monotonic() - began, 3))
        keep(brief.traces, answer)
    if not answer.finish:
        raise Unavailable(f"{_name(account)}: {answer.fault}", answer.usage)
    if answer.fault:
        raise Unusable(answer.fault, answer.text, answer.usage)
    return answer


def _lasting(request: RecordedRequest) -> RecordedRequest:
    """The request without what is another after a kill: the minutes and dollars that are left, and why answers were
    refused, which may end with a log.
    """
    first, *later = (replace(one, content=LEFT.sub("", one.content)) for one in request.messages)
    kept = (replace(one, content="") if place and one.role == "user" else one for place, one in enumerate(later))
    return replace(request, messages=(first, *kept))


def _check_limits(account: Account, messages: Sequence[Message], brief: Brief, bought: Usage) -> None:
    """Check that the longest possible answer would pass no limit of the campaign.

    `brief.left` is what was left when this trial's turn began, so what its refusals cost is taken off it.
    """
    left = brief.left
    if left.usd is None and left.tokens is None:
        return
    given = litellm_client.count(account.model, messages)
    most = Usage(1, given, account.answer_tokens, account.usd(given, account.answer_tokens))
    total = sum((refusal.usage for refusal in brief.refusals), bought + most)
    for limit, name, used in ((left.tokens, "tokens", total.tokens), (left.usd, "USD", total.usd)):
        if limit is not None and (used is None or used > limit):
            more = "not every price is known" if used is None else f"with one more answer it may be {used:.4g}"
            raise Unavailable(
                f"{_name(account)}: the limit is reached: {limit:g} {name} are left to the campaign, and {more}"
            )


def _answer(account: Account, request: RecordedRequest) -> Trace:
    """What becomes of a request to the endpoint."""
    library, messages = litellm_client.litellm(), request.messages
    try:
        return _read(account, request, litellm_client.completion(account, messages))
    except Exception as error:  # noqa: BLE001 - whatever a strange reply makes LiteLLM raise, there is no answer
        status, (said, is_unread, _) = getattr(error, "status_code", None), str(error).partition("Traceback (most")
        reason = f"{type(error).__name__}{f' ({status})' if status else ''}: {one_line(said, SHOWN)}"
        usage = Usage(calls=1)
        if is_late := isinstance(error, TimeoutError | library.Timeout):
            reason = f"timeout: no answer in {account.answer_seconds:g} s: raise timeout_seconds"
        elif is_unread:  # the traceback is LiteLLM's own, over the reply
            reason = f"LiteLLM cannot read the form of the reply: {one_line(said, SHOWN)}"
        if is_late or is_unread:  # paid for; how much was written is unknown
            given = litellm_client.count(account.model, messages)
            usage = Usage(1, given, 0, account.usd(given, 0))
        return Trace(request, "", usage, "", reason)


def _read(account: Account, request: RecordedRequest, reply: Any) -> Trace:
    """What the model said in a reply, with the fault of one that is no answer; none where it refuses."""
    if not reply.choices:
        return Trace(request, "", _usage(account, request, reply, ""), "stop", "the reply holds no answer")
    choice = reply.choices[0]
    message, finish, text = choice.message, choice.finish_reason or "stop", choice.message.content or ""
    extra = getattr(message, "provider_specific_fields", None) or {}
    thoughts = str(getattr(message, "reasoning_content", None) or extra.get("reasoning") or "")
    usage = _usage(account, request, reply, thoughts + text)
    refusal = extra.get("refusal") or getattr(message, "refusal", None) or ""
    if finish == "content_filter":
        refusal = refusal or "a content filter held the answer back"
    if refusal:
        return Trace(request, "", usage, "", f"refused: {one_line(str(refusal), SHOWN)}")
    tools = [getattr(call.function, "name", None) or "" for call in getattr(message, "tool_calls", None) or ()]
    said = without_thoughts(text)
    answer = said if said and len(text) <= ANSWER_LIMIT else ""
    thoughts = capped(thoughts or text.strip().removesuffix(answer), THOUGHTS)
    return Trace(request, answer, usage, finish, _fault(text, said, finish, thoughts, tools, request), thoughts)


def _fault(
    text: str, said: str | None, finish: str, thoughts: str, tools: Sequence[str], request: RecordedRequest
) -> str:
    """Why a text is no answer; empty when it may be one. (said: it without its thoughts)"""
    if finish == "length":
        where = "" if said or not (thoughts or text) else ", all of it spent on thoughts"
        limit = f"max_output_tokens = {request.max_output_tokens}"
        return f"the answer was cut off at {limit}{where}: be brief, and answer as a whole"
    if said is None:
        return "the answer ends within its thoughts: think less, and answer as a whole"
    if len(text) > ANSWER_LIMIT:
        return f"the answer has {len(text)} characters; at most {ANSWER_LIMIT}"
    if said:
        return ""
    if tools:
        names = one_line(", ".join(tools), SHOWN)
        return f"it called {names} in place of an answer, and no tools are offered"
    return "thoughts, and no answer after them" if thoughts else "an empty answer"


def _usage(account: Account, request: RecordedRequest, reply: Any, text: str) -> Usage:
    """As the reply says; counted here where it does not. (text: all that the model wrote, its thoughts included)"""
    stated = getattr(reply, "usage", None)
    given = max(stated.prompt_tokens or 0, 0) if stated else 0  # an endpoint may say anything
    # Some providers count a model's thoughts in the total alone.
    got = max(stated.completion_tokens or 0, (stated.total_tokens or 0) - given, 0) if stated else 0
    if not given and not got:
        given = litellm_client.count(account.model, request.messages)
        got = litellm_client.count(account.model, [Message("assistant", text)])
    return Usage(1, given, got, account.usd(given, got, reply))


def _name(account: Account) -> str:
    """The model, and where it is."""
    return account.model + (f" at {without_passwords(account.base_url)}" if account.base_url else "")


def recorded(folder: Path | None) -> list[Trace]:
    """The traces of a trial, in their order."""
    paths = sorted((folder / FOLDER).glob("*.json")) if folder else ()
    return [TRACE.validate_json(path.read_bytes()) for path in paths]


def keep(folder: Path | None, trace: Trace) -> None:
    """Write a trace, without secrets; nothing where nothing is kept."""
    if folder is not None:
        number = len(list((folder / FOLDER).glob("*.json"))) + 1
        text = json.dumps(TRACE.dump_python(trace, mode="json"), indent=2, ensure_ascii=False)
        write_atomic(folder / FOLDER / f"{number:02d}.json", without_passwords(text) + "\n")
