"""Plausibility checks of a finished training run, before it is judged. A run that fails one is a crash with the reason.

The checks catch mistakes and simple shortcuts: training nothing, another trial's checkpoint, an ignored seed. Reports
are the program's own claims; careful cheating is caught by the judge and by fresh runs.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from itertools import permutations
from pathlib import Path

from environments import Environment
from environments.safe_open import open_below
from environments.score import Score
from tasks.sandbox import outputs
from tasks.sandbox.progress import numbers, parse_report
from tasks.sandbox.reader import EditFailed, read
from tasks.system import file_trees
from tasks.trial import History, Proposal, Run

PROGRESS_BYTES = 4 * 2**20
EARLIER_SECONDS = 2.0
"""How far a file system's clock may lag behind ours."""
OVERSHOOT = 1.1
ROLLOUT = 2**16
"""Steps beyond the step budget that are tolerated for a large batch, in addition to a share of it."""
FEWEST_SHARED = 3
SMALL_BYTES = 64
"""A file that holds hardly more than a score, which two runs may have in common."""
IGNORES_SEED = (
    "ignores its seed: %s, under another seed: draw everything from the run's seed "
    "(in config.json, {seed} in a command line), "
    "or set deterministic = true if training draws nothing at random"
)
TEXTS = (".csv", ".json", ".jsonl", ".log", ".txt", ".yaml", ".yml")
"""Suffixes of what a run says of itself."""
Metrics = Mapping[str, float]


def plausible(environment: Environment, run: Run, folder: Path) -> Run:
    """The run, or the same run as a crash with the reason if it is implausible by itself. (folder: the campaign's)"""
    if run.status != "finished":
        return run
    steps, budget = run.steps or 0, environment.budget_steps
    stated = environment.limits.least_seconds
    least = environment.budget_seconds / 1000 if stated is None else stated
    reason = None
    if run.seconds < least and not 0 < budget <= steps * OVERSHOOT:  # no part of a batch is trained
        reason = (
            f"trained for {run.seconds:g} s, too short to learn anything (at least {least:g} s): train for longer, "
            "or lower least_seconds in [limits]"
        )
    elif (before := run.started - outputs.newest(folder / run.dir / "out")) > EARLIER_SECONDS:
        age = f"the newest file in out/ is {before:.0f} s older than the run"
        reason = f"left no checkpoint of its own: {age}: save anew"
    elif budget and steps > budget * OVERSHOOT + ROLLOUT:
        reason = f"reported {steps:,} steps of a budget of {budget:,}: stop at budget_steps, and count single steps"
    return replace(run, status="crash", error=reason) if reason else run


def plausible_beside(
    environment: Environment, history: History, proposal: Proposal, run: Run, folder: Path, siblings: Sequence[Run] = ()
) -> Run:
    """The same beside other runs; `siblings` are those of its proposal that are not in the history yet."""
    if run.status != "finished" or run.checkpoint is None or environment.deterministic:
        return run
    earlier = [
        (f"trial {trial.number}", trial.proposal, other)
        for trial in history
        for other in (*trial.runs, *(rerun.run for rerun in trial.reruns))
    ]
    earlier += [("another run of it", proposal, sibling) for sibling in siblings]
    for name, other_proposal, other in earlier:
        differs = _differences(run, proposal, other, other_proposal) if run.checkpoint == other.checkpoint else []
        if not differs:
            continue
        reason = f"its checkpoint is that of {name}, byte for byte"
        if differs == ["seed"]:
            reason = _one_training(folder / run.dir, environment.metric, reason)
        else:
            reason += f", though they differ in {', '.join(differs)}: save what this very run has trained"
        return replace(run, status="crash", error=reason)
    return run


def same_play(folder: Path, metric: str, one: tuple[Run, Score], first: tuple[Run, Score]) -> str | None:
    """Why two trainings under different seeds count as one; None if they do not.

    Judged on the same units (`Score.echo`), one scored what the other did on each. Where all units are equal, as at a
    ceiling, that says nothing; nor where both have reported different progress on the way.
    """
    run, score = one
    if not score.echo or score.echo != first[1].units or len(set(score.echo)) == 1:
        return None
    here, there = (_metrics(folder / each.dir) for each in (run, first[0]))
    shared = here.keys() & there.keys()
    if shared and any(here[step] != there[step] for step in shared):
        return None
    how = f"on each of {len(score.echo)} units it scored what another run of it did"
    return _one_training(folder / run.dir, metric, how)


def one_training(
    folder: Path, metric: str, runs: Sequence[tuple[Run, Score]], strangers: Sequence[Run]
) -> str | None:  # fmt: skip
    """Why the runs of an arm count as one: two of them play alike, or have left the same weights; None if they do not.

    A date in an archive, such as Stable-Baselines3 writes, makes whole files differ whose weights are equal: what an
    archive holds is looked at. What `strangers`, with other parameters, have left alike was not trained.
    """
    untrained = [_heaviest(folder / run.dir / "out") for run in strangers]
    for one, other in permutations(runs, 2):
        if not one[1].echo:
            continue
        if reason := same_play(folder, metric, one, other):
            return reason
        mine, theirs = (_heaviest(folder / run.dir / "out") for run, _ in (one, other))
        if mine and mine == theirs and untrained and mine not in untrained:
            return IGNORES_SEED % f"{mine[0]} is that of another run, byte for byte"
    return None


@lru_cache(maxsize=256)
def _heaviest(out: Path) -> tuple[str, int, str] | None:
    """Name, bytes and digest of the largest file that a finished run left, or member of an archive; None without."""
    found = list[tuple[int, str, Path, str]]()
    for path in out.rglob("*"):
        if not path.is_file() or path.is_symlink() or path.suffix in TEXTS or "tfevents" in path.name:
            continue
        found.append((path.stat().st_size, path.name, path, ""))
        with suppress(EditFailed):
            if zipfile.is_zipfile(path) and (member := read(file_trees.largest_member, str(path))):
                size, name, checksum = member
                found[-1] = (size, name, path, checksum)
    size, name, path, digest = max(found, default=(0, "", out, ""), key=lambda one: one[:2])
    if size <= SMALL_BYTES:
        return None
    if not digest:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return name, size, digest


def _one_training(run_dir: Path, metric: str, how: str) -> str:
    """What equal results under different seeds mean: a program that ignores its seed, or one that learns nothing."""
    if still := learned_nothing(run_dir, metric):
        return f"learned nothing: {how}; {still}"
    return IGNORES_SEED % how


def learned_nothing(run_dir: Path, metric: str) -> str:
    """The sign that a training changed nothing: its reports of the objective are all equal. Empty without one."""
    reports = [report[metric] for report in _metrics(run_dir).values() if metric in report]
    if len(reports) < FEWEST_SHARED or len(set(reports)) > 1:
        return ""
    return (
        f"in {len(reports)} reports its {metric} stood at {reports[0]:.6g}: look whether its reward ever differs, "
        "and whether its updates reach the weights"
    )


def _differences(run: Run, proposal: Proposal, other: Run, other_proposal: Proposal) -> list[str]:
    """How two runs differ, in words. An unknown program digest counts as equal."""
    program = None not in (run.program, other.program) and run.program != other.program
    mine, theirs = proposal.params, other_proposal.params
    names = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
    return ["program"] * program + names + ["seed"] * (run.seed != other.seed)


def _metrics(run_dir: Path) -> dict[int, Metrics]:
    """The numbers that a run reported, by step, the last ones of each; none where progress.jsonl is no regular file."""
    with open_below(run_dir / "out", "progress.jsonl") or BytesIO() as file:
        data = file.read(PROGRESS_BYTES)
    found: dict[int, Metrics] = {}
    for report in filter(None, map(parse_report, data.splitlines())):
        if type(step := report.get("step")) is int and (metrics := numbers(report.get("metrics"))):
            found[step] = metrics
    return found
