"""The base of all proposers that ask a language model.

They have no repair loop: an answer that is no suggestion comes back as a refusal in the next brief, and continues the
conversation. Their options or the saved block say which model is asked (tasks/llm/account.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from tasks.llm.account import Account, ModelOptions, accounts, check
from tasks.llm.answers import ParsedAnswer, without_thoughts
from tasks.llm.chat import Answer, Message, ask
from tasks.llm.prompt_parts import start, told
from tasks.llm.prompts import render
from tasks.llm.quotes import data
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion, Unusable
from tasks.trial import Params, Usage

N = TypeVar("N", int, float)

REASON_LINES = 40
"""Lines of a refusal's reason, the end of a program's log included."""
CUT_OFF = "the answer was cut off at the limit of output tokens: be brief, and answer as a whole"


class Researcher(Proposer, ModelOptions):
    """A proposer that asks a language model."""

    asks: ClassVar[bool] = True

    def accounts(self) -> tuple[Account, ...]:
        """The models that it may ask, in their order.

        Raises:
            Refused: none is stated.
        """
        return accounts(self)

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        for account in self.accounts():
            usd, tokens = _least(account.max_usd, left.usd), _least(account.max_tokens, left.tokens)
            check(account.model_copy(update={"max_usd": usd, "max_tokens": tokens}))


def _least(*limits: N | None) -> N | None:
    """The lowest of the limits that there are."""
    return min((limit for limit in limits if limit is not None), default=None)


def conversation(prompt: str, brief: Brief, shown: Brief, **more: object) -> tuple[Message, ...]:
    """The messages to a model: its role, the question, and every refused answer with the reason.

    Args:
        prompt: Name of the prompt that asks.
        shown: The brief as far as the model may know it.
        more: Further values of the prompt.
    """
    folder, parts = brief.problem.prompts, {"problem": brief.problem, "told": told(shown), **more}
    messages = [Message("system", render("researcher", folder, **parts))]
    messages.append(Message("user", render(prompt, folder, **parts)))
    for refusal in brief.refusals:
        if refusal.text:  # else there is no answer to continue from
            reason = data(refusal.reason, REASON_LINES, width=400)
            messages.append(Message("assistant", refusal.text))
            messages.append(Message("user", render("repair", folder, reason=reason, **parts)))
    return tuple(messages)


def asked(
    account: Account,
    messages: tuple[Message, ...],
    brief: Brief,
    bought: Usage,
    schema: dict[str, Any] | None = None,
) -> Answer:
    """The model's answer without its thoughts.

    Args:
        bought: The usage of other models for this suggestion.

    Raises:
        Unusable: it was cut off.
        Unavailable: there is none.
    """
    answer = ask(account, messages, brief, schema, bought=bought)
    answer = replace(answer, text=without_thoughts(answer.text))
    if answer.finish == "length":
        raise Unusable(CUT_OFF, answer.text, answer.usage)
    return answer


def suggestion(
    idea: ParsedAnswer, shown: Brief, account: Account, usage: Usage, files: dict[str, str] | None = None
) -> Suggestion:
    """An idea as a suggestion: what it does not state stays at the champion's."""
    params: Params = {**start(shown), **idea.params}
    return Suggestion(
        params, idea.rationale, files or None, idea.category, idea.text, usage, model=account.model
    )
