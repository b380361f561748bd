"""Preparation of environments that have a recipe, before anything is trained."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from functools import partial

from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.spec.environment import checked_environment
from flows.views import terminal
from tasks.recipes import preparing
from tasks.stats import holdout_uses
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.home import home


def ensure_prepared(ledger: Ledger, elsewhere: Environment | None = None) -> None:
    """Prepare a campaign's frozen environment, or another that is frozen with it, unless that is done. Refused if it
    cannot be prepared, or its content differs from what the campaign began with.
    """
    environment = elsewhere or ledger.environment
    if environment.prepare is None:
        return
    preparing.prepare(environment, ledger.path.parent, lambda words: ledger.event("preparing", words=words))
    preparing.hold_to(environment)


def prepare(reference: str, overrides: dict[str, Value], as_json: bool) -> int:
    """Prepare an environment as it is now, and print the result; returns the exit code."""
    environment, typed = checked_environment(reference, overrides), shlex.quote(reference)
    place = preparing.place(environment, home())
    if place is None:
        raise Refused(f"{environment.name} has no recipe, so there is nothing to prepare: nightshift try {typed}")
    known = preparing.read(place) is not None
    with interrupt.deferred():
        preparing.prepare(environment, home(), partial(print, file=sys.stderr))
    made, seen = preparing.read(place), holdout_uses.uses(place)
    assert made is not None, "it was made"
    level = holdout_uses.pool_level(seen) if made.questions.get("report") else None
    facts = {
        "environment": environment.name, "folder": str(place), "made_now": not known, **vars(made),
        "files": len(made.files), "bytes": made.bytes, "looks": [asdict(use) for use in seen], "next_level": level,
    }  # fmt: skip
    lines = [f"{environment.name} {'was prepared already' if known else 'is prepared'}: {preparing.in_words(made)}"]
    if level is not None:
        lines.append(f"certificates that used its report questions: {len(seen)}; the next: at {level:.2g} at most")
    terminal.tell(facts, "\n".join([*lines, f"see {place}; next: nightshift try {typed}"]), as_json)
    return 0
