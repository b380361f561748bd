"""The values that travel: Proposal, Run, Verdict, Trial. Frozen, plain, without Prefect or torch.

A campaign's whole memory is its *history*: a tuple of trials in the order in which they were decided. Everything
else is computed from it, so resume, retry and replay are one thing. A trial that was run again is in it once, at the
place of its newest attempt; so the baseline need not be the first, nor numbers increase.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from environments.score import Score

Value = int | float | str | bool
Params = dict[str, Value]
TIMES = ("seconds", "usage")

VerdictKind = Literal["keep", "discard", "cancelled", "crash"]
Level = Literal["provisional", "confirmed", "certified"]  # `confirmed`: in campaigns of version 0.6


@dataclass(frozen=True)
class Usage:
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    """None if the price of a model is unknown."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        tokens = self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        return Usage(self.calls + other.calls, *tokens, usd)


NOTHING_BOUGHT = Usage()


@dataclass(frozen=True)
class Proposal:
    params: Params
    """A value for every parameter of the environment, fixed ones included."""
    edit: str | None = None
    """A unified diff of the editable files against the baseline's program, in git's format; None without a change."""
    rationale: str = ""
    parent: int | None = None
    """The trial whose program this one starts from; None for the baseline."""
    seen: int = 0
    """The proposer knew what was decided before this place in the order of the decisions."""
    proposer: str = "baseline"
    """The proposer that made it; it may differ from the one that was asked."""
    usage: Usage = NOTHING_BOUGHT
    """Use of language models for this proposal, unusable answers included."""
    model: str = ""
    """The language model or coding agent behind it; empty without one."""
    category: str = ""
    instead_of: str = ""
    """Who was asked and failed, and why, if the fallback proposed."""
    turned_down: tuple[str, ...] = ()
    """Why earlier suggestions for this trial were refused, in order."""
    switch: str = ""
    """That the proposer changed its strategy from this trial on, and why; empty if it did not."""
    seconds: float = 0.0
    inbox: str = ""
    """Name of the inbox proposal that it came from; empty if it came from a proposer."""
    expected: float | None = None
    """Change of the objective that its proposer expects against the champion that it knew; None if it does not say."""


@dataclass(frozen=True)
class Parked:
    """A proposal that waits for a person, or has waited (tasks/store/approval.py)."""

    number: int
    proposal: Proposal
    until: float
    """Unix time, in seconds; without an answer by then it is rejected."""
    flow_run_id: str | None = None
    """The flow run that shows the form in Prefect; None without one."""
    state: Literal["waiting", "approved", "rejected"] = "waiting"
    comment: str = ""

    @property
    def words(self) -> str:
        return f"{self.state}: {self.comment}" if self.comment else self.state


Curve = tuple[float | None, ...]
"""A metric as last reported at each twentieth of the budget, as far as the run got; None before the first report."""
TWENTIETHS = 20


@dataclass(frozen=True)
class ResourceSample:
    elapsed: float
    cpu: float
    memory: int
    gpu_memory: tuple[int, ...] = ()
    """Memory in use on each GPU of its slot, in bytes; empty if not measured."""


@dataclass(frozen=True)
class EarlyStop:
    """An early stop that was due (tasks/cancellers)."""

    fraction: float
    """Share of the budget that had passed."""
    reason: str


@dataclass(frozen=True)
class Run:
    """One training of one proposal: how it ended, never how good it is."""

    dir: str
    """The trial's directory, relative to the campaign's."""
    seed: int
    seconds: float
    """Training time on the parent's clock, from ready to the end."""
    status: Literal["finished", "cancelled", "crash"]
    error: str | None = None
    """Why it crashed, with the last lines of its log; None otherwise."""
    peak_memory: int | None = None
    """Largest resident set of all its processes together, in bytes, sampled twice a second."""
    steps: int | None = None
    """Steps as last reported by the program: a claim, not a measurement."""
    started: float = 0.0
    """Unix time of the start, in seconds."""
    wall_seconds: float = 0.0
    """Seconds from the start of the process to the end of its last process."""
    reported: float | None = None
    """Last finite value reported of the objective's metric: a claim, never a score."""
    startup: float | None = None
    """Seconds from its start to its `ready` line; None without one."""
    isolation: str = ""
    """Isolation level (tasks/sandbox/isolation.py); empty if nothing was started."""
    program: str | None = None
    """Digest of the program's files after the edit, without its configuration."""
    checkpoint: str | None = None
    """Digest of the files that it left, without the progress; None if there are none."""
    curve: Curve = ()
    """The objective's metric as reported on the way: a claim, compared with other claims only."""
    due: EarlyStop | None = None
    machine: str = ""
    """The machine that it ran on (tasks.store.ledger.machine); empty if not recorded."""
    job: str = ""
    """The Slurm job that it ran in; empty outside of one."""
    resources: tuple[ResourceSample, ...] = ()
    """Samples at equal distances, at most tasks.sandbox.program.MOST_SAMPLES; empty if not recorded."""
    usd: float | None = 0.0
    """What its trainer paid for a rented machine, in USD; 0 where none was rented, None if the price is unknown."""
    note: str = ""
    """A sentence in which the program says what to know of its result; empty without one."""


@dataclass(frozen=True)
class Rerun:
    """A fresh training of a trial, under its own seeds."""

    of: int
    """Number of the trial whose program and parameters ran again."""
    run: Run
    score: Score
    """On units that the search has not seen."""


NO_CONTROL = "not controlled: the baseline trains for so short a time that no program can be stopped in it"
"""Why there is no score without training."""


@dataclass(frozen=True)
class UntrainedControl:
    """What a trial's program scores without training (tasks/control.py)."""

    score: Score
    """Score of the trial's own program; missing if it left nothing to judge."""
    unedited: Score | None = None
    """Score of the environment's program instead, needed when an edited one left nothing."""


@dataclass(frozen=True)
class Verdict:
    kind: VerdictKind
    reason: str
    level: Level | None = None
    """How well a keep is supported; None for other verdicts."""
    evidence: dict[str, float | None] = field(default_factory=dict)
    """Scores on which it rests: `champion`, the champion's, and `untrained`, its own without training."""


@dataclass(frozen=True)
class Trial:
    number: int
    """0 is the baseline."""
    attempt: int
    order: Annotated[int, Field(validation_alias=AliasChoices("order", "settle"))]
    """Its place in the order of the decisions, which only grows; `settle` in campaigns of version 0.6."""
    proposal: Proposal
    runs: tuple[Run, ...]
    """One per training seed."""
    score: Score
    """Over all of its runs."""
    verdict: Verdict
    wall_seconds: float = 0.0
    """Seconds from its first training to its verdict, without waits for a slot or in a queue."""
    reruns: tuple[Rerun, ...] = ()
    """Reruns that its verdict needed; in campaigns of version 0.6 also of the champion."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What its programs say of their results, marked so that nobody takes an edited program's words for the
        engine's.
        """
        return tuple(dict.fromkeys(f"the program says: {run.note}" for run in self.runs if run.note))

    @property
    def cost(self) -> float | None:
        """Cost in USD of language models and rented machines. None if a part is unknown, or nothing was bought."""
        runs = (*self.runs, *(rerun.run for rerun in self.reruns))
        parts = [self.proposal.usage.usd, *(run.usd for run in runs)]
        if None in parts:
            return None
        return math.fsum(part or 0.0 for part in parts) if self.proposal.usage.calls or any(parts) else None

    @cached_property
    def decided(self) -> str:
        """The decision as JSON: proposal, scores and verdict, without times. Cached: every later key needs it."""
        proposal = {key: value for key, value in asdict(self.proposal).items() if key not in TIMES}
        reruns = ((rerun.of, rerun.score.value) for rerun in self.reruns)
        seen = (self.number, self.attempt, self.order, proposal, self.score.value, self.verdict.kind, *reruns)
        return json.dumps(seen, sort_keys=True)


History = tuple[Trial, ...]


def baseline(history: History) -> Trial | None:
    """Trial 0, with the environment's own program and parameters; None before it is decided."""
    return next((trial for trial in history if trial.number == 0), None)


def best(history: History) -> Trial | None:
    """The champion: the latest keep, since each keep replaces the one before; None while there is none."""
    return next((trial for trial in reversed(history) if trial.verdict.kind == "keep"), None)


def budgets_used(history: History) -> float:
    """Number of trials without the baseline, in whole budgets: stopped ones count by the part that ran."""
    tried = [trial for trial in history if trial.number > 0]
    stopped = (trial.runs[0].due for trial in tried if trial.verdict.kind == "cancelled")
    return len(tried) - sum(1 - due.fraction for due in stopped if due)


def machine_of(history: History) -> str:
    """The machine of the newest trial with a score; empty if there is none or it is not recorded."""
    scored = (trial for trial in reversed(history) if trial.score.value is not None and trial.runs)
    return next((trial.runs[-1].machine for trial in scored), "")


def machines_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """The kinds of machine that runs are from, in order of their names; those that were not recorded are left out."""
    return tuple(sorted({run.machine for run in runs} - {""}))


def measured(history: History, number: int) -> tuple[Score, ...]:
    """Every score of a trial's program and parameters, one per training run, reruns last."""
    return measured_each(history).get(number, ())


def measured_each(history: History) -> dict[int, tuple[Score, ...]]:
    """The same of every trial, by number."""
    every = {trial.number: _of_runs(trial.score) for trial in history}
    for rerun in (rerun for trial in history for rerun in trial.reruns if rerun.of in every):
        every[rerun.of] += _of_runs(rerun.score)
    return every


def _of_runs(score: Score) -> tuple[Score, ...]:
    """The score of each run; runs of a baseline without one are left out."""
    return tuple(one for one in score.each if one.value is not None or score.value is None)
