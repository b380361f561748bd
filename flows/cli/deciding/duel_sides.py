"""The two sides of a duel: parameters and a program, given outright, in a file, or by a campaign."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from environments import Environment, plugins
from environments.plugins import Refused
from flows.cli.arguments import parse_params, placed, read_diff, read_text
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
    """A side as it was named on the command line."""

    text: str
    params: Params = field(default_factory=dict)
    """Over the baseline's."""
    edit: str | None = None
    """Of the baseline's program."""
    ledger: Ledger | None = None
    """The campaign that it comes from."""
    trial: Trial | None = None
    """The trial with its program and parameters; None for a baseline."""


def parse(text: str) -> Side:
    """The side that a text names.

    Raises:
        Refused: there is no such side.
    """
    suffix = Path(text).suffix
    if text == "baseline":
        return Side(text)
    if text.lstrip().startswith("{"):
        return Side(text, parse_params(text, "parameters"))
    if suffix == ".json":
        return Side(text, parse_params(read_text(Path(text), "parameters in"), f"{text}:"))
    if suffix in (".diff", ".patch"):
        return Side(text, edit=read_diff(Path(text), "the edit"))
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
        if champion := best(history):
            return champion
        raise Refused(f"campaign {name!r} has no champion, for no trial has a score: name {name}/baseline")
    if not which.isdigit():
        raise Refused(f"{name}/{which}: give {name}/champion, {name}/baseline, or the number of a trial: {name}/0")
    trials = {trial.number: trial for trial in history}
    if int(which) not in trials:
        some = f"it has {min(trials)} to {max(trials)}" if trials else "it has none yet"
        raise Refused(f"campaign {name!r} has no finished trial {which}: {some}")
    return trials[int(which)]


def environment_of(sides: Sequence[Side], on: str | None, settings: list[str]) -> tuple[Environment, Path | None]:
    """The environment of a duel, and its baseline program if a campaign has frozen that.

    Raises:
        Refused: no environment is named, or the campaigns' environments differ.
    """
    from flows.spec.environment import checked_environment

    if on:
        return checked_environment(on, overrides_only(settings)), None
    ledgers = [side.ledger for side in sides if side.ledger]
    if not ledgers:
        raise Refused("neither side names a campaign, so there is no environment: give --on ENVIRONMENT")
    if settings:
        raise Refused("--set needs --on ENVIRONMENT: the environment of a campaign is frozen")
    for ledger in ledgers:
        ledger.verify()
    digests = {calibration.digest(ledger.path, ledger.environment) for ledger in ledgers}
    if len(digests) > 1:
        names = " and ".join(repr(ledger.campaign.name) for ledger in ledgers)
        raise Refused(
            f"campaigns {names} have different environments, so their scores cannot be compared: "
            "choose one with --on ENVIRONMENT"
        )
    return ledgers[0].environment, ledgers[0].program


def lay_out(side: Side, environment: Environment, baseline: Path, target: Path) -> bool:
    """Write a side's program into the folder `target`; whether it differs from its baseline's.

    Args:
        baseline: The program of the environment in which it is to run.

    Raises:
        Refused: its edit does not apply, or a trial's program is no longer there as it ran.
    """
    from tasks.proposing.validation import originals  # imports Prefect, which reads its settings then

    source = side.ledger.program if side.ledger else baseline
    if side.trial and side.ledger:
        _copy_of_trial(side.ledger, side.trial, target)
    else:
        shutil.copytree(source, target)
    if side.edit:
        for path in target.rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)  # frozen files are read-only
        try:
            edit = placed(side.edit, side.text, originals(environment, target), environment.editable)
            apply_edit(target, edit, environment)
        except EditFailed as failed:
            raise Refused(f"{side.text}: {failed}") from failed
    return outputs.digest(target) != outputs.digest(source)


def _copy_of_trial(ledger: Ledger, trial: Trial, target: Path) -> None:
    """Copy a trial's program from its workspace: the commit in the lineage has secrets removed."""
    from tasks.train import CANCEL

    place, run = ledger.place_of(trial), trial.runs[0]
    name = f"{ledger.campaign.name}/{trial.number}"
    if run.program is None:
        why = (run.error or "it never ran").splitlines()[0]
        raise Refused(f"{name} has no program ({why}): name another trial")
    if place.workspace.is_dir():
        ours = {place.config.name, CANCEL}  # added by us beside the program
        shutil.copytree(
            place.workspace,
            target,
            symlinks=True,
            ignore=lambda folder, _: ours if Path(folder) == place.workspace else set(),
        )
    if not target.is_dir() or outputs.digest(target) != run.program:
        raise Refused(f"{place.workspace} no longer holds the program that {name} ran: name another trial")
