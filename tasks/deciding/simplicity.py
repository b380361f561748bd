"""Simplicity: fewer lines of program, or fewer parameters that differ from the baseline's."""

from __future__ import annotations

from tasks.trial import History, Proposal, Trial, baseline


def is_simpler(history: History, proposal: Proposal, champion: Trial) -> bool:
    """Whether a proposal is simpler than the champion in one respect, and in no respect less simple."""
    lines, changed = size(history, proposal)
    most_lines, most_changed = size(history, champion.proposal)
    return (lines, changed) != (most_lines, most_changed) and lines <= most_lines and changed <= most_changed


def size(history: History, proposal: Proposal) -> tuple[int, int]:
    """Lines added to the baseline's program, and parameters that differ from the baseline's."""
    first = baseline(history)
    defaults = first.proposal.params if first else {}
    changed = sum(defaults.get(name) != value for name, value in proposal.params.items())
    return _net(proposal.edit), changed


def kept_in_a_row(history: History) -> int:
    """Number of latest keeps that were kept for being simpler, without a rerun of a champion since."""
    count = 0
    for trial in reversed(history):
        if trial.verdict.kind == "keep" and not trial.verdict.simpler:
            return count
        count += trial.verdict.kind == "keep"
        if any(rerun.of != trial.number for rerun in trial.reruns):
            return count
    return count


def _net(edit: str | None) -> int:
    """Lines that a unified diff adds, minus those that it removes."""
    lines = (edit or "").splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return added - removed
