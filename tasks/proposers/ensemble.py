"""Ensemble: several language models under a bandit, which learns whose proposals are kept."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from environments.plugins import Refused
from tasks.llm.account import Account
from tasks.proposers import llm, llm_diff
from tasks.proposers._researcher import Researcher
from tasks.proposers.llm_diff import Form
from tasks.proposing.brief import Brief, Suggestion, Unavailable, Unusable
from tasks.trial import NOTHING_BOUGHT, History, Usage


class Ensemble(Researcher):
    """Thompson sampling over models: each has a Beta posterior of the share of its trials that are kept.

    A model whose answer was refused is not asked again for the same trial before the others were. One that is not
    available is passed over; the trial says which model made it.
    """

    models: tuple[str, ...] = ()
    """The models, instead of those of the block."""
    what: Literal["llm", "llm_diff"] = "llm"
    """The proposer they take part in: parameters, or edits of the program."""
    form: Form = "search_replace"
    """The format of edits."""

    @property
    def edits(self) -> bool:  # type: ignore[override]
        return self.what == "llm_diff"

    def accounts(self) -> tuple[Account, ...]:
        """The models that it may ask, each once.

        Raises:
            Refused: fewer than two.
        """
        if not self.models:
            return _at_least_two(super().accounts())
        single = [self.model_copy(update={"model": name, "models": ()}) for name in self.models]
        return _at_least_two(account for one in single for account in Researcher.accounts(one))

    def propose(self, brief: Brief) -> Suggestion:
        known = {account.model: account for account in self.accounts()}
        turn = len(brief.refusals) % len(known)
        drawn = order(records(brief.history, known), _draw_of(brief))
        spent, gone = NOTHING_BOUGHT, []
        for name in drawn[turn:] + drawn[:turn]:
            try:
                found = self._proposed(known[name], brief, spent)
            except Unavailable as unavailable:
                spent += unavailable.usage
                gone.append(str(unavailable))
            except Unusable as unusable:
                one = unusable.refusal
                raise Unusable(f"{name}: {one.reason}", one.text, spent + one.usage) from unusable
            else:
                return replace(found, usage=spent + found.usage)
        raise Unavailable("no model is available: " + "; ".join(dict.fromkeys(gone)), spent)

    def _proposed(self, account: Account, brief: Brief, bought: Usage) -> Suggestion:
        if self.what == "llm":
            return llm.proposed(account, brief, brief, bought)
        return llm_diff.proposed(account, brief, brief, self.form, bought)


@dataclass(frozen=True)
class Record:
    """The outcomes of one model's trials."""

    kept: int = 0
    others: int = 0
    """Discarded, cancelled or crashed."""


def records(history: History, models: Iterable[str]) -> dict[str, Record]:
    """The record of each model, by name."""
    return {
        model: Record(
            sum(trial.verdict.kind == "keep" for trial in history if trial.proposal.model == model),
            sum(trial.verdict.kind != "keep" for trial in history if trial.proposal.model == model),
        )
        for model in models
    }


def order(known: Mapping[str, Record], draw: random.Random) -> list[str]:
    """The models in the order in which to ask them: by a draw from each one's Beta posterior, uniform at first."""
    shares = {model: draw.betavariate(1 + one.kept, 1 + one.others) for model, one in known.items()}
    return sorted(shares, key=lambda model: -shares[model])


def _draw_of(brief: Brief) -> random.Random:
    """One for the trial: the same in all turns of it, whose own seeds differ."""
    campaign = brief.history[0].runs[0].seed if brief.history and brief.history[0].runs else 0
    taken = max([trial.number for trial in brief.history] + list(brief.pending), default=0)
    return random.Random(f"ensemble/{campaign}/{taken + 1}")


def _at_least_two(found: Iterable[Account]) -> tuple[Account, ...]:
    accounts = tuple({account.model: account for account in found}.values())
    if len(accounts) < 2:
        raise Refused(
            f"proposer ensemble needs two models or more, got {len(accounts)}: list them in the block, or as `models`"
        )
    return accounts
