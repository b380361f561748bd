"""Ensemble: several language models under a bandit, which learns whose proposals are kept."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from environments.plugins import Refused
from tasks.llm.account import Account
from tasks.proposers import llm
from tasks.proposers._researcher import Researcher
from tasks.proposing.brief import Brief, Suggestion, Unavailable, Unusable
from tasks.trial import NOTHING_BOUGHT, History


class Ensemble(Researcher):
    """Thompson sampling over models: each has a Beta posterior of the share of its trials that are kept.

    A model whose answer was refused is not asked again for the same trial before the others were. One that is not
    available is passed over; the trial says which model made it.
    """

    models: tuple[str, ...] = ()
    """The models, instead of those of the block."""

    def accounts(self) -> tuple[Account, ...]:
        """The models that it may ask, each once. Refused when these are fewer than two."""
        single = [self.model_copy(update={"model": name}) for name in self.models] or [self]
        by_name = {account.model: account for one in single for account in Researcher.accounts(one)}
        if len(by_name) < 2:
            raise Refused(
                f"proposer ensemble needs two models or more, got {len(by_name)}: list them as `models`, or in a block"
            )
        return tuple(by_name.values())

    def propose(self, brief: Brief) -> Suggestion:
        by_name = {account.model: account for account in self.accounts()}
        turn = len(brief.refusals) % len(by_name)
        # The draw is one for the trial, the same in all turns of it, whose own seeds differ.
        number = max([trial.number for trial in brief.history] + list(brief.pending), default=0) + 1
        names = order(brief.history, by_name, random.Random(f"ensemble/{brief.campaign_seed}/{number}"))
        spent, gone = NOTHING_BOUGHT, []
        for name in names[turn:] + names[:turn]:
            try:
                made = llm.proposed(by_name[name], brief, brief, spent)
                return replace(made, usage=spent + made.usage)
            except Unavailable as unavailable:
                spent += unavailable.usage
                gone.append(str(unavailable))
            except Unusable as unusable:
                one = unusable.refusal
                raise Unusable(f"{name}: {one.reason}", one.text, spent + one.usage) from unusable
        raise Unavailable("no model is available: " + "; ".join(dict.fromkeys(gone)), spent)


def order(history: History, models: Iterable[str], draw: random.Random) -> list[str]:
    """The models in the order in which to ask them: by a draw from each one's Beta posterior, uniform at first."""
    shares: dict[str, float] = {}
    for model in models:
        kept = [trial.verdict.kind == "keep" for trial in history if trial.proposal.model == model]
        shares[model] = draw.betavariate(1 + sum(kept), 1 + len(kept) - sum(kept))
    return sorted(shares, key=lambda model: -shares[model])
