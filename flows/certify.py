"""`nightshift certify`: look at a campaign's champion later, again, or in other environments."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

from prefect import State, flow, runtime
from prefect.states import Completed
from pydantic import Field
from rich.console import Console

import environments
from environments import Environment
from environments.plugins import Refused
from flows.cli.running.foreground import report, run_flow
from flows.engine import run_certificate, stopping
from flows.engine.preparation import make_ready
from flows.engine.recovery import crash_the_dead
from flows.engine.redecide import complete
from flows.engine.runner import Bench
from flows.server import connect
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.environment import checked_environment
from flows.views.artifacts import Showcase
from flows.views.follow import Watch
from flows.views.status import ended, stored_spec
from tasks.recipes import preparing
from tasks.record import reconcile
from tasks.sandbox import outputs
from tasks.store import life as lives
from tasks.store.ledger import Ledger, freeze
from tasks.store.life import Life
from tasks.system.home import home
from tasks.tracking.outbox import Outbox

On = Annotated[list[str], Field(description="Other environments to run in; none: the campaign's own.")]
Runs = Annotated[
    int | None, Field(ge=2, le=100, description="Fresh runs of each arm; none: as a campaign's end has.")
]


@flow(name="certify", flow_run_name="{name}", persist_result=True, result_serializer="json")
def certify(name: str, on: On = [], runs: Runs = None) -> State[str]:  # noqa: B006 (Prefect shows the default)
    """Train a campaign's champion and its baseline afresh, and say what that proves."""
    ledger, run = Ledger.open(name), runtime.flow_run
    spec = _spec(ledger)
    before = ended(ledger)
    with Life(ledger, flow_run_id=run.id, page=run.ui_url) as life:
        crash_the_dead(ledger, run.id)
        make_ready(ledger, spec.launch)
        history = complete(spec, ledger, spec.slots(ledger.environment), reconcile(ledger))
        outbox = Outbox(ledger, spec.tracking, run.id, history)
        words = []
        with Showcase(ledger, run.id) as showcase:
            for bench in _benches(spec, ledger, on):
                make_ready(ledger, spec.launch, bench.elsewhere)
                made = run_certificate.certify(bench, runs or spec.certificate_runs(bench.environment) or 3)
                showcase.show(history)
                if made is None or not run_certificate.also_ablate(bench, made):
                    words.append("asked to stop")
                    break
                words.append(f"{bench.environment.name}: {'passed' if made.passed else made.reason}")
        found = stopping.stop(spec, ledger.environment, history, life.spent, asked=False)
        over = found or stopping.Stop("stopped", "certified before its trials were done")
        state = before.get("state", over.state)
        outbox.close(state)
        ledger.event("end", state=state, reason=before.get("reason", over.reason))
    return Completed(message="; ".join(words), data=name)


def prove(name: str, on: str | None, runs: int | None, server: str | None, as_json: bool) -> int:
    """Certify a campaign from the terminal; the command's exit code."""
    ledger = Ledger.open(name)
    if lives.is_running(ledger):
        raise Refused(
            f"campaign {name!r} is running ({lives.describe(ledger)}): its end takes a certificate by itself"
        )
    if runs is not None and not 2 <= runs <= 100:
        raise Refused(f"--runs {runs}: give 2 to 100 runs of each arm")
    elsewhere = [_lasting(one) for one in on.split(",") if one] if on else []
    ledger.verify()
    for one in elsewhere:
        _check_fits(ledger.environment, checked_environment(one, {}))
    if reason := run_certificate.no_champion(ledger.history()):
        raise Refused(f"campaign {name!r} cannot be certified: {reason}")
    for bench in _benches(_spec(ledger), ledger, elsewhere):
        if reason := run_certificate.nothing_to_certify(bench):
            raise Refused(f"campaign {name!r} cannot be certified: {reason}")
    api = connect.stated_server(server, home())
    console = Console(highlight=False, quiet=as_json)
    try:
        with Watch(name, console), connect.prefect_server(api, home()) as url:
            console.print(f"Prefect: {url.removesuffix('/api')}", style="dim")
            run_flow(certify, {"name": name, "on": elsewhere, "runs": runs}, url, console)
    except KeyboardInterrupt:
        print(
            f"\nnightshift: interrupted; no finished run is lost: nightshift certify {name}", file=sys.stderr
        )
        return 130
    return report(Ledger.open(name), as_json)


def _benches(spec: CampaignSpec, ledger: Ledger, on: list[str]) -> list[Bench]:
    """Where the champion is to be looked at."""
    history, slots = ledger.history(), spec.slots(ledger.environment)
    if not on:
        return [Bench(spec, ledger, history, slots)]
    return [Bench(spec, ledger, history, slots, _frozen(ledger, checked_environment(one, {}))) for one in on]


def _check_fits(own: Environment, environment: Environment) -> None:
    """Refuse an environment in which a campaign's champion cannot be run, or has been all the time."""
    if environment.name == own.name:
        raise Refused(f"--on {environment.name}: that is the campaign's own environment: leave --on out")
    if environment.trainer != own.trainer:
        raise Refused(
            f"--on {environment.name}: it trains with {environment.trainer!r}, the campaign with {own.trainer!r}: "
            "name an environment with the same trainer"
        )
    if environment.program or own.program:
        whose = environment.name if environment.program else own.name
        raise Refused(
            f"--on {environment.name}: {whose} has a program of its own, which is made for it alone: only champions of "
            "a trainer's program can be run elsewhere"
        )


def _frozen(ledger: Ledger, environment: Environment) -> Environment:
    """Another environment, frozen in the campaign's directory at the first look.

    Raises:
        Refused: it does not fit, or has changed since the first look in it.
    """
    _check_fits(ledger.environment, environment)
    path = ledger.path / "certificates" / f"on-{environment.name}"
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    freeze(environment, fresh)
    try:
        if not path.is_dir():
            fresh.rename(path)
        elif outputs.digest(path / "environment") != outputs.digest(fresh / "environment"):
            raise Refused(
                f"{environment.folder} is not what the first look in {environment.name} froze: {path}"
            )
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return preparing.laid(environments.load(path / "environment", {}, environment.name), ledger.path.parent)


def _spec(ledger: Ledger) -> CampaignSpec:
    return CampaignSpec.of(**stored_spec(ledger))


def _lasting(reference: str) -> str:
    """An environment's reference that means the same from any directory."""
    return reference if reference in environments.bundled() else str(Path(reference).expanduser().resolve())
