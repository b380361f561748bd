"""What a proposer is told and what it answers: the brief, the suggestion, and the two ways to fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from environments.space import Space
from tasks.trial import NOTHING_BOUGHT, History, Params, Proposal, Usage

Pending = Mapping[int, Proposal]
"""What is under way, proposed but not decided: the proposals by the numbers of their trials."""


@dataclass(frozen=True)
class Suggestion:
    """What a proposer wants to try, and why."""

    params: Params
    """Values for parameters of the space; the others stay at the baseline's."""
    rationale: str
    files: Mapping[str, str] | None = None
    """The whole new text of every editable file that changes, by name; None leaves the champion's program as it is."""
    category: str = ""
    """What kind of idea it is, in a word or two, such as `learning rate` or `network`; empty when it does not say."""
    text: str = ""
    """What was said, as it can be quoted back when the suggestion is refused; empty where nobody spoke."""
    usage: Usage = NOTHING_BOUGHT
    proposer: str = ""
    """The proposer that really made it, where one asked another; empty: the one that returns it."""
    model: str = ""
    """The language model or coding agent behind it; empty without one."""
    switch: str = ""
    """That the proposer has changed its way from this trial on, and why; empty when it has not."""


@dataclass(frozen=True)
class Refusal:
    """A suggestion for this very trial that was turned down before any compute."""

    reason: str
    """What is wrong with it."""
    text: str = ""
    """What the proposer had said."""
    proposer: str = ""
    """Who had made it."""
    usage: Usage = NOTHING_BOUGHT


class RejectedProposal(NamedTuple):
    """A proposal that a person would not have run."""

    number: int
    proposal: Proposal
    words: str
    """What was said to it."""


@dataclass(frozen=True)
class Problem:
    """What is to be improved, in words and files."""

    name: str = ""
    title: str = ""
    metric: str = ""
    higher_is_better: bool = True
    budget: str = ""
    """Of one training, such as `12 s on cpu`."""
    guards: tuple[str, ...] = ()
    """What else is measured and may not get much worse, a line each."""
    program_md: str = ""
    """The environment's own words (program.md); empty when it has none."""
    editable: tuple[str, ...] = ()
    required_calls: tuple[str, ...] = ()
    fixed: Params = field(default_factory=dict)
    """Parameters that every trial gets unchanged."""
    prompts: Path | None = None
    """A folder whose files stand before our own prompts of the same name; None without one."""


@dataclass(frozen=True)
class RemainingBudget:
    """What the campaign has left; None where nothing limits it."""

    trials: float | None = None
    seconds: float | None = None
    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Brief:
    """All that a proposer is told. The same brief must give the same suggestion, in any process."""

    space: Space
    history: History
    """Its first trial is the baseline. What all trials share can be drawn from `history[0].runs[0].seed`."""
    pending: Pending = field(default_factory=dict)
    seed: int = 0
    """The trial's own."""
    refusals: tuple[Refusal, ...] = ()
    """What was suggested for this trial so far, and why that cannot be tried."""
    problem: Problem = Problem()
    files: Mapping[str, str] = field(default_factory=dict)
    """The champion's editable files, by name; one that does not exist yet is not among them."""
    rejected: tuple[RejectedProposal, ...] = ()
    """What a person would not have run in this campaign."""
    earlier: History = ()
    """Trials of earlier campaigns in the same environment that one may learn from, in their order."""
    hint: Suggestion | None = None
    """What a numeric optimiser would try in its place; None where none was asked."""
    left: RemainingBudget = RemainingBudget()
    desk: Path | None = None
    """A folder of this trial's own for traces of what was asked and answered; None where nothing is kept."""

    @property
    def spent(self) -> Usage:
        """What the campaign has bought so far, for this trial too."""
        bought = [trial.proposal.usage for trial in self.history] + [one.usage for one in self.refusals]
        return sum(bought, NOTHING_BOUGHT)

    def beside(self, number: int, suggestion: Suggestion) -> Brief:
        """The same brief when a suggestion is under way as trial `number`."""
        proposal = Proposal(suggestion.params, rationale=suggestion.rationale, category=suggestion.category)
        return replace(self, pending={**self.pending, number: proposal}, seed=self.seed + 1)


class Unusable(Exception):
    """What came back is no suggestion: unparsable, against its schema, an edit that does not apply.

    It is worth asking again, with `refusal` in the brief.
    """

    def __init__(self, reason: str, text: str, usage: Usage) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, text, usage=usage)


class Unavailable(Exception):
    """Nothing came back, and asking again would not help now: no answer, no credit, a refusal, a spent limit."""

    def __init__(self, reason: str, usage: Usage = NOTHING_BOUGHT) -> None:
        super().__init__(reason)
        self.usage = usage
