"""The input and output of a proposer: the brief, the suggestion, and two exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from environments import Environment
from environments.earlier_trials import EarlierTrial
from environments.space import Space
from tasks.trial import NOTHING_BOUGHT, History, Params, Parked, Proposal, Usage, baseline, best

Pending = Mapping[int, Proposal]
NO_PROBLEM = Environment.model_construct(  # type: ignore[call-arg]  # without the rest
    name="", folder=Path("/nonexistent"), metric="", direction="maximize", budget_seconds=1.0
)
"""Of a brief that says nothing of its problem; for searches, which look at numbers alone."""


@dataclass(frozen=True)
class Suggestion:
    params: Params
    """Values for parameters of the space; the others stay at the baseline's."""
    rationale: str
    files: Mapping[str, str] | None = None
    """The whole new text of every editable file that changes, by name; None leaves the champion's program as it is."""
    category: str = ""
    """The kind of idea in a word or two, such as `learning rate` or `network`; may be empty."""
    text: str = ""
    """A model's own answer, quoted back when the suggestion is refused; empty without one."""
    usage: Usage = NOTHING_BOUGHT
    proposer: str = ""
    """The proposer that made it, where one asked another; empty: the one that returns it."""
    model: str = ""
    """The language model or coding agent behind it; empty without one."""
    switch: str = ""
    """Why the proposer changes its method from this trial on; empty when it does not."""
    expected: float | None = None
    """Change of the objective that it expects against the champion, in the metric's own units; None: it says none."""


@dataclass(frozen=True)
class Refusal:
    """A suggestion for this very trial that was turned down before any compute."""

    reason: str
    text: str = ""
    proposer: str = ""
    usage: Usage = NOTHING_BOUGHT


@dataclass(frozen=True)
class RemainingBudget:
    """The budget that a campaign has left; None where nothing limits it."""

    trials: float | None = None
    seconds: float | None = None
    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Brief:
    """The input of a proposer. The same brief must give the same suggestion, in any process."""

    space: Space
    history: History
    """The decided trials, the baseline among them."""
    pending: Pending = field(default_factory=dict)
    seed: int = 0
    refusals: tuple[Refusal, ...] = ()
    problem: Environment = NO_PROBLEM
    files: Mapping[str, str] = field(default_factory=dict)
    """The champion's editable files that exist, by name."""
    rejected: tuple[Parked, ...] = ()
    """The proposals that a person turned down."""
    earlier: History = ()
    """Trials of earlier campaigns in the same environment (`--learn-from`), in their order."""
    imported: tuple[EarlierTrial, ...] = ()
    """Trials of another tool (environments/earlier_trials.py), in their order; measured there, never here."""
    left: RemainingBudget = RemainingBudget()
    keep_rule: str = ""
    """When a trial is kept, in words, with the threshold as of now."""
    traces: Path | None = None

    @property
    def campaign_seed(self) -> int:
        """The same for all trials of a campaign: the seed of the baseline's first run."""
        first = baseline(self.history)
        return first.runs[0].seed if first else 0

    @property
    def ranked(self) -> list[tuple[int, EarlierTrial]]:
        """The imported trials with their numbers, from 1: best first, and last those without a score."""
        sign = -1.0 if self.problem.higher_is_better else 1.0
        return sorted(enumerate(self.imported, 1), key=lambda one: (one[1].score is None, sign * (one[1].score or 0.0)))

    @property
    def start(self) -> Params:
        """Where a proposal starts: the champion's value of every parameter of the space, or else its default."""
        champion = best(self.history)
        params = champion.proposal.params if champion else {}
        return {name: params.get(name, one.default) for name, one in self.space.items()}


class Unusable(Exception):
    """The answer is no suggestion, such as an edit that does not apply: ask again, with `refusal` in the brief."""

    def __init__(self, reason: str, text: str, usage: Usage) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, text, usage=usage)


class Unavailable(Exception):
    """There is no answer, and asking again would not help now: no credit, a refusal, a spent limit."""

    def __init__(self, reason: str, usage: Usage = NOTHING_BOUGHT) -> None:
        super().__init__(reason)
        self.usage = usage
