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
from tasks.system.redact import without_passwords
from tasks.trial import NOTHING_BOUGHT, Usage

__all__ = ["PATIENCE", "Answer", "Message", "Patience", "ask"]


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
        patience: None for the module's PATIENCE.

    Raises:
        Unavailable: there is no answer; the reason says why, and the usage what it took all the same.
        KeyboardInterrupt: this process is asked to end.
    """
    asked = trace.asked(account, tuple(messages), schema, brief)
    if known := trace.answered(brief.traces, asked):
        return known
    litellm_client.litellm()  # what loading it takes is not the model's time
    talk = _Talk(account, asked, brief, bought, patience or PATIENCE)
    try:
        answer = talk.run()
    except Unavailable as why:
        trace.keep(brief.traces, asked, tuple(talk.attempts), None, str(why), why.usage)
        raise
    trace.keep(brief.traces, asked, tuple(talk.attempts), answer, "", answer.usage)
    return answer


class _Talk:
    """The tries of one request."""

    def __init__(
        self, account: Account, asked: RecordedRequest, brief: Brief, bought: Usage, patience: Patience
    ) -> None:
        self._account, self._asked, self._brief, self._bought = account, asked, brief, bought
        self._patience = patience
        self._end = time.monotonic() + account.timeout_seconds
        self.attempts: list[Attempt] = []

    @property
    def usage(self) -> Usage:
        return sum((attempt.usage for attempt in self.attempts), NOTHING_BOUGHT)

    def run(self) -> Answer:
        schema = self._asked.schema
        if schema is not None and not request.supports_schema(self._account):
            schema = None
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
        error = outcome.reason if isinstance(outcome, Fault) else _lacking(outcome, self._account)
        model = outcome.model if isinstance(outcome, Completion) else ""
        seconds = round(time.monotonic() - began, 3)
        self.attempts.append(Attempt(seconds, schema is not None, outcome.usage, error, model))
        if isinstance(outcome, Completion) and outcome.refusal:
            raise self._unavailable(error)
        return outcome

    def _pause(self, fault: Fault, pauses: list[float]) -> None:
        """Wait before the next try; there is none when waiting does not help, or takes longer than is left."""
        left = self._end - time.monotonic()
        if not fault.again or not pauses or left < NO_TIME:
            raise self._unavailable(fault.reason)
        pause = pauses.pop(0)
        if fault.after is not None:
            pause = fault.after
        if pause > self._patience.longest:
            raise self._unavailable(f"{fault.reason} (it asks us to wait {pause:.0f} s)")
        if pause >= left:
            raise self._unavailable(
                f"{fault.reason} (no time is left of {self._account.timeout_seconds:g} s)"
            )
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
        given, got = request.tokens(account, self._asked.messages), account.max_output_tokens
        most = Usage(1, given, got, account.usd(given, got))
        turned_down = sum((refusal.usage for refusal in self._brief.refusals), NOTHING_BOUGHT)
        here = self._bought + self.usage
        campaign, trial = self._brief.spent + here, turned_down + here
        for limit, name, spent in (
            (account.max_tokens, "max_tokens", campaign),
            (left.tokens, "tokens left to the campaign", trial),
        ):
            if limit is not None and spent.tokens + most.tokens > limit:
                raise self._unavailable(_passed(name, f"{limit:,}", f"{spent.tokens:,}", f"{most.tokens:,}"))
        for usd, name, spent in (
            (account.max_usd, "max_usd", campaign),
            (left.usd, "USD left to the campaign", trial),
        ):
            if usd is None:
                continue
            if most.usd is None or spent.usd is None:
                raise self._unavailable(f"{name} = {usd:.4g} cannot be kept, since not every price is known")
            if spent.usd + most.usd > usd:
                raise self._unavailable(_passed(name, f"{usd:.4g}", f"{spent.usd:.4g}", f"{most.usd:.4g}"))


def _passed(name: str, limit: str, spent: str, most: str) -> str:
    return f"the limit is reached: {name} = {limit}, {spent} spent, and one more answer may take {most}"


def _lacking(said: Completion, account: Account) -> str:
    """The fault of an answer; empty without one."""
    if said.refusal:
        return f"refused: {said.refusal}"
    if said.text.strip():
        return ""
    if said.finish == "length":
        return f"no answer within max_output_tokens = {account.max_output_tokens}: raise it"
    return "an empty answer"
