"""What the two sides of a duel name: parameters and a program, given outright, in a file, or by a campaign."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from environments import Environment, plugins
from environments.plugins import Refused
from flows.cli.running import single_run
from flows.cli.set_option import overrides_only
from tasks.editing.edits import EditFailed, apply_edit
from tasks.sandbox import outputs
from tasks.store import calibration
from tasks.store.ledger import Ledger, campaigns
from tasks.trial import Params, Trial, best

KINDS = (
    "baseline, a JSON object of parameters, a file *.json of parameters, a file *.diff or *.patch, "
    "CAMPAIGN, CAMPAIGN/baseline or CAMPAIGN/TRIAL"
)


@dataclass(frozen=True)
class Side:
    """One side as it was named."""

    text: str
    params: Params = field(default_factory=dict)
    """Laid over the baseline's."""
    edit: str | None = None
    """Of the baseline's program."""
    ledger: Ledger | None = None
    """The campaign that it comes from."""
    trial: Trial | None = None
    """Whose program and parameters it is; None for a baseline."""


def parse(text: str) -> Side:
    """What a side names.

    Raises:
        Refused: nothing that there is.
    """
    suffix = Path(text).suffix
    if text == "baseline":
        return Side(text)
    if text.lstrip().startswith("{"):
        return Side(text, single_run.parse_params(text, "parameters"))
    if suffix == ".json":
        content = single_run.read_text(Path(text), "parameters in")
        return Side(text, single_run.parse_params(content, f"{text}:"))
    if suffix in (".diff", ".patch"):
        return Side(text, edit=single_run.read_diff(Path(text), "the edit"))
    return _of_campaign(text)


def _of_campaign(text: str) -> Side:
    name, _, which = text.partition("/")
    if name not in campaigns():
        try:
            plugins.require(name, ("baseline", *campaigns()), what="side of a duel")
        except Refused as unknown:
            raise Refused(f"{unknown} A side is {KINDS}.") from None
    ledger = Ledger.open(name)
    if which == "baseline":
        return Side(text, ledger.environment.defaults, ledger=ledger)
    trial = _trial(ledger, which or "champion")
    return Side(text, trial.proposal.params, ledger=ledger, trial=trial)


def _trial(ledger: Ledger, which: str) -> Trial:
    history, name = ledger.history(), ledger.campaign.name
    if which == "champion":
        champion = best(history)
        if champion is None:
            raise Refused(
                f"campaign {name!r} has no champion, for no trial has a score: name {name}/baseline"
            )
        return champion
    if not which.isdigit():
        raise Refused(
            f"{name}/{which}: give {name}/champion, {name}/baseline, or the number of a trial: {name}/0"
        )
    found = next((trial for trial in history if trial.number == int(which)), None)
    if found is None:
        there = f"it has {_span(history)}" if history else "it has none yet"
        raise Refused(f"campaign {name!r} has no finished trial {which}: {there}")
    return found


def _span(history: Sequence[Trial]) -> str:
    numbers = sorted(trial.number for trial in history)
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"only {numbers[0]}"


def environment_of(
    sides: Sequence[Side], on: str | None, settings: list[str]
) -> tuple[Environment, Path | None]:
    """Where a duel takes place, and its baseline's program where a campaign has frozen that.

    Raises:
        Refused: nothing says where, or two campaigns say different things.
    """
    from flows.spec.environment import checked_environment

    if on:
        return checked_environment(on, overrides_only(settings)), None
    ledgers = [side.ledger for side in sides if side.ledger]
    if not ledgers:
        raise Refused("neither side names a campaign, so nothing says where they meet: give --on ENVIRONMENT")
    if settings:
        raise Refused("--set needs --on ENVIRONMENT: the environment of a campaign is frozen")
    for ledger in ledgers:
        ledger.verify()
    first, last = ledgers[0], ledgers[-1]
    if _digest(first) != _digest(last):
        raise Refused(
            f"campaigns {first.campaign.name!r} and {last.campaign.name!r} have different environments, so their "
            "scores mean different things: say with --on ENVIRONMENT in which one they are to meet"
        )
    return first.environment, first.program


def _digest(ledger: Ledger) -> str:
    return calibration.digest(ledger.path, ledger.environment)


def lay_out(side: Side, environment: Environment, baseline: Path, target: Path) -> bool:
    """Write a side's program into the folder `target`; whether it is an edited one.

    Args:
        baseline: The program of the environment in which it is to run.

    Raises:
        Refused: its edit does not apply, or a trial's program is no longer there as it ran.
    """
    source = side.ledger.program if side.ledger else baseline
    if side.trial and side.ledger:
        _copy_of_trial(side.ledger, side.trial, target)
    else:
        shutil.copytree(source, target)
    if side.edit:
        for path in target.rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)  # what is frozen is read-only
        try:
            apply_edit(target, side.edit, environment)
        except EditFailed as failed:
            raise Refused(f"{side.text}: {failed}") from failed
    return outputs.digest(target) != outputs.digest(source)


def _copy_of_trial(ledger: Ledger, trial: Trial, target: Path) -> None:
    """Copy the program that a trial ran. Its workspace holds it to the byte; its commit has been cleared of secrets."""
    from tasks.train import CANCEL

    place, ran = ledger.place_of(trial), trial.runs[0]
    what = f"{ledger.campaign.name}/{trial.number}"
    if ran.program is None:
        why = (ran.error or "it never ran").splitlines()[0]
        raise Refused(f"{what} has no program ({why}): name another trial")
    if place.workspace.is_dir():
        ours = {place.config.name, CANCEL}  # what we put beside the program
        shutil.copytree(
            place.workspace,
            target,
            symlinks=True,
            ignore=lambda at, _: ours if Path(at) == place.workspace else set(),
        )
    if not target.is_dir() or outputs.digest(target) != ran.program:
        raise Refused(f"{place.workspace} no longer holds the program that {what} ran: name another trial")
