"""`nightshift env validate`: everything that can be checked of an environment without training."""

from __future__ import annotations

import shlex
from typing import Any

from environments import Environment, earlier_trials
from environments.space import Value
from flows.cli import consent
from flows.cli.problems.warnings import warnings
from flows.server.server_process import settle_in
from tasks.proposing.axes import point_of, varied
from tasks.system.home import home


def validate(environment: str, overrides: dict[str, Value], trust: bool) -> dict[str, Any]:
    """What the checks found, as one JSON document.

    Raises:
        Refused: a check failed, or it asks for more than its folder and nobody agrees.
    """
    settle_in(home())
    from flows.spec import trust as trusted
    from flows.spec.environment import checked_environment
    from tasks.imports import missing
    from tasks.recipes import output, preparing
    from tasks.sandbox.isolation import choose

    consent.ask_about(environment, overrides, trust)
    checked = checked_environment(environment, overrides)
    place = preparing.place(checked, home())
    made = output.read(place) if place else None
    return {
        "environment": checked.name, "folder": str(checked.folder),
        "metric": checked.metric, "direction": checked.direction,
        "trainer": checked.trainer, "budget_seconds": checked.budget_seconds, "budget_steps": checked.budget_steps,
        "cores": checked.cores,
        "baseline": checked.defaults, "varies": list(checked.space),
        "prepared": place and {"folder": str(place), "content": made.content if made else None},
        "earlier_trials": _earlier(checked),
        "asks_for": list(trusted.needed(checked)),
        "warnings": [*warnings(checked), *missing(checked, choose("auto")).values()],
    }  # fmt: skip


def _earlier(environment: Environment) -> dict[str, int] | None:
    """How many trials of another tool it brings, and how many of them searches can use; None without any."""
    every, axes = earlier_trials.read(environment.folder), varied(environment.space)
    points = sum(point_of(axes, one.params) is not None for one in every)
    return {"count": len(every), "points": points} if every else None


def shown(facts: dict[str, Any], environment: str) -> str:
    """The facts as lines for the terminal; `environment` is the reference that the next command names."""
    earlier = facts["earlier_trials"]
    prepared, asks_for, doubts = facts["prepared"], "; ".join(facts["asks_for"]), facts["warnings"]
    if not prepared:
        made = "needs nothing"
    elif prepared["content"]:
        made = f"{prepared['folder']}, content {prepared['content']}"
    else:
        made = f"not yet: nightshift env prepare {shlex.quote(environment)}"
    lines = {**facts, "prepared": made, "asks_for": asks_for or "nothing beyond its folder"}
    del lines["warnings"]
    del lines["earlier_trials"]
    if earlier:
        lines["earlier_trials"] = f"{earlier['count']}, {earlier['points']} of them points of the space"
    return "\n".join(
        [
            *(f"{key:<16} {value}" for key, value in lines.items()),
            *(f"warning: {doubt}" for doubt in doubts),
            f"valid{', with warnings' if doubts else ''}; next: nightshift try {shlex.quote(environment)}",
        ]
    )
