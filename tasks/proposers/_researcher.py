"""The base of all proposers that ask a language model.

They have no repair loop: an answer that is no suggestion comes back as a refusal in the next brief, and continues the
conversation. Their options or the saved block say which model is asked (tasks/llm/account.py).
"""

from __future__ import annotations

from typing import ClassVar

from tasks.llm.account import Account, ModelOptions, accounts, check
from tasks.llm.litellm_client import Message
from tasks.llm.prompts import render
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, RemainingBudget
from tasks.system.redact import quote

REASON_LINES = 40
"""Lines of a refusal's reason, the end of a program's log included."""
NOT_REPEATED = "(not repeated here)"
"""In place of an answer that is all thoughts, or too long to be sent back."""


class Researcher(Proposer, ModelOptions):
    """A proposer that asks a language model."""

    asks: ClassVar[bool] = True

    def accounts(self) -> tuple[Account, ...]:
        """The models that it may ask, in their order. Refused when none is stated."""
        return accounts(self)

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        for account in self.accounts():
            check(account, left)


def conversation(prompt: str, brief: Brief, shown: Brief, **more: object) -> tuple[Message, ...]:
    """The messages to a model: its role, the question about `shown`, and every refused answer with the reason."""
    messages = [Message("system", render("researcher", shown, **more)), Message("user", render(prompt, shown, **more))]
    for refusal in brief.refusals:
        if refusal.text or refusal.usage.calls:  # else no model has said anything
            reason = quote(refusal.reason, 400, REASON_LINES)
            said = refusal.text.encode(errors="replace").decode()  # half a character cannot be sent
            messages.append(Message("assistant", said or NOT_REPEATED))
            messages.append(Message("user", render("repair", shown, reason=reason, **more)))
    return tuple(messages)
