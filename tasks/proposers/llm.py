"""LLM: a language model reads the history and proposes parameters within the space."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from tasks.llm.account import Account
from tasks.llm.answers import Misread, ideas
from tasks.llm.chat import ask, recorded
from tasks.proposers._researcher import Researcher, conversation
from tasks.proposing.brief import Brief, Suggestion, Unusable
from tasks.trial import NOTHING_BOUGHT, Usage


class Llm(Researcher):
    """Parameters by a language model, which reads the problem, the champion and the outcome of every trial.

    What it does not state stays at the champion's value. An answer with values that the space does not
    take is refused with every fault in it.
    """

    batch: int = Field(default=1, ge=1, le=100)
    """Trials that one answer proposes: the next ones take theirs from it, and nobody is asked, as for trials that run
    side by side."""

    def propose(self, brief: Brief) -> Suggestion:
        account = self.accounts()[0]
        return self._left_over(account, brief) or proposed(account, brief, brief, count=self.batch)

    def _left_over(self, account: Account, brief: Brief) -> Suggestion | None:
        """The next proposal of the newest answer, which was bought with an earlier trial; None when there is none.

        One that cannot be tried comes back as a refusal, and the model is asked.
        """
        if self.batch == 1 or brief.traces is None or brief.refusals:
            return None
        made = {trial.number: trial.proposal for trial in brief.history} | dict(brief.pending)
        made |= {one.number: one.proposal for one in brief.rejected}
        by_it = [number for number, proposal in made.items() if proposal.model == account.model]
        bought = max((number for number in by_it if made[number].usage.calls), default=0)
        answers = [one for one in recorded(brief.traces.with_name(f"{bought:04d}")) if one.finish]
        if not answers:
            return None
        taken = sum(number >= bought for number in by_it)
        try:
            parsed = ideas(answers[-1].text, brief)
        except Misread:  # it was an edit, or another proposer's
            return None
        return replace(parsed[taken], model=account.model) if taken < len(parsed) else None


def proposed(
    account: Account, brief: Brief, shown: Brief, bought: Usage = NOTHING_BOUGHT, count: int = 1
) -> Suggestion:
    """Parameters as one model proposes them; what it does not state stays as the champion of `shown` has it.

    `count`: proposals to ask for in one answer, of which this is the first.
    """
    messages = conversation("parameters", brief, shown, count=count)
    answer = ask(account, messages, brief, bought=bought)
    try:
        first, *_ = ideas(answer.text, shown)
    except Misread as wrong:
        raise Unusable(str(wrong), answer.text, answer.usage) from wrong
    return replace(first, usage=answer.usage, model=account.model)
