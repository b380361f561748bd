"""Requests to a language model, with retries, spending limits and a trace.

Retries happen here alone; the libraries below are told not to. Every try counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.llm import litellm_client, request, trace
from tasks.llm.account import Account
from tasks.llm.request import Completion, Fault, Message
from tasks.llm.trace import Answer, Attempt, RecordedRequest
from tasks.proposing.brief import Brief, Unavailable
from tasks.system import interrupt
from tasks.system.redact import capped, without_passwords
from tasks.trial import NOTHING_BOUGHT, Usage

__all__ = ["Answer", "Message"]


@dataclass(frozen=True)
class Patience:
    """Retries: how often, and after which pauses."""

    pauses: tuple[float, ...] = (1.0, 4.0, 15.0)
    """Seconds before the second try, the third ...; after the last there is no other."""
    longest: float = 120.0
    """Seconds that an endpoint may ask us to wait; beyond them we do not."""
    empty: int = 1
    """Retries after an empty answer."""


PATIENCE = Patience()
THOUGHTS = 20_000
"""Characters of a model's thoughts that its trace keeps."""
NO_TIME = 0.05
"""Seconds that must be left for another try."""


def ask(
    account: Account,
    messages: Sequence[Message],
    brief: Brief,
    schema: dict[str, Any] | None = None,
    *,
    bought: Usage = NOTHING_BOUGHT,
    patience: Patience | None = None,
) -> Answer:
    """The model's answer to these messages.

    An answer that was cut at the limit of output tokens is an answer, with `finish == "length"`. One that this trial
    has had already (the same request at `brief.traces`, under the same seed and after as many refusals) is not bought
    again: the same brief gives the same answer.

    The limits hold before each try, for the largest answer that it may bring. Those of the account are compared with
    all that the campaign has bought, `brief.spent`; `brief.left` is what was left when this trial's turn began, so of
    `brief.spent` only what `brief.refusals` cost is taken off it.

    Args:
        schema: JSON schema of the answer, sent where the endpoint takes one. The answer is not checked against it.
        bought: what this suggestion has cost so far, and the brief does not know of.

    Raises:
        Unavailable: there is no answer; the reason says why, and the usage what it took all the same.
        KeyboardInterrupt: this process is asked to end.
    """
    limit, turn = account.answer_tokens, len(brief.refusals)
    asked = RecordedRequest(
        *(account.model, account.base_url, tuple(messages), schema, account.temperature, limit, turn, brief.seed)
    )
    if known := trace.answered(brief.traces, asked):
        return known
    litellm_client.litellm()  # what loading it takes is not the model's time
    talk = _Talk(account, asked, brief, bought, patience or PATIENCE)
    try:
        answer = talk.run()
    except Unavailable as why:
        trace.keep(brief.traces, asked, tuple(talk.attempts), None, str(why))
        raise
    trace.keep(brief.traces, asked, tuple(talk.attempts), answer, "")
    return answer


def _nothing(reply: Completion, most: int) -> str:
    """Why a reply without a text is no answer."""
    if reply.called:
        return f"it called {', '.join(reply.called)} in place of an answer, and no tools are offered"
    where = ", all of it spent on thoughts" if reply.thoughts else ""
    if reply.finish == "length":
        return f"no answer within max_output_tokens = {most}{where}: raise it"
    return "thoughts, and no answer after them" if reply.thoughts else "an empty answer"


@dataclass
class _Talk:
    """The tries of one request."""

    _account: Account
    _asked: RecordedRequest
    _brief: Brief
    _bought: Usage
    _patience: Patience

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self._account.answer_seconds
        self.attempts: list[Attempt] = []

    @property
    def usage(self) -> Usage:
        return sum((attempt.usage for attempt in self.attempts), NOTHING_BOUGHT)

    def run(self) -> Answer:
        schema = self._asked.schema if request.supports_schema(self._account) else None
        pauses, empty = list(self._patience.pauses), 0
        while True:
            outcome = self._try(schema)
            if isinstance(outcome, Completion) and outcome.text.strip():
                return Answer(outcome.text, self.usage, self._account.model, outcome.finish)
            if isinstance(outcome, Completion):
                empty += 1
                if empty > self._patience.empty or outcome.finish == "length":
                    raise self._unavailable(self.attempts[-1].error)
            elif outcome.without_schema:
                schema = None
            else:
                self._pause(outcome, pauses)

    def _try(self, schema: dict[str, Any] | None) -> Completion | Fault:
        self._afford()
        began = time.monotonic()
        outcome = request.send(self._account, self._asked.messages, schema, max(self._end - began, 0.01))
        if isinstance(outcome, Fault):
            error = outcome.reason
        elif outcome.refusal:
            error = f"refused: {outcome.refusal}"
        elif outcome.text.strip():
            error = ""
        else:
            error = _nothing(outcome, self._account.answer_tokens)
        model = outcome.model if isinstance(outcome, Completion) else ""
        seconds = round(time.monotonic() - began, 3)
        thoughts = outcome.thoughts if isinstance(outcome, Completion) else ""
        attempt = Attempt(seconds, schema is not None, outcome.usage, error, model, capped(thoughts, THOUGHTS))
        self.attempts.append(attempt)
        if isinstance(outcome, Completion) and outcome.refusal:
            raise self._unavailable(error)
        return outcome

    def _pause(self, fault: Fault, pauses: list[float]) -> None:
        """Wait before the next try; there is none when waiting does not help, or takes longer than is left."""
        left = self._end - time.monotonic()
        if not fault.again or not pauses or left < NO_TIME:
            raise self._unavailable(fault.reason)
        stated = pauses.pop(0)
        pause = stated if fault.after is None else fault.after
        if pause > self._patience.longest:
            raise self._unavailable(f"{fault.reason} (it asks us to wait {pause:.0f} s)")
        if pause >= left:
            raise self._unavailable(f"{fault.reason} (no time is left of {self._account.answer_seconds:g} s)")
        interrupt.wait(pause)

    def _unavailable(self, reason: str) -> Unavailable:
        tries = len(self.attempts)
        where = f" at {without_passwords(self._account.base_url)}" if self._account.base_url else ""
        often = f" after {tries} tries" if tries > 1 else ""
        return Unavailable(f"{self._account.model}{where}{often}: {reason}", self.usage)

    def _afford(self) -> None:
        """Check that no limit would be passed by the longest possible answer."""
        account, left = self._account, self._brief.left
        if {account.max_usd, account.max_tokens, left.usd, left.tokens} == {None}:
            return
        given, got = request.tokens(account, self._asked.messages), account.answer_tokens
        most = Usage(1, given, got, account.usd(given, got))
        turned_down = sum((refusal.usage for refusal in self._brief.refusals), NOTHING_BOUGHT)
        here = self._bought + self.usage
        campaign, trial = self._brief.spent + here, turned_down + here
        for limit, name, spent, more, form in (
            (account.max_tokens, "max_tokens", campaign.tokens, most.tokens, ","),
            (left.tokens, "tokens left to the campaign", trial.tokens, most.tokens, ","),
            (account.max_usd, "max_usd", campaign.usd, most.usd, ".4g"),
            (left.usd, "USD left to the campaign", trial.usd, most.usd, ".4g"),
        ):
            if limit is None:
                continue
            if spent is None or more is None:
                raise self._unavailable(f"{name} = {limit:.4g} cannot be kept, since not every price is known")
            if spent + more > limit:
                raise self._unavailable(
                    f"the limit is reached: {name} = {limit:{form}}, {spent:{form}} spent, and one more answer may "
                    f"take {more:{form}}"
                )
