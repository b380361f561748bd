"""The values that travel: Proposal, Run, Verdict, Trial. Frozen, plain, without Prefect or torch.

A campaign's whole memory is its *history*: a tuple of trials in the order in which they were decided. Everything
else (champion, streaks, shares) is computed from it, so resume, retry and replay are one thing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal

from environments.score import Score

Value = int | float | str | bool
Params = dict[str, Value]
TIMES = ("seconds", "usage")
"""What a proposal took to come by, which is no part of what it is."""

VerdictKind = Literal["keep", "discard", "cancelled", "crash"]
Level = Literal["provisional", "confirmed", "certified"]


@dataclass(frozen=True)
class Usage:
    """What language models were asked, and what that took."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    """None when the price of a model is not known."""

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
    """What to try next, and why."""

    params: Params
    """A value for every parameter of the environment, the fixed ones included."""
    edit: str | None = None
    """A unified diff of the editable files against the baseline's program, as git makes it; None without a change."""
    rationale: str = ""
    parent: int | None = None
    """The trial whose program this one starts from; None for the baseline."""
    seen: int = 0
    """How many decided trials the proposer knew."""
    pending: tuple[int, ...] = ()
    """Trials that were under way, proposed but not decided, when this one was proposed."""
    proposer: str = "baseline"
    """The proposer that made it, which need not be the one that was asked."""
    usage: Usage = NOTHING_BOUGHT
    """All that was bought for it, answers included that could not be used."""
    model: str = ""
    """The language model or coding agent behind it; empty without one."""
    category: str = ""
    """What kind of idea it is, in a word or two; empty when its proposer does not say."""
    instead_of: str = ""
    """Who was asked and could not propose, and why, when another proposer took the turn; empty otherwise."""
    turned_down: tuple[str, ...] = ()
    """Why what was suggested for this trial before could not be tried, in the order in which it came."""
    switch: str = ""
    """That the proposer has changed its way from this trial on, and why; empty when it has not."""
    seconds: float = 0.0
    """What it took to come by, in seconds."""
    inbox: str = ""
    """Which idea of the campaign's inbox it is; empty when it came from a proposer."""

    @property
    def cost(self) -> float | None:
        """What it cost in USD; None when that is unknown, or nothing was bought."""
        return self.usage.usd if self.usage.calls else None


Curve = tuple[float | None, ...]
"""A metric as last reported when each twentieth of the budget had passed, as far as a run got; None before a report."""
TWENTIETHS = 20


@dataclass(frozen=True)
class Due:
    """An early end that was due: what a canceller said of a run, and when (tasks/cancellers)."""

    fraction: float
    """Of the budget that had passed."""
    reason: str
    spared: bool = False
    """Whether it ran to its end all the same: one in ten does, so that it shows what cancelling costs."""


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
    """Largest resident set of all of its processes together, in bytes, sampled twice a second."""
    gpu_memory: tuple[int, ...] | None = None
    """Most memory in use of each GPU of its slot, in its order, in bytes (tasks/machine/gpu_memory.py); None: not
    measured."""
    steps: int | None = None
    """Steps as last reported by the program; a claim, not a measurement."""
    started: float = 0.0
    """Unix time of the start, in seconds."""
    wall_seconds: float = 0.0
    """Everything from the start of the process to the end of the last one, in seconds."""
    reported: float | None = None
    """The last finite value that the program reported of the objective's metric; a claim, never a score."""
    startup: float | None = None
    """Seconds from its start until it said that it was ready; None when it never did."""
    isolation: str = ""
    """The level that it ran at (tasks/sandbox/isolation.py); empty when nothing was started."""
    network: bool = False
    """Whether it could use the network."""
    program: str | None = None
    """Digest of the program's files, the edit applied, its configuration not among them."""
    checkpoint: str | None = None
    """Digest of the files that it left, the progress not among them; None when there are none."""
    curve: Curve = ()
    """The objective's metric as reported on the way; a claim, compared with other claims only."""
    due: Due | None = None
    """The first time that it should have been cancelled; None when it never should."""
    machine: str = ""
    """The machine that it ran on (tasks.store.ledger.machine); empty before that was noted."""


@dataclass(frozen=True)
class Rerun:
    """A fresh training of a trial that was decided or is about to be, under seeds of its own."""

    of: int
    """The trial whose program and parameters ran again."""
    run: Run
    score: Score
    """On units that no search has seen."""
    calibrated: bool = False
    """Whether it is none of the campaign's own, but was known from a calibration before it began."""


@dataclass(frozen=True)
class UntrainedControl:
    """What a trial's program scores without training (tasks/untrained.py)."""

    score: Score
    """Of the trial's own program; missing when it left nothing that can be judged."""
    unedited: Score | None = None
    """Of the environment's program in its place, asked when an edited one left nothing: whether one could have."""


@dataclass(frozen=True)
class Verdict:
    kind: VerdictKind
    reason: str
    level: Level | None = None
    """How far a keep can be believed; None for anything but a keep."""
    evidence: dict[str, float | int | None] = field(default_factory=dict)
    """The numbers the reason speaks of."""
    simpler: bool = False
    """Kept for being simpler, not for being better: the bar stays where it was."""


@dataclass(frozen=True)
class Was:
    """A verdict that no longer holds, since this trial or one before it was run again."""

    kind: VerdictKind
    reason: str
    rerun: int
    """The trial that was run again."""
    attempt: int
    """Which attempt at that it was."""


@dataclass(frozen=True)
class Trial:
    """One proposal, trained, evaluated, decided."""

    number: int
    """0 is the baseline."""
    attempt: int
    settle: int
    """Its place in the order in which trials were decided."""
    proposal: Proposal
    runs: tuple[Run, ...]
    """One per training seed."""
    score: Score
    """Over all of its runs."""
    verdict: Verdict
    wall_seconds: float = 0.0
    """Everything from its first training to its verdict, in seconds."""
    reruns: tuple[Rerun, ...] = ()
    """What was run again before it was decided: itself, or the champion that it had to beat."""
    was: tuple[Was, ...] = ()
    """What its verdict was before, the latest last; empty unless a rerun changed it."""

    @cached_property
    def decided(self) -> str:
        """What was decided, as JSON: proposal, scores and verdict, but no times. Kept: every later key asks for it."""
        proposal = {key: value for key, value in asdict(self.proposal).items() if key not in TIMES}
        reruns = ((rerun.of, rerun.score.value) for rerun in self.reruns)
        seen = (
            self.number,
            self.attempt,
            self.settle,
            proposal,
            self.score.value,
            self.verdict.kind,
            *reruns,
        )
        return json.dumps(seen, sort_keys=True)


History = tuple[Trial, ...]


def baseline(history: History) -> Trial | None:
    """The first trial, which ran the environment's own program and parameters; None before it was decided."""
    return next((trial for trial in history if trial.number == 0), None)


def best(history: History) -> Trial | None:
    """The champion: the trial that was kept last, since each keep replaces the one before; None while there is none."""
    return next((trial for trial in reversed(history) if trial.verdict.kind == "keep"), None)


def tried(history: History) -> float:
    """How many trials there were, the baseline not counted; a cancelled one counts by the part of it that was run."""
    return sum(_part(trial) for trial in history if trial.number > 0)


def _part(trial: Trial) -> float:
    due = trial.runs[0].due if trial.runs and trial.verdict.kind == "cancelled" else None
    return due.fraction if due else 1.0


def machine_of(history: History) -> str:
    """The machine that the newest score is from; empty while there is none, or it was not noted."""
    scored = (trial for trial in reversed(history) if trial.score.value is not None and trial.runs)
    return next((trial.runs[-1].machine for trial in scored), "")


def is_from(machine: str, other: str) -> bool:
    """Whether runs of two machines compare: they are the same, or one of them is not known."""
    return machine == other or not machine or not other


def measured(history: History, number: int) -> tuple[Score, ...]:
    """Every score of a trial's program and parameters, one per training run: its own, then those of its reruns.

    Where it ran on several machines, those of the one that the newest score is from, if there are any.
    """
    own = [pair for t in history if t.number == number for pair in _from(t.runs, t.score)]
    again = [pair for t in history for r in t.reruns if r.of == number for pair in _from((r.run,), r.score)]
    every, machine = [*own, *again], machine_of(history)
    here = [score for where, score in every if is_from(where, machine)]
    return tuple(here or (score for _, score in every))


def _from(runs: tuple[Run, ...], score: Score) -> list[tuple[str, Score]]:
    """The score of each run, with the machine that it is from."""
    machines = [run.machine for run in runs] or [""]
    each = score.each
    return list(zip(machines if len(machines) == len(each) else machines[-1:] * len(each), each, strict=True))
