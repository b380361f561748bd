"""What `nightshift showcase` says between the engine's own lines: a heading per feature, why, and where to look."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flows.views.terminal import binaries, clean, is_screen, put, short, trial_line, whole
from tasks.sandbox.isolation import Isolation
from tasks.system import redact
from tasks.system.home import is_checkout
from tasks.trial import History, Trial, best, trials_before

WIDTH = 79
DIFF_LINES = 16
MARGIN = " " * 10
CHEAT = "cheat"
"""How the rationale of a proposal begins that tries to cheat."""


def begin(console: Console, name: str, sandbox: Isolation, left_out: Sequence[str]) -> None:
    """The first lines: what is run."""
    words = (
        f"Every feature once, in about a minute. {name} is a real campaign: a small problem (Q-learning on a frozen "
        f"lake), a Prefect server, MLflow, sandbox {sandbox.level}. Only its proposals are scripted; "
        "environments/showcase/showcase.toml lists them."
    )
    _print(console, Text("nightshift showcase", "bold"), *_folded(words))
    if left_out:
        words = (
            f"Left out: {', '.join(left_out)}. They need code edits, which at isolation {sandbox.level} could reach "
            "your files: see `nightshift doctor`, or pass --allow-unsandboxed."
        )
        _print(console, *_folded(words, "yellow"))
    _print(console, Text())


def lines(is_cut: bool, trial: Trial, history: History) -> Sequence[Text]:
    """A decided trial: what it shows, the engine's line, and why, where an edge cuts that line."""
    title, words = _shows(trial, history)
    found = [Text()]
    for refused in trial.proposal.turned_down:
        found += [Text("Refused", "bold"), *_folded("A cheat in plain sight is refused before anything runs:")]
        found += [*_folded(clean(refused), "red"), Text()]
    found += [Text(title, "bold"), *_folded(words), trial_line(trial, history)]
    found += _why(trial) if is_cut or trial.verdict.kind == "crash" else []
    if title == "Code edit":
        found += _diff(trial.proposal.edit or "")
    return found


def _shows(trial: Trial, history: History) -> tuple[str, str]:
    """A heading for a trial, and what is seen there."""
    kind, number = trial.verdict.kind, trial.number
    if number == 0:
        return "Baseline", "The environment's own program, three times, which shows how far runs differ by luck."
    if trial.proposal.rationale.startswith(CHEAT):
        return "Cheat", (
            "An edit that behaves until its last report, then writes a score of its own and opens the judge's file. "
            "What a program writes is no score, and the judge lies outside of its sandbox."
        )
    before = best(trials_before(history, trial))
    edits = trial.proposal.edit and (before is None or trial.proposal.edit != before.proposal.edit)
    if kind == "keep" and edits:
        return "Code edit", "A change of the program, which is better: kept, as a commit with this diff."
    return {
        "keep": ("Keep", "Better than the champion, so it becomes the champion."),
        "discard": ("Discard", "Not expected to be better."),
        "cancelled": ("Cancel", "Far behind the champion's learning curve, so it is stopped early."),
        "crash": ("Crash", "No score but a reason: the last lines of its log."),
    }[kind]


def _why(trial: Trial) -> Iterator[Text]:
    """The reason of a verdict; of a crash the end of its log."""
    reason = [clean(line) for line in trial.verdict.reason.splitlines() if any(map(str.isalnum, line))]
    for line in reason[-2:] if trial.verdict.kind == "crash" else reason[:1] if trial.number else []:
        yield from _folded(line, "dim", MARGIN)


def _diff(edit: str) -> Iterator[Text]:
    """The lines that a diff removes and adds."""
    changed = [line for line in redact.clean(edit) if line.startswith(("+", "-"))]
    for line in changed[:DIFF_LINES]:
        yield Text(f"{MARGIN}{line}", "green" if line.startswith("+") else "red")


def killed(console: Console, pid: int, trial: int, decided: int, left_alive: int) -> None:
    processes = "none of the trial's processes is left" if not left_alive else f"{left_alive} processes are left"
    words = (
        f"kill -9 {pid}: the engine, in the middle of trial {trial}. {decided} trials were decided; "
        f"{processes}. Now `nightshift resume`:"
    )
    _print(console, Text(), Text("Kill and resume", "bold"), *_folded(words))


def resumed(
    console: Console, again: int | None, decided: int, changed: int, steps: int, repeated: int, trials: int,
    runs: int | None,
) -> None:  # fmt: skip
    """What the kill cost, in figures.

    Args:
        again: The trial that was trained anew.
        runs: Of trials, in MLflow; None: not known.
    """
    figures = [
        f"{decided - changed} of {decided} trials decided before the kill are as they were, byte for byte",
        f"{repeated} of {steps} finished steps (proposals, trainings, judgements) were done again",
    ]
    figures += [f"trial {again} was trained from its beginning, with the same proposal and seed"] if again else []
    figures += [f"{trials} trials, and {runs} runs of trials in MLflow"] if runs is not None else []
    heading = "Nothing lost, nothing doubled" if not changed and not repeated else "What the kill cost"
    _print(console, Text(), Text(heading, "bold"))
    _print(console, *(line for figure in figures for line in _folded(figure, indent="  ")))


def certificate(console: Console) -> None:
    words = (
        "The champion was the best of several noisy scores, which flatters it. So it was trained again from fresh "
        "seeds, against the baseline, before it ships:"
    )
    _print(console, Text(), Text("Certificate", "bold"), *_folded(words), Text())


def _demo(here: str) -> str:
    return "make demo" if is_checkout() else f"{here}nightshift run lunar_lander --trials 8"


def end(console: Console, report: Path, diffs: Sequence[Path], home: Path | None) -> None:
    """Where to look, and what to run next."""
    here = binaries()
    steps = {"the report": short(report)}
    steps |= {"the diff": short(diffs[0])} if diffs else {}
    steps |= {
        "the pages": f"{here}nightshift up",
        "the demo": _demo(here),
        "your own": f"{here}nightshift env new ./my-problem",
    }
    if home:
        steps["its home"] = f"export NIGHTSHIFT_HOME={shlex.quote(str(home))}"
    _print(console, Text(), Text("Look, and go on", "bold"))
    for label, step in steps.items():
        whole(console, Text.assemble("  ", (f"{label:<12} ", "dim"), clean(step)))


def _folded(words: str, style: str = "", indent: str = "") -> list[Text]:
    wrapped = textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [Text(line, style) for line in wrapped]


def _print(console: Console, *texts: Text) -> None:
    for text in texts:
        put(console, text) if is_screen(console) else whole(console, text)
