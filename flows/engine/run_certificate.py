"""The certificate of a campaign: its champion and its baseline, trained afresh and compared
(tasks/deciding/certificate.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments.plugins import Refused
from flows.engine.runner import Bench
from flows.engine.worker_pool import side_by_side
from tasks.deciding import holdout_uses
from tasks.deciding.ablation import Ablation, Removed, parts
from tasks.deciding.certificate import (
    Arm,
    Certificate,
    Fresh,
    alpha_of,
    conclude,
    guard_noise,
    order,
    unpromising,
)
from tasks.deciding.standing import standing
from tasks.record import rewrite
from tasks.store.ledger import ABLATION, CERTIFICATE, Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, best


@dataclass(frozen=True)
class DeclaredAnalysis:
    """A look as it was declared before its first run: what is seen on the way changes neither."""

    champion: int
    runs: int
    """Of each arm."""


LOOK = TypeAdapter(DeclaredAnalysis)


def at_the_end(bench: Bench) -> bool:
    """Look at the champion of a campaign that has ended, if that is worth it; False when somebody asked to stop."""
    if not bench.spec.loaded_rule.certifies:
        return True
    made = known(bench)
    if made is None:
        if reason := why_not(bench):
            bench.ledger.event("uncertified", reason=reason)
            return True
        made = certify(bench, bench.spec.certificate_runs(bench.environment))
    return made is not None and also_ablate(bench, made)


def also_ablate(bench: Bench, made: Certificate) -> bool:
    """Run what passed without each of its changes, where that was asked; False when somebody asked to stop."""
    due = made.passed and not made.elsewhere and bench.spec.advanced.ablation
    if not due or bench.ledger.ablation(made.champion):
        return True
    return ablate(bench, made) is not None


def why_not(bench: Bench) -> str | None:
    """Why a campaign does not look at its champion by itself; None when it does."""
    return nothing_to_certify(bench) or unpromising(bench.history)


def nothing_to_certify(bench: Bench) -> str | None:
    """Why nobody can look at the champion; None when one can."""
    if reason := no_champion(bench.history):
        return reason
    if not alpha_of(next_look(bench), bench.ledger.campaign.looks):
        return (
            "the campaign declared one look before it began, and took it; a campaign that is begun with "
            "looks = several may take more, and `nightshift duel` compares two programs at any time"
        )
    return None


def no_champion(history: History) -> str | None:
    """Why there is no champion but the baseline; None when there is one."""
    champion = best(history)
    if champion is None:
        return "no trial has a score"
    return "nothing that was tried was kept" if champion.number == history[0].number else None


def known(bench: Bench) -> Certificate | None:
    """The newest certificate of the champion as it is, one that passed if any did; None without."""
    champion = best(bench.history)
    own = [one for one in bench.ledger.certificates() if not one.elsewhere]
    mine = [one for one in own if champion and one.champion == champion.number]
    return next((one for one in reversed(mine) if one.passed), mine[-1] if mine else None)


def next_look(bench: Bench) -> int:
    """The number of the next certificate in the bench's environment."""
    here = bench.elsewhere is not None, bench.environment.name
    return 1 + len([one for one in bench.ledger.certificates() if (one.elsewhere, one.environment) == here])


def certify(bench: Bench, runs: int) -> Certificate | None:
    """Take the next look at the champion, with `runs` fresh runs of each arm; None when somebody asked to stop.

    A look is declared before its first run, and one that was begun goes on as it was declared: no run that is done is
    done again. If there is another champion by now, it counts as taken, and did not pass.

    Raises:
        Refused: there is nothing to look at, or no look left.
    """
    if reason := nothing_to_certify(bench):
        raise Refused(f"campaign {bench.ledger.campaign.name!r} cannot be certified: {reason}")
    ledger, look, environment = bench.ledger, next_look(bench), bench.environment
    champion, alpha = _champion(bench), alpha_of(look, ledger.campaign.looks)
    name = f"certificate-{look}{_on(bench)}"
    declared = _declared(bench, look, DeclaredAnalysis(champion, runs))
    if declared.champion != champion:
        why = f"it was begun for trial {declared.champion}, and not finished before another trial became champion"
        lost = Certificate(
            look,
            alpha,
            declared.champion,
            environment.name,
            (),
            False,
            why,
            elsewhere=bench.elsewhere is not None,
        )
        store(ledger, lost)
        return lost if nothing_to_certify(bench) else certify(bench, runs)
    ledger.event("certify", look=look, champion=champion, runs=declared.runs, environment=environment.name)
    before = (
        holdout_uses.note(environment.prepared, ledger.campaign.campaign_id, look)
        if environment.prepared
        else None
    )

    def one(arm: Arm, number: int) -> Fresh | None:
        return (
            None
            if _asked_to_stop(ledger)
            else bench.fresh(name, f"{look}{_on(bench)}", champion, arm, number)
        )

    runs_in_order = order(declared.runs, ledger.seed("order", ledger.at(champion, name)))
    done = side_by_side(one, runs_in_order, bench.spec.parallel)
    fresh = [run for run in done if run is not None]
    if len(fresh) < len(done):
        return None
    level = standing(bench.history)
    # What the noise is elsewhere nobody knows.
    noise = {} if bench.elsewhere else guard_noise(environment.guards, bench.history)
    certificate = conclude(
        look, alpha, champion, environment.name, fresh, environment.guards,
        sd=level.sd if level and not bench.elsewhere else 0.0, noise=noise, elsewhere=bench.elsewhere is not None,
    )  # fmt: skip
    certificate = replace(certificate, looked_before=before)
    store(ledger, certificate)
    return certificate


def _champion(bench: Bench) -> int:
    champion = best(bench.history)
    assert champion is not None, "there is something to certify"
    return champion.number


def _declared(bench: Bench, look: int, asked: DeclaredAnalysis) -> DeclaredAnalysis:
    """The look as it was declared when it was begun, or now."""
    path = bench.ledger.path / "certificates" / f"{look}{_on(bench)}.begun"
    if not path.is_file():
        write_atomic(path, LOOK.dump_json(asked).decode() + "\n")
    return LOOK.validate_json(path.read_bytes())


def _asked_to_stop(ledger: Ledger) -> bool:
    interrupt.check()
    return (ledger.path / "stop").exists()


def _on(bench: Bench) -> str:
    return f"-on-{bench.environment.name}" if bench.elsewhere else ""


def ablate(bench: Bench, certificate: Certificate) -> Ablation | None:
    """Run a certified champion without each of its changes, once; None when somebody asked to stop."""
    champion, level, ledger = best(bench.history), standing(bench.history), bench.ledger
    assert champion is not None and level is not None, "it was certified"
    removed = []
    for number, (change, proposal) in enumerate(parts(champion, bench.history[0]), 1):
        if _asked_to_stop(ledger):
            return None
        place = TrialDir(ledger.path / "ablations" / f"{champion.number:04d}-{number}")
        part = f"ablation-{number}"
        removed.append(
            Removed(change, *bench.measure(champion.number, proposal, part, "confirm", place=place))
        )
    scores = [score.goodness for score in certificate.scores("champion")]
    mean = sum(scores) / len(scores)
    made = Ablation(champion.number, mean, len(scores), level.sd, tuple(removed))
    path = ledger.path / "ablations" / f"{champion.number:04d}.json"
    write_atomic(path, ABLATION.dump_json(made, indent=2).decode() + "\n")
    ledger.event("ablated", trial=champion.number, changes=[one.change for one in removed])
    return made


def store(ledger: Ledger, certificate: Certificate) -> None:
    """Write a certificate down, as a whole."""
    write_atomic(path_of(ledger, certificate), CERTIFICATE.dump_json(certificate, indent=2).decode() + "\n")
    rewrite(ledger)
    ledger.event("certified", look=certificate.look, trial=certificate.champion, passed=certificate.passed)


def path_of(ledger: Ledger, certificate: Certificate) -> Path:
    elsewhere = f"-on-{certificate.environment}" if certificate.elsewhere else ""
    return ledger.path / "certificates" / f"{certificate.look}{elsewhere}.json"
