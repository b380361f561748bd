"""Preparation of environments that have a recipe, before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.environment import checked_environment
from flows.views import terminal
from tasks import evaluate, imports_ahead, judged_start, train
from tasks.certifying import holdout_uses
from tasks.recipes import output, preparing
from tasks.sandbox.confinement import Level
from tasks.sandbox.warm import pool
from tasks.sandbox.warm.kind import Kind, kind_of
from tasks.sandbox.warm.standby import restore
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.home import home

STANDBYS = ".standby"
"""The folder in a campaign's of what its standbys see until they have a trial."""


def ensure_prepared(ledger: Ledger, launch: str, elsewhere: Environment | None = None) -> None:
    """Prepare a campaign's frozen environment, or another that is frozen with it, unless that is done.

    Refused if it cannot be prepared, or its content differs from what the campaign began with. Only `launch` = here
    needs GPUs of this machine.
    """
    if elsewhere is None:  # a campaign begins
        restore(ledger.path / STANDBYS)
    environment = elsewhere or ledger.environment
    if environment.prepare is None:
        return
    if launch == "here":
        preparing.check_gpus(environment, home())
    preparing.prepare(environment, ledger.path.parent, lambda words: ledger.event("preparing", words=words))
    preparing.hold_to(environment)


@contextmanager
def standbys(spec: CampaignSpec, ledger: Ledger) -> Iterator[None]:
    """Have the campaign's programs started ahead while the block runs (tasks/sandbox/warm)."""
    if spec.launch != "here":
        yield
        return
    environment, level = ledger.environment, spec.isolation.level
    kinds = [training_kind(environment, level), acting_kind(environment, level)]
    with pool.opened(
        ledger.path / STANDBYS, ledger.campaign.campaign_id, lambda why: ledger.event("cold_start", why=why)
    ) as warm:
        for kind in filter(None, kinds * spec.parallel):
            warm.expect(kind)
        yield


def training_kind(environment: Environment, level: Level) -> Kind | None:
    """The kind of an environment's trainings; None if they start cold."""
    place = TrialDir(Path("trial"))
    values = train.placeholders(environment, environment.defaults, place.out, seed=0)
    return kind_of(
        workspace.fill(environment.train_cmd, values), imports_ahead.for_training(environment), trial=place.path,
        level=level, view=train.view_of(environment, place), limits=environment.limits,
    )  # fmt: skip


def acting_kind(environment: Environment, level: Level) -> Kind | None:
    """The kind of its programs under judgement; None if they start cold."""
    place, judge = TrialDir(Path("trial")), environment.judge
    if judge.runs_in != "workspace":
        return None
    command = workspace.fill(judge.command(), evaluate.judge_placeholders(environment, place, seed=0))
    return kind_of(
        judged_start.command(command), imports_ahead.for_acting(environment), trial=place.path, level=level,
        view=evaluate.view(environment, place), limits=environment.limits, pipes=True, counted=True,
    )  # fmt: skip


def report_pool(environment: Environment) -> Path | None:
    """The prepared folder with its report questions, which wear out; None if they are drawn anew for each use."""
    made = output.read(environment.prepared) if environment.prepared else None
    return environment.prepared if made and made.questions.get("report") else None


def prepare(reference: str, overrides: dict[str, Value], as_json: bool) -> int:
    """Prepare an environment as it is now, and print the result; returns the exit code.

    A missing GPU is reported, but is no failure: the training may run on another machine.
    """
    environment = checked_environment(reference, overrides)
    place = preparing.place(environment, home())
    if place is None:
        raise Refused(f"{environment.name} has no recipe, so there is nothing to prepare: nightshift try {reference}")
    known = output.read(place) is not None
    with interrupt.deferred():
        preparing.prepare(environment, home(), partial(print, file=sys.stderr))
    made, seen, lacking = output.read(place), holdout_uses.uses(place), None
    try:
        preparing.check_gpus(environment, home())
    except Refused as missing:
        lacking = str(missing)
    assert made is not None, "it was made"
    if as_json:
        facts = {
            "environment": environment.name, "folder": str(place), "recipe": made.recipe, "content": made.content,
            "made_now": not known, "bytes": made.bytes, "questions": made.questions, "seconds": made.seconds,
            "versions": made.versions, "created": made.created, "lacking": lacking,
            "looks": [
                {"campaign_id": u.campaign, "look": u.look, "time": u.time, "level": u.level, "passed": u.passed}
                for u in seen
            ],
            "next_level": holdout_uses.pool_level(seen) if made.questions.get("report") else None,
        }  # fmt: skip
        terminal.print_json(facts)
        return 0
    print(f"{environment.name} {'was prepared already' if known else 'is prepared'}: {preparing.in_words(made)}")
    if made.questions.get("report"):
        level = holdout_uses.pool_level(seen)
        print(f"certificates that used its report questions: {len(seen)}; the next is tested at {level:.2g} at most")
    if lacking:
        print(f"lacking: {lacking}")
    print(f"see {place}; next: nightshift try {reference}")
    return 0
