"""What a side of a comparison may name, and the environment in which sides meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from environments import plugins
from environments.plugins import Refused
from environments.space import Value
from flows.cli import consent
from flows.cli.arguments import parse_params, read_diff
from flows.cli.single_runs import Question, Side
from tasks.store.ledger import Ledger, campaigns
from tasks.trial import best


def parse(text: str) -> tuple[Side, Ledger | None]:
    """The side that a text names, and the campaign that it comes from. Refused if there is no such side."""
    if text == "baseline":
        return Side(text), None
    if text.lstrip().startswith("{"):
        return Side(text, parse_params(text, "parameters")), None
    if text.endswith(".json"):
        return Side(text, parse_params(Path(text).read_bytes(), f"{text}:")), None
    if text.endswith((".diff", ".patch")):
        return Side(text, edit=read_diff(Path(text), "the edit")), None
    name, _, which = text.partition("/")
    plugins.require(name, ("baseline", *campaigns()), what="side of a comparison")
    ledger = Ledger.open(name)
    if which == "baseline":
        return Side(text, ledger.environment.defaults, program=ledger.program), ledger
    history = ledger.history()
    numbers = {str(trial.number): trial for trial in history}
    trial = best(history) if which in ("", "champion") else numbers.get(which)
    if trial is None:
        raise Refused(
            f"campaign {name!r} has no {which or 'champion'}: give {name}/champion once a trial has a score, "
            f"{name}/baseline, or the number of a finished trial"
        )
    return Side(text, trial.proposal.params, trial.proposal.edit, ledger.program), ledger


def certified_campaign(a: str, b: str) -> str | None:
    """The campaign whose champion is to meet its own baseline, which is what a certificate does; None otherwise."""
    name, _, which = a.partition("/")
    if b != f"{name}/baseline" or name not in campaigns():
        return None
    champion = best(Ledger.open(name).history())
    return name if champion and which in ("", "champion", str(champion.number)) else None


def between(a: str, b: str, on: str | None, overrides: dict[str, Value], trust: bool) -> Question:
    """Two sides as they are named. Refused as in `parse` and `question`."""
    (first, ledger), (second, other) = parse(a), parse(b)
    return question({"a": first, "b": second}, on, [one for one in (ledger, other) if one], overrides, trust)


def question(
    sides: Mapping[str, Side], on: str | None, ledgers: Sequence[Ledger], overrides: dict[str, Value], trust: bool
) -> Question:
    """Sides in the environment `on`, or in that of the first campaign that one of them comes from.

    Raises:
        Refused: no environment is named, or it asks for what nobody grants.
    """
    from flows.spec.environment import checked_environment

    if on:
        consent.ask_about(on, overrides, trust)
        return Question(sides, checked_environment(on, overrides), overrides)
    if not ledgers:
        raise Refused("neither side names a campaign, so there is no environment: give --on ENVIRONMENT, or --train")
    if overrides:
        raise Refused("--set: the environment of a campaign is frozen: name another one, or leave --set out")
    for ledger in ledgers:
        ledger.verify()
    return Question(sides, ledgers[0].environment, ledgers[0].campaign.overrides, ledgers[0].program)
