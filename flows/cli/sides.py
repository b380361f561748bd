"""What a side of a comparison may name, and the environment in which two of them meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environments import Environment, plugins
from environments.plugins import Refused
from flows.cli.arguments import parse_params, read_diff, read_text
from flows.cli.set_option import overrides_only
from flows.cli.single_runs import Side
from tasks.recipes import output
from tasks.store.ledger import Ledger, campaigns, measure
from tasks.trial import Trial, best

KINDS = (
    "baseline, a JSON object of parameters, a file *.json of parameters, a file *.diff or *.patch, "
    "CAMPAIGN, CAMPAIGN/baseline or CAMPAIGN/TRIAL"
)


def parse(arm: str, text: str) -> tuple[Side, Ledger | None]:
    """The side that a text names, and the campaign that it comes from. Refused if there is no such side."""
    suffix = Path(text).suffix
    if text == "baseline":
        return Side(arm, text), None
    if text.lstrip().startswith("{"):
        return Side(arm, text, parse_params(text, "parameters")), None
    if suffix == ".json":
        return Side(arm, text, parse_params(read_text(Path(text), "parameters in"), f"{text}:")), None
    if suffix in (".diff", ".patch"):
        return Side(arm, text, edit=read_diff(Path(text), "the edit")), None
    name, _, which = text.partition("/")
    if name not in campaigns():
        try:
            plugins.require(name, ("baseline", *campaigns()), what="side of a comparison")
        except Refused as unknown:
            raise Refused(f"{unknown} A side is {KINDS}.") from None
    ledger = Ledger.open(name)
    if which == "baseline":
        return Side(arm, text, ledger.environment.defaults, program=ledger.program), ledger
    proposal = _trial(ledger, which or "champion").proposal
    return Side(arm, text, proposal.params, proposal.edit, ledger.program), ledger


def certified_campaign(sides: Sequence[tuple[Side, Ledger | None]], on: str | None) -> str | None:
    """The campaign whose champion is to meet its own baseline, which is what a certificate does; None otherwise."""
    (a, ledger), (b, other) = sides
    if on or ledger is None or other is None or ledger.path != other.path:
        return None
    champion, is_baseline = best(ledger.history()), b.text.endswith("/baseline")
    name = ledger.campaign.name
    is_champion = champion is not None and a.text in (name, f"{name}/champion", f"{name}/{champion.number}")
    return name if is_champion and is_baseline else None


def _trial(ledger: Ledger, which: str) -> Trial:
    history, name = ledger.history(), ledger.campaign.name
    if which == "champion" and not best(history):
        raise Refused(f"campaign {name!r} has no champion, for no trial has a score: name {name}/baseline")
    numbers = {str(trial.number): trial for trial in history}
    if trial := best(history) if which == "champion" else numbers.get(which):
        return trial
    some = f"it has {history[0].number} to {history[-1].number}" if history else "it has none yet"
    raise Refused(
        f"campaign {name!r} has no finished trial {which}: {some}. Give {name}/champion, {name}/baseline, or {name}/0"
    )


def common_environment(
    ledgers: Sequence[Ledger], on: str | None, settings: list[str]
) -> tuple[Environment, Path | None]:
    """The environment of both sides, and its baseline program if a campaign has frozen that.

    Raises:
        Refused: no environment is named, or the campaigns' environments differ.
    """
    from flows.spec.environment import checked_environment

    if on:
        return checked_environment(on, overrides_only(settings)), None
    if not ledgers:
        raise Refused("neither side names a campaign, so there is no environment: give --on ENVIRONMENT, or --train")
    if settings:
        raise Refused("--set needs --on ENVIRONMENT: the environment of a campaign is frozen")
    for ledger in ledgers:
        ledger.verify()
    if len({judged_by(ledger) for ledger in ledgers}) > 1:
        names = " and ".join(repr(ledger.campaign.name) for ledger in ledgers)
        raise Refused(
            f"campaigns {names} have different environments, so their scores cannot be compared: "
            "choose one with --on ENVIRONMENT"
        )
    return ledgers[0].environment, ledgers[0].program


def judged_by(ledger: Ledger) -> str:
    """A digest of everything that changes a score in a campaign's environment."""
    environment = ledger.environment
    made = output.read(environment.prepared) if environment.prepared else None
    parts: dict[str, object] = {
        "settings": environment.model_dump(mode="json", exclude={"folder", "judge", "prepared", "requires"}),
        "judged": environment.judge.model_dump(mode="json"),
        "prepared": made.content if made else "",
    }
    return measure(ledger.path, environment, parts)
