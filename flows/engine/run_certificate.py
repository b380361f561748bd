"""Running a certificate: champion and baseline, retrained and compared (tasks/deciding/certificate.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments.judges import ComparisonBlock
from environments.plugins import Refused
from flows.engine.preparation import report_pool
from flows.engine.runner import Runner
from flows.engine.worker_pool import run_in_parallel
from tasks.deciding import holdout_uses
from tasks.deciding.ablation import Ablation, Removed, ablation_runs, parts
from tasks.deciding.certificate import Arm, Certificate, Fresh, alpha_of, conclude, order, unpromising
from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.guards import guard_noise
from tasks.record import rewrite
from tasks.store.ledger import ABLATION, CERTIFICATE, Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, baseline, best


@dataclass(frozen=True)
class DeclaredAnalysis:
    """An analysis as declared before its first run; its results change neither field."""

    champion: int
    runs: int
    """Per arm."""


LOOK = TypeAdapter(DeclaredAnalysis)


def at_the_end(runner: Runner) -> bool:
    """Certify the champion of a finished campaign if it is worthwhile; False if somebody asked to stop."""
    if not runner.spec.loaded_rule.certifies:
        return True
    made = known(runner)
    if made is None:
        if reason := why_not(runner):
            runner.ledger.event("uncertified", reason=reason)
            return True
        made = certify(runner, runner.spec.certificate_runs(runner.environment))
    return made is not None and also_ablate(runner, made)


def also_ablate(runner: Runner, made: Certificate) -> bool:
    """Run a certified champion without each of its changes, if asked for; False if somebody asked to stop."""
    due = made.passed and not made.elsewhere and runner.spec.advanced.ablation
    if not due or runner.ledger.ablation(made.champion):
        return True
    return ablate(runner, made) is not None


def why_not(runner: Runner) -> str | None:
    """Why a campaign does not certify its champion by itself; None if it does."""
    return nothing_to_certify(runner) or unpromising(runner.history)


def nothing_to_certify(runner: Runner) -> str | None:
    """Why the champion cannot be certified; None if it can."""
    if reason := no_champion(runner.history):
        return reason
    if not alpha_of(next_look(runner), runner.ledger.campaign.looks):
        return (
            "the campaign declared one look before it began, and took it; a campaign that is begun with "
            "looks = several may take more, and `nightshift duel` compares two programs at any time"
        )
    return None


def no_champion(history: History) -> str | None:
    """Why there is no champion besides the baseline; None if there is one."""
    first, champion = baseline(history), best(history)
    if champion is None:
        return "no trial has a score"
    if first is None or first.score.value is None:
        return "the baseline has no score, so there is nothing to compare with"
    return "nothing that was tried was kept" if champion.number == history[0].number else None


def known(runner: Runner) -> Certificate | None:
    """The newest certificate of the present champion, preferably one that passed; None without."""
    champion = best(runner.history)
    mine = [
        one
        for one in runner.ledger.certificates()
        if not one.elsewhere and champion and one.champion == champion.number
    ]
    return next((one for one in reversed(mine) if one.passed), mine[-1] if mine else None)


def next_look(runner: Runner) -> int:
    """Number of the next certificate in the runner's environment."""
    here = runner.elsewhere is not None, runner.environment.name
    return 1 + len([one for one in runner.ledger.certificates() if (one.elsewhere, one.environment) == here])


def certify(runner: Runner, runs: int) -> Certificate | None:
    """Run the next analysis of the champion, with `runs` fresh runs per arm; None if somebody asked to stop.

    An analysis is declared before its first run, and an interrupted one continues as declared: no finished run is
    repeated. If the champion has changed since, the analysis counts as used and not passed. Refused if there is
    nothing to certify, or no analysis left.
    """
    if reason := nothing_to_certify(runner):
        raise Refused(f"campaign {runner.ledger.campaign.name!r} cannot be certified: {reason}")
    ledger, look, environment = runner.ledger, next_look(runner), runner.environment
    leader, alpha, is_elsewhere = (best(runner.history), alpha_of(look, ledger.campaign.looks), bool(runner.elsewhere))
    assert leader is not None, "there is something to certify"
    champion, folder = leader.number, f"{look}-on-{environment.name}" if is_elsewhere else str(look)
    pool, before, campaign_id = report_pool(environment), None, ledger.campaign.campaign_id
    if pool:  # before the declaration, which it limits
        before, level_of_use = holdout_uses.charge(pool, campaign_id, look)
        alpha = min(alpha, level_of_use)
    declaration = ledger.path / "certificates" / f"{folder}.begun"
    if not declaration.is_file():
        asked = DeclaredAnalysis(champion, runs)
        write_atomic(declaration, LOOK.dump_json(asked).decode() + "\n")
    declared = LOOK.validate_json(declaration.read_bytes())
    if declared.champion != champion:
        why = f"it was begun for trial {declared.champion}, and not finished before another trial became champion"
        lost = Certificate(look, alpha, declared.champion, environment.name, (), False, why, elsewhere=is_elsewhere)
        store(ledger, lost)
        return lost if nothing_to_certify(runner) else certify(runner, runs)
    ledger.event("certify", look=look, champion=champion, runs=declared.runs, environment=environment.name)

    def one(arm: Arm, number: int) -> Fresh | None:
        return None if _asked_to_stop(ledger) else runner.fresh(folder, champion, arm, number, declared.runs)

    runs_in_order = order(declared.runs, ledger.seed("order", ledger.at(champion, f"certificate-{folder}")))
    done = run_in_parallel(one, runs_in_order, runner.spec.parallel)
    fresh = [run for run in done if run is not None]
    if len(fresh) < len(done):
        return None
    level = champion_estimate(runner.history)
    # The noise in other environments is unknown.
    known = {} if is_elsewhere else guard_noise(environment.guards, runner.history)
    noise = {name: found.sd for name, found in known.items()}
    certificate = conclude(
        look, alpha, champion, environment.name, fresh, environment.guards,
        sd=level.sd if level and not is_elsewhere else 0.0, noise=noise, elsewhere=is_elsewhere,
    )  # fmt: skip
    certificate = replace(certificate, looked_before=before)
    if pool:
        holdout_uses.conclude(pool, campaign_id, look, certificate.passed)
    store(ledger, certificate)
    return certificate


def _asked_to_stop(ledger: Ledger) -> bool:
    interrupt.check()
    return (ledger.path / "stop").exists()


def ablate(runner: Runner, certificate: Certificate) -> Ablation | None:
    """Run a certified champion afresh, and without each of its changes; None if somebody asked to stop."""
    champion, level, ledger = best(runner.history), champion_estimate(runner.history), runner.ledger
    assert champion is not None and champion.number == certificate.champion and level is not None, "it was certified"
    arms = (("", champion.proposal), *parts(champion, runner.history[0]))
    blocks, each = ablation_runs(len(arms) - 1, runner.environment.deterministic)

    def one(arm: int, block: int) -> Removed | None:
        if _asked_to_stop(ledger):
            return None
        change, proposal = arms[arm]
        place = TrialDir(ledger.path / "ablations" / f"{champion.number:04d}-{arm}-{block}")
        judged = ledger.at(champion.number, f"ablation-block-{block}")
        part, share = f"ablation-{arm}-{block}", ComparisonBlock(block, blocks)
        return Removed(
            change, *runner.measure(champion.number, proposal, part, "confirm", place=place, judged=judged, block=share)
        )

    runs = [(arm, block) for block in range(1, blocks + 1) for arm in range(len(arms)) if not arm or block <= each]
    done = run_in_parallel(one, runs, runner.spec.parallel)
    fresh = [run for run in done if run is not None]
    if len(fresh) < len(done):
        return None
    kept, removed = ([run for run in fresh if bool(run.change) is gone] for gone in (False, True))
    made = Ablation.of(champion.number, kept, removed, level.sd)
    path = ledger.path / "ablations" / f"{champion.number:04d}.json"
    write_atomic(path, ABLATION.dump_json(made, indent=2).decode() + "\n")
    ledger.event("ablated", trial=champion.number, changes=[change for change, _ in arms[1:]])
    return made


def store(ledger: Ledger, certificate: Certificate) -> None:
    """Write a certificate to disk, atomically."""
    write_atomic(path_of(ledger, certificate), CERTIFICATE.dump_json(certificate, indent=2).decode() + "\n")
    rewrite(ledger)
    ledger.event("certified", look=certificate.look, trial=certificate.champion, passed=certificate.passed)


def path_of(ledger: Ledger, certificate: Certificate) -> Path:
    elsewhere = f"-on-{certificate.environment}" if certificate.elsewhere else ""
    return ledger.path / "certificates" / f"{certificate.look}{elsewhere}.json"
