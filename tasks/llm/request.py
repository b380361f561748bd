"""One request to a language model: an answer, or why there is none and whether to try again."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tasks.llm import litellm_client
from tasks.llm.account import NO_KEY, Account
from tasks.llm.quotes import one_line
from tasks.trial import Usage

TEMPORARY = {408: "timeout", 409: "conflict", 425: "too early", 429: "rate limit", 529: "overloaded"}
"""Statuses below 500, or of one provider's own, after which the same request may be answered. From 500 on all are."""
PERMANENT = {
    400: "bad request",
    401: "the key is not accepted",
    402: "no credit",
    403: "access denied",
    404: "no such model or address",
    413: "the request is too long",
    422: "bad request",
}
UNKNOWN_FORMAT = (400, 422)
"""Statuses of endpoints that do not know response_format."""
NAME = 60
"""Characters of a tool's name that are shown."""
SHOWN = 300
"""Characters of an endpoint's own words in a reason."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Completion:
    """A reply: a text, or a refusal in its place."""

    text: str
    finish: str
    """The reason of its end: `stop`, `length` at the limit of output tokens, or another of the provider's."""
    refusal: str
    usage: Usage
    model: str
    """The provider's name of the model that answered."""
    thoughts: str = ""
    """What a reasoning model thought, where its provider tells it apart from the answer."""
    called: tuple[str, ...] = ()
    """Names of tools that it called, although none are offered."""


@dataclass(frozen=True)
class Fault:
    """A request without a reply."""

    reason: str
    usage: Usage
    again: bool
    """Whether the same request may be answered later."""
    after: float | None = None
    """Seconds that the endpoint asks us to wait."""
    without_schema: bool = False
    """Whether it may be answered at once when it asks for no format."""


def send(
    account: Account, messages: tuple[Message, ...], schema: Mapping[str, Any] | None, seconds: float
) -> Completion | Fault:
    """Ask once, and wait so many seconds at most.

    Raises:
        KeyboardInterrupt: this process is asked to end.
    """
    litellm = litellm_client.litellm()
    # Without a key of ours LiteLLM takes the usual variable's, which belongs to the provider's own endpoint.
    no_key = NO_KEY if account.base_url else None
    form = {"name": "answer", "schema": dict(schema or {}), "strict": True}
    try:
        reply = litellm_client.completed(
            litellm.acompletion(
                model=account.model,
                messages=[asdict(message) for message in messages],
                api_base=account.base_url,
                api_key=account.key.get_secret_value() if account.key else no_key,
                temperature=account.temperature,
                max_tokens=account.answer_tokens,
                **({"response_format": {"type": "json_schema", "json_schema": form}} if schema is not None else {}),
                timeout=seconds,
                num_retries=0,
                max_retries=0,  # the client's own, below LiteLLM's
            ),
            seconds,
        )
    except TimeoutError:
        return _unfinished(account, messages, seconds)
    except Exception as error:  # noqa: BLE001 (whatever a strange reply makes LiteLLM raise, there is no answer)
        if isinstance(error, litellm.Timeout) and getattr(error, "litellm_response_headers", None) is None:
            return _unfinished(account, messages, seconds)
        return _fault(error, schema is not None)
    return _said(account, messages, reply)


def tokens(account: Account, messages: tuple[Message, ...]) -> int:
    """About how many tokens the messages have."""
    return litellm_client.count(account.model, [asdict(message) for message in messages])


def supports_schema(account: Account) -> bool:
    """Whether to send a schema: always to a stated endpoint, else where LiteLLM says so."""
    library = litellm_client.litellm()
    return account.base_url is not None or bool(library.supports_response_schema(account.model))


def _said(account: Account, messages: tuple[Message, ...], reply: Any) -> Completion | Fault:
    if not reply.choices:
        return Fault("the reply holds no answer", _usage(account, messages, reply, ""), again=True)
    choice = reply.choices[0]
    extra = getattr(choice.message, "provider_specific_fields", None) or {}
    refusal = extra.get("refusal") or getattr(choice.message, "refusal", None) or ""
    text, finish = choice.message.content or "", choice.finish_reason or "stop"
    if finish == "content_filter":
        refusal = refusal or "a content filter held the answer back"
    thoughts = str(getattr(choice.message, "reasoning_content", None) or extra.get("reasoning") or "")
    usage = _usage(account, messages, reply, thoughts + text)
    tools = [getattr(call.function, "name", None) or "" for call in getattr(choice.message, "tool_calls", None) or ()]
    model = str(reply.model or account.model)
    called = tuple(one_line(name, NAME) for name in tools)
    return Completion(text, finish, one_line(str(refusal), SHOWN), usage, model, thoughts, called)


def _usage(account: Account, messages: tuple[Message, ...], reply: Any, text: str) -> Usage:
    """As the reply says; counted here where it does not.

    Args:
        text: All that the model wrote, its thoughts included.
    """
    said = getattr(reply, "usage", None)
    given = max(said.prompt_tokens or 0, 0) if said else 0  # an endpoint may say anything
    # Some providers count a model's thoughts in the total alone.
    got = max(said.completion_tokens or 0, (said.total_tokens or 0) - given, 0) if said else 0
    if not given and not got:
        given, got = tokens(account, messages), litellm_client.count(account.model, text)
    return Usage(1, given, got, account.usd(given, got))


def _unfinished(account: Account, messages: tuple[Message, ...], seconds: float) -> Fault:
    """The fault of a request that was cut off. Its input is paid for; how much was written is unknown."""
    given = tokens(account, messages)
    usage = Usage(1, given, 0, account.usd(given, 0))
    return Fault(f"timeout: no answer within {seconds:.4g} s: raise timeout_seconds", usage, again=True)


def _fault(error: Exception, with_schema: bool) -> Fault:
    """An error in the endpoint's own words, without the library's. What was not answered is not paid for."""
    status = getattr(error, "status_code", None) or 500
    kind = type(error).__name__
    said, unread, _ = str(error).partition("Traceback (most recent call last)")  # LiteLLM's own, over the reply
    told = one_line(re.sub(r"^(?:litellm\.)?(?:\w+(?:Error|Timeout): )*(?:\w+Exception - )?", "", said), SHOWN)
    permanent = status < 500 and status not in TEMPORARY
    if kind == "ContextWindowExceededError":
        name = "the request is longer than the model's context"
    elif kind == "ContentPolicyViolationError":
        name = "a content filter refused the request"
    elif unread:
        name = "LiteLLM cannot read the form of the reply"
    else:
        name = PERMANENT.get(status) or TEMPORARY.get(status) or f"outage ({status})"
    return Fault(
        f"{name}: {told}",
        Usage(calls=1),
        again=not permanent,
        after=_retry_after(error),
        without_schema=with_schema and kind == "BadRequestError" and status in UNKNOWN_FORMAT,
    )


def _retry_after(error: Exception) -> float | None:
    """Seconds that the header Retry-After asks for, which states them or a date."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    stated = str(headers.get("retry-after", "")).strip()
    if re.fullmatch(r"\d+(\.\d+)?", stated):
        return float(stated)
    try:
        return max(email.utils.parsedate_to_datetime(stated).timestamp() - time.time(), 0.0)
    except ValueError:
        return None
