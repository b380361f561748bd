"""What the row of a task says in the Prefect UI: how it ended, in words, and whether it is shown as failed."""

from __future__ import annotations

from dataclasses import dataclass

from environments.score import Score
from tasks.system.redact import capped
from tasks.trial import Proposal, Run, UntrainedControl, Verdict

LENGTH = 240
"""Characters of a message; the whole text is in the campaign's directory."""
LOG_LENGTH = 4000
"""Characters of a crash that go to the task's log: the end, where the reason is."""


@dataclass(frozen=True)
class TaskMessage:
    words: str
    crash: str = ""
    """Why the task is shown as failed, with the last lines of the program's log; empty if it is not."""


def of_proposal(proposal: Proposal) -> TaskMessage:
    return plain(f"{proposal.proposer or 'baseline'}: {proposal.rationale or 'no rationale'}")


def of_run(run: Run) -> TaskMessage:
    if run.status == "crash":
        return _crash(run.error or "crash")
    how = f"stopped early: {run.due.reason}; " if run.status == "cancelled" and run.due else ""
    steps = f", {run.steps:,} steps by its own count" if run.steps is not None else ""
    reported = f", reported {run.reported:.4g}" if run.reported is not None else ""
    note = f"; {run.claim}" if run.note else ""
    return plain(f"{how}trained {run.seconds:.4g} s{steps}{reported}{note}")


def of_score(score: Score, run: Run) -> TaskMessage:
    if run.status != "finished":
        return plain(f"not judged: {in_short(run.error) if run.error else 'the run was stopped early'}")
    if score.value is None:
        return _crash(score.error or "no score")
    error = f" (se {score.se:.2g})" if score.se is not None else ""
    return plain(f"score {score.value:.4g}{error}, {score.n} unit{'s' * (score.n != 1)}")


def of_control(control: UntrainedControl) -> TaskMessage:
    score = control.score
    if score.value is None:
        return plain(f"no score without training: {score.error}")
    return plain(f"score {score.value:.4g} without training")


def of_verdict(verdict: Verdict, score: Score) -> TaskMessage:
    return _crash(verdict.reason) if verdict.kind == "crash" else plain(verdict_of(verdict, score))


def verdict_of(verdict: Verdict, score: Score) -> str:
    """A verdict with its score in a line."""
    shown = "" if score.value is None else f" {score.value:.4g}"
    return f"{verdict.kind}{shown}: {in_short(verdict.reason)}"


def in_short(reason: str) -> str:
    """A reason in a line.

    That of a crash has several: what was seen; the end of the program's log, marked, of which the last line is shown,
    with which a traceback ends; and the remedy in parentheses (tasks/sandbox/advice.py), which may be long.
    """
    seen, *rest = [line.strip() for line in reason.strip().splitlines() if line.strip(" |")] or [""]
    remedy = rest.pop() if rest and rest[-1].startswith("(") and rest[-1].endswith(")") else ""
    shown = (line.removeprefix("|").strip() for line in (seen, *rest[-1:]))
    return f"{': '.join(shown)} {remedy}".rstrip()


def plain(words: str) -> TaskMessage:
    """The message of a task that is not shown as failed."""
    return TaskMessage(capped(" ".join(words.split()), LENGTH))


def _crash(error: str) -> TaskMessage:
    return TaskMessage(plain(f"crash: {in_short(error)}").words, error[-LOG_LENGTH:])
