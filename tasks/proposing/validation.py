"""Checks of a suggestion before it may become a trial.

In this order: its parameters lie in the space, its files are editable, nothing like it was tried before or is under
way, and an edited program survives a run of seconds in the sandbox that its training will have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from environments.space import Float, Space
from tasks.editing.checks import meaning_of
from tasks.editing.edits import diff_of, patched
from tasks.machine.slots import NOWHERE, Slots
from tasks.proposing.brief import Brief, Suggestion
from tasks.proposing.points import places_of, point_of
from tasks.remote_session import Cut
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.reader import EditFailed, read
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.train import NO_CHECKPOINT, run_program
from tasks.trial import History, Params, Proposal, Trial, best

SMOKE_SECONDS = 3.0
"""Training time of the run that shows whether an edited program works at all."""
SMOKE_SHARE = 0.25
"""Of the budget, at most."""
TOLERANCE = 1e-3
"""Floats this close, as a share of their scale, are the same."""


@dataclass(frozen=True)
class ProposalChecks:
    environment: Environment
    isolation: Isolation
    program: Path
    """The folder with the baseline program's files."""
    place: TrialDir
    marker: str
    """The marker of its runs' processes."""
    slots: Slots
    inbox_entries: tuple[Path, ...] = ()
    """What waits in the campaign's inbox, in order; it comes before any proposer's suggestion."""

    def fault(self, brief: Brief, proposal: Proposal) -> str | None:
        """Why a proposal cannot be tried; None when it can."""
        base = originals(self.environment, self.program)
        tried: list[tuple[int, Proposal, str]]
        tried = [(trial.number, trial.proposal, trial.verdict.kind) for trial in brief.history]
        tried += [(taken, pending, "under way") for taken, pending in brief.pending.items()]
        tried += [(one.number, one.proposal, one.words) for one in brief.rejected]
        for taken, earlier, ending in tried:
            is_same = is_same_point(brief.space, proposal.params, earlier.params)
            if is_same and meaning(patched(base, proposal.edit)) == meaning(patched(base, earlier.edit)):
                code = ", and a program with the same meaning" if base else ""
                return f"the same as trial {taken} ({ending}): parameters within a thousandth{code}"
        champion = best(brief.history)
        is_new = proposal.edit and (champion is None or proposal.edit != champion.proposal.edit)
        # Without a check that runs here, another machine would be rented for seconds.
        if is_new and (self.environment.check_cmd or not self.environment.remote):
            return self.smoke(proposal, brief.seed)
        return None

    def program_of(self, suggestion: Suggestion, start: Trial | None) -> tuple[str | None, int]:
        """The edit of a suggestion against the baseline's program, and its parent trial's number.

        `start`: the trial whose program it changes, which is the champion but for people; None: the baseline's.
        """
        kept, number = (start.proposal.edit, start.number) if start else (None, 0)
        if suggestion.files is None:
            return kept, number if kept else 0
        for name in suggestion.files:
            if name not in self.environment.editable:
                raise Refused(f"{name!r} may not be changed; editable: {', '.join(self.environment.editable)}")
        base = originals(self.environment, self.program)
        return diff_of(base, {**patched(base, kept), **suggestion.files}) or None, number

    def smoke(self, proposal: Proposal, seed: int) -> str | None:
        """Run the edited program for some seconds, or its `check_cmd`; the reason of a failure, or None.

        No checkpoint so early is no fault: it may be saved at the end.
        """
        seconds = min(SMOKE_SECONDS, SMOKE_SHARE * self.environment.budget_seconds)
        aside = TrialDir(self.place.path / "smoke")
        file_trees.remove(aside.path)
        aside.path.mkdir(parents=True)
        problem, cut = self.environment, Cut(self.environment.startup_seconds, seconds)
        if problem.check_cmd:  # nothing is trained, so the GPUs and other machines are left alone
            check = {"train_cmd": problem.check_cmd, "device": "cpu", "trainer": "command"}
            problem = problem.model_copy(update=check)
        with nullcontext(NOWHERE) if problem.check_cmd else self.slots.hold() as slot:
            run = run_program(self.marker, problem, self.isolation, self.program, aside, proposal, seed, cut, slot=slot)
        for large in (aside.out, aside.workspace):  # its log is enough
            file_trees.remove(large)
        if run.status != "crash" or run.error is None or run.error.startswith(NO_CHECKPOINT):
            return None
        has_run = run.program is not None and not problem.check_cmd
        return f"in a run of {seconds:g} s: {run.error}" if has_run else run.error


def is_same_point(space: Space, one: Params, other: Params) -> bool:
    """Whether every parameter of the space is as good as equal in both."""
    here, there = point_of(space, one), point_of(space, other)
    if here is None or there is None:  # it lies outside of the space
        return False
    places = zip(space.values(), places_of(space, here), places_of(space, there), strict=True)
    return all(abs(a - b) <= (TOLERANCE if isinstance(one, Float) else 0.0) for one, a, b in places)


def meaning(files: Mapping[str, str]) -> dict[str, str]:
    """Files by name without comments and formatting of Python; what does not parse counts as a whole."""
    return {name: _meaning_of(text) if name.endswith(".py") else text for name, text in files.items()}


@lru_cache(maxsize=4096)
def _meaning_of(text: str) -> str:
    with suppress(EditFailed):  # no Python, or no parser gets through it
        return read(meaning_of, text)
    return text


def originals(environment: Environment, program: Path) -> dict[str, str]:
    """The editable files of a program that exist, by name."""
    paths = {name: program / name for name in environment.editable}
    # Not read_text(), which would change line endings.
    return {name: path.read_bytes().decode("utf-8", "replace") for name, path in paths.items() if path.is_file()}


def champions_files(environment: Environment, program: Path, history: History) -> Mapping[str, str]:
    """The editable files as the champion has them."""
    champion = best(history)
    return patched(originals(environment, program), champion.proposal.edit if champion else None)
