"""The certificate of a campaign: its champion and its baseline, trained afresh and compared (tasks/certificate.py)."""

from __future__ import annotations

from pathlib import Path

from flows.bench import Bench
from tasks import interrupt, workspace
from tasks.ablation import Ablation, Removed, parts
from tasks.certificate import Certificate, alpha_of, conclude, order, unpromising
from tasks.ledger import ABLATION, CERTIFICATE, Ledger
from tasks.record import rewrite
from tasks.standing import standing
from tasks.trial import best
from tasks.workspace import TrialDir


def at_the_end(bench: Bench) -> None:
    """Look at the champion of a campaign that has ended, if that is worth it; the reason is noted if it is not."""
    if not bench.spec.loaded_rule.certifies or known(bench):
        return
    if reason := why_not(bench):
        bench.ledger.event("uncertified", reason=reason)
        return
    made = certify(bench, bench.spec.certificate_runs(bench.environment))
    if made.passed and bench.spec.advanced.ablation:
        ablate(bench, made)


def why_not(bench: Bench) -> str | None:
    """Why a campaign does not look at its champion by itself; None when it does."""
    return nothing_to_certify(bench) or unpromising(bench.history)


def nothing_to_certify(bench: Bench) -> str | None:
    """Why nobody can look at the champion; None when one can."""
    champion = best(bench.history)
    if champion is None:
        return "no trial has a score"
    if champion.number == bench.history[0].number:
        return "nothing that was tried was kept"
    if not alpha_of(next_look(bench), bench.ledger.campaign.looks):
        return (
            "the campaign declared one look before it began, and took it; a campaign that is begun with "
            "looks = several may take more, and `nightshift duel` compares two programs at any time"
        )
    return None


def known(bench: Bench) -> Certificate | None:
    """The certificate of the champion as it is, where one was made."""
    champion = best(bench.history)
    own = [one for one in bench.ledger.certificates() if not one.elsewhere]
    return next((one for one in own if champion and one.champion == champion.number), None)


def next_look(bench: Bench) -> int:
    """The number of the next certificate in the bench's environment."""
    return (
        len(
            [
                one
                for one in bench.ledger.certificates()
                if one.elsewhere == bool(bench.elsewhere) and one.environment == bench.environment.name
            ]
        )
        + 1
    )


def certify(bench: Bench, runs: int) -> Certificate:
    """Take the next look at the champion, with `runs` fresh runs of each arm; none that is done is done again."""
    champion = best(bench.history)
    assert champion is not None, "there is something to certify"
    ledger, look, environment = bench.ledger, next_look(bench), bench.environment
    name = f"certificate-{look}{_on(bench)}"
    ledger.event("certify", look=look, champion=champion.number, runs=runs, environment=environment.name)
    at = ledger.at(champion.number, name)
    fresh = []
    for arm, number in order(runs, ledger.seed("order", at)):
        interrupt.check()
        fresh.append(bench.fresh(name, f"{look}{_on(bench)}", champion.number, arm, number))
    level = standing(bench.history)
    # What the noise is elsewhere nobody knows yet.
    sd = level.sd if level and not bench.elsewhere else 0.0
    certificate = conclude(
        look, alpha_of(look, ledger.campaign.looks), champion.number, environment.name, fresh, environment.guards,
        sd=sd, elsewhere=bench.elsewhere is not None,
    )  # fmt: skip
    store(ledger, certificate)
    return certificate


def _on(bench: Bench) -> str:
    return f"-on-{bench.environment.name}" if bench.elsewhere else ""


def ablate(bench: Bench, certificate: Certificate) -> Ablation:
    """Run a certified champion without each of its changes, once."""
    champion, level, ledger = best(bench.history), standing(bench.history), bench.ledger
    assert champion is not None and level is not None, "it was certified"
    removed = []
    for number, (change, proposal) in enumerate(parts(champion, bench.history[0]), 1):
        interrupt.check()
        place = TrialDir(ledger.path / "ablations" / f"{champion.number:04d}-{number}")
        part = f"ablation-{number}"
        removed.append(
            Removed(change, *bench.measure(champion.number, proposal, part, "confirm", place=place))
        )
    scores = [score.goodness for score in certificate.scores("champion")]
    mean = sum(scores) / len(scores)
    made = Ablation(champion.number, mean, len(scores), level.sd, tuple(removed))
    path = ledger.path / "ablations" / f"{champion.number:04d}.json"
    workspace.write(path, ABLATION.dump_json(made, indent=2).decode() + "\n")
    ledger.event("ablated", trial=champion.number, changes=[one.change for one in removed])
    return made


def store(ledger: Ledger, certificate: Certificate) -> None:
    """Write a certificate down, as a whole."""
    workspace.write(
        path_of(ledger, certificate), CERTIFICATE.dump_json(certificate, indent=2).decode() + "\n"
    )
    rewrite(ledger)
    ledger.event("certified", look=certificate.look, trial=certificate.champion, passed=certificate.passed)


def path_of(ledger: Ledger, certificate: Certificate) -> Path:
    elsewhere = f"-on-{certificate.environment}" if certificate.elsewhere else ""
    return ledger.path / "certificates" / f"{certificate.look}{elsewhere}.json"
