"""Where the time of a campaign went: training, start-up, judging, proposing, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.certifying.certificate import Certificate
from tasks.trial import History, Run


@dataclass(frozen=True)
class TimePart:
    name: str
    seconds: float
    style: str
    """A class of the style sheet."""


def time_split(
    history: History, certificates: Sequence[Certificate], spent: float, parallel: int
) -> tuple[TimePart, ...]:
    """The parts of `spent` seconds on `parallel` slots, each in seconds of a slot.

    Judging includes the untrained controls and what the engine does between the training of a trial and its verdict.
    The rest is what no trial accounts for: waiting for slots, judging in certificates, start and end of the campaign.
    """
    search, proof = list(_search(history)), [fresh.run for one in certificates for fresh in one.runs[one.carried :]]
    trained = sum(run.seconds for run in search)
    starting = sum(_starting(run) for run in [*search, *proof])
    judged = sum(max(trial.wall_seconds - sum(run.wall_seconds for run in trial.runs), 0.0) for trial in history)
    parts = (
        TimePart("training in the search", trained, "training"),
        TimePart("training for the certificate", sum(run.seconds for run in proof), "certifying"),
        TimePart("start-up of the programs: interpreter and imports", starting, "starting"),
        TimePart("judging and controls of the search", judged, "judging"),
        TimePart("proposing", sum(trial.proposal.seconds for trial in history), "proposing"),
    )
    rest = max(spent * parallel - sum(part.seconds for part in parts), 0.0)
    return tuple(part for part in (*parts, TimePart("the rest", rest, "rest")) if part.seconds > 0)


def _search(history: History) -> Iterator[Run]:
    for trial in history:
        yield from trial.runs
        yield from (rerun.run for rerun in trial.reruns if not rerun.calibrated)


def _starting(run: Run) -> float:
    return max(run.wall_seconds - run.seconds, 0.0) if run.wall_seconds else run.startup or 0.0
