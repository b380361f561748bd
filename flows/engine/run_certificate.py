"""Running a certificate: champion and baseline, retrained and compared (tasks/certifying/certificate.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.judges import ComparisonBlock
from environments.plugins import Refused
from flows.engine import stopping
from flows.engine.preparation import report_pool
from flows.engine.runner import Runner
from flows.engine.worker_pool import run_in_parallel
from tasks.certifying import holdout_uses
from tasks.certifying.ablation import Ablation, Removed, ablation_runs, parts
from tasks.certifying.certificate import Certificate, Fresh, conclude, unpromising
from tasks.certifying.group_design import ALPHA, Arm, Design, alpha_of, design_of, equal_arms, in_groups, of_groups
from tasks.certifying.reuse import reuse, searched
from tasks.certifying.transfer import Conditions
from tasks.deciding.champion_estimate import champion_estimate, has_edits, run_sd
from tasks.deciding.guards import guard_noise
from tasks.describe import setting
from tasks.recipes import output
from tasks.record import rewrite
from tasks.store.ledger import ABLATION, CERTIFICATE, Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, Params, baseline, best


@dataclass(frozen=True)
class DeclaredAnalysis:
    """A certificate as declared before its first run; its results change nothing of it."""

    champion: int
    runs: int
    """Of the champion at most."""
    design: Design | None = None
    """Without those of earlier certificates. None in campaigns of version 0.2 and before: one look at `runs` each."""
    changed: Params | None = None
    """As in the certificate."""


LOOK = TypeAdapter(DeclaredAnalysis)


def at_the_end(runner: Runner) -> bool:
    """Certify the champion of a finished campaign if it is worthwhile; False if it was stopped before."""
    if not runner.spec.loaded_rule.certifies:
        return True
    made = known(runner)
    if made is None:
        if reason := why_not(runner):
            runner.ledger.event("uncertified", reason=reason)
            return True
        made = certify(runner)
    return made is not None and also_ablate(runner, made)


def is_due(runner: Runner) -> bool:
    """Whether the end of the campaign is to make a certificate."""
    return runner.spec.loaded_rule.certifies and known(runner) is None and why_not(runner) is None


def also_ablate(runner: Runner, made: Certificate) -> bool:
    """Run a certified champion without each of its changes, if asked for; False if it was stopped before."""
    due = made.passed and not made.elsewhere and runner.spec.advanced.ablation
    if not due or runner.ledger.ablation(made.champion):
        return True
    return ablate(runner, made) is not None


def why_not(runner: Runner) -> str | None:
    """Why a campaign does not certify its champion by itself; None if it does."""
    champion = best(runner.history)
    return nothing_to_certify(runner) or (unpromising(runner.history, champion) if champion else None)


def nothing_to_certify(runner: Runner, runs: int | None = None) -> str | None:
    """Why the champion cannot be certified, with at most `runs` of each arm if given; None if it can."""
    if reason := no_champion(runner.history):
        return reason
    if runner.environment.scores_are_reported:
        return "its scores were reported by the endpoint that trained it, and nothing here has measured them"
    if not alpha_of(next_look(runner), runner.ledger.campaign.looks):
        return (
            "the campaign declared one look before it began, and took it; a campaign that is begun with "
            "looks = several may take more, and `nightshift duel` compares two programs at any time"
        )
    return _earlier_crash(runner) or _too_few_questions(runner, runs)


def _earlier_crash(runner: Runner) -> str | None:
    champion = best(runner.history)
    assert champion is not None, "there is one"
    if any(run.arm == "champion" and run.score.value is None for run in _earlier(runner, champion.number)):
        return "a fresh run of this champion crashed in an earlier certificate, which counts in all later ones"
    return None


def _too_few_questions(runner: Runner, runs: int | None) -> str | None:
    pool = report_pool(runner.environment)
    made = output.read(pool) if pool and runner.environment.judge.block_units == "disjoint" else None
    if made is None:
        return None
    assert pool is not None, "its result is there"
    design, fewest = planned(runner, ALPHA, runs), runner.environment.judge.most_blocks(pool, "report")
    has = made.questions["report"] if fewest is None else fewest
    if has >= (blocks := max(design.champion, design.baseline)):
        return None
    of = "" if has == made.questions["report"] else " of one source"
    return f"its report pool has {has} questions{of}, and {blocks} runs need one each at least: make more of them"


def no_champion(history: History) -> str | None:
    """Why there is no champion besides the baseline; None if there is one."""
    first, champion = baseline(history), best(history)
    if champion is None:
        return "no trial has a score"
    if first is None or first.score.value is None:
        return "the baseline has no score, so there is nothing to compare with"
    return "nothing that was tried was kept" if champion.number == 0 else None


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
    """Number of the next certificate in the runner's environment, with its budget."""
    return 1 + len([one for one in runner.ledger.certificates() if is_of(runner, one)])


def is_of(runner: Runner, certificate: Certificate) -> bool:
    """Whether a certificate answers the runner's question: in its environment, with its budget."""
    asked = runner.is_apart, runner.environment.name, runner.budget
    return (certificate.elsewhere, certificate.environment, certificate.budget) == asked


def is_answered(runner: Runner) -> bool:
    """Whether the champion took the last certificate that the campaign declared for the runner's question."""
    champion, made = best(runner.history), [one for one in runner.ledger.certificates() if is_of(runner, one)]
    is_last = not alpha_of(1 + len(made), runner.ledger.campaign.looks)
    return is_last and champion is not None and made[-1].champion == champion.number


def certify(runner: Runner, runs: int | None = None) -> Certificate | None:
    """Make the next certificate of the champion, group by group; None if somebody asked to stop, or the disk is full.

    A certificate is declared before its first run, and an interrupted one continues as declared: no finished run is
    repeated. Runs of earlier certificates of this champion count. If the champion has changed since it was declared,
    it counts as used and not passed. Refused if there is nothing to certify, or no certificate left.

    Args:
        runs: Fresh runs of each arm at most; None: as at the end of a campaign.
    """
    if reason := nothing_to_certify(runner, runs):
        raise Refused(f"campaign {runner.ledger.campaign.name!r} cannot be certified: {reason}")
    ledger, look, environment = runner.ledger, next_look(runner), runner.environment
    leader, pool, conditions = best(runner.history), report_pool(environment), runner.conditions
    assert leader is not None, "there is something to certify"
    champion, is_apart = leader.number, runner.is_apart
    folder = name_of(look, environment.name, is_apart, conditions)
    # Another budget is another question, so another use of the same report questions.
    before, alpha, user = None, alpha_of(look, ledger.campaign.looks), f"{ledger.campaign.campaign_id}{conditions.name}"
    if pool:  # before the declaration, which it limits
        before, level_of_use = holdout_uses.charge(pool, user, look)
        alpha = min(alpha, level_of_use)
    declared = _declared(runner, folder, champion, alpha, runs)
    if why := _given_up(declared, champion, conditions):
        lost = Certificate(
            look, alpha, declared.champion, environment.name, (), False, why, elsewhere=is_apart, conditions=conditions
        )
        store(ledger, lost)
        return lost if nothing_to_certify(runner) else certify(runner, runs)
    own = declared.design or Design(((declared.runs, declared.runs),), (alpha,))
    ledger.event(
        "certify", look=look, champion=champion, runs=declared.runs, planned=own.runs, environment=environment.name,
        folder=folder, groups=own.groups, budget=conditions.budget, budget_seconds=environment.budget_seconds,
        where=setting(environment.name, conditions.budget) if is_apart else "",
    )  # fmt: skip

    # The shares of a pool in another certificate have other sizes, so its runs were judged on some of these questions.
    shares = bool(pool) and environment.judge.block_units == "disjoint"
    fresh = [] if shares else [*_earlier(runner, champion)]
    carried = tuple(sum(run.arm == arm for run in fresh) for arm in ("champion", "baseline"))
    design, carries = own.after(carried[0], carried[1]), len(fresh)
    blocks = max(design.champion, design.baseline)

    def one(arm: Arm, number: int) -> Fresh | None:
        return None if _is_hindered(ledger) else runner.fresh(folder, champion, arm, number, blocks)

    # The search tells nothing of another environment or budget: neither noise nor runs of the baseline.
    history = () if is_apart else runner.history
    sd, known = run_sd(history), guard_noise(environment.guards, history)
    noise = {name: found.sd for name, found in known.items()}
    draw = ledger.seed("order", ledger.at(champion, f"certificate-{folder}"))
    for group in in_groups(design.groups, draw, (carried[0], carried[1])):
        done = run_in_parallel(one, group, runner.spec.parallel)
        fresh += [run for run in done if run is not None]
        if None in done:
            return None
        certificate = conclude(
            look, alpha, champion, environment.name, fresh, environment.guards,
            sd=sd, noise=noise, elsewhere=is_apart, design=design,
            search=searched(history),
            apart="its questions are others than the certificate's" if environment.prepared else "",
            same_units=_same_units(environment, fresh), deterministic=environment.deterministic, carried=carries,
        )  # fmt: skip
        if not certificate.another:
            break
        ledger.event("looked", look=look, champion=champion, runs=len(fresh) - carries, reason=certificate.reason)
    certificate = replace(certificate, looked_before=before, conditions=conditions)
    if pool:
        holdout_uses.conclude(pool, user, look, certificate.passed)
    store(ledger, certificate)
    return certificate


def _declared(runner: Runner, folder: str, champion: int, alpha: float, runs: int | None) -> DeclaredAnalysis:
    """The certificate as it was declared; it is now, unless it was."""
    if (known := _begun(runner)) is not None:
        return known
    asked = planned(runner, alpha, runs)
    new = DeclaredAnalysis(champion, asked.champion, asked, runner.conditions.changed)
    write_atomic(runner.ledger.path / "certificates" / f"{folder}.begun", LOOK.dump_json(new).decode() + "\n")
    return new


def _begun(runner: Runner) -> DeclaredAnalysis | None:
    """The next certificate, if it was declared already."""
    folder = name_of(next_look(runner), runner.environment.name, runner.is_apart, runner.conditions)
    declaration = runner.ledger.path / "certificates" / f"{folder}.begun"
    return LOOK.validate_json(declaration.read_bytes()) if declaration.is_file() else None


def _given_up(declared: DeclaredAnalysis, champion: int, conditions: Conditions) -> str:
    """Why a declared certificate cannot be continued; empty if it can."""
    if declared.champion != champion:
        return f"it was begun for trial {declared.champion}, and not finished before another trial became champion"
    if declared.changed != conditions.changed:
        return "it was begun by an earlier version, whose runs there had other parameters"
    return ""


def planned(runner: Runner, alpha: float, runs: int | None = None) -> Design:
    """The design of the next certificate, without the runs of earlier ones: as declared, if it goes on."""
    environment, spec, champion, begun = runner.environment, runner.spec, best(runner.history), _begun(runner)
    if begun and champion and not _given_up(begun, champion.number, runner.conditions):
        return begun.design or Design(((begun.runs, begun.runs),), (alpha,))
    if runs is not None:
        return of_groups(equal_arms(runs), alpha)
    # Runs on a finite pool share its questions out: unequal arms would leave some to one arm alone.
    known = not runner.is_apart and not report_pool(environment) and bool(reuse(searched(runner.history), ()).spread)
    runs_in_time = spec.runs_in_time(runner.ledger.environment)
    return design_of(
        spec.trials, environment.deterministic, known, alpha, edits=has_edits(runner.history), runs=runs_in_time
    )


def _earlier(runner: Runner, champion: int) -> tuple[Fresh, ...]:
    """The runs of earlier certificates of a champion in the runner's environment, with the same arms."""
    every = [one for one in runner.ledger.certificates() if is_of(runner, one) and one.champion == champion]
    made = [one for one in every if one.runs and one.conditions.changed == runner.conditions.changed]
    return made[-1].runs if made else ()


def _same_units(environment: Environment, runs: Sequence[Fresh]) -> int:
    """Units that every run was judged on; 0 where they are drawn anew."""
    return max(run.score.n for run in runs) if environment.judge.block_units == "same" else 0


def _is_hindered(ledger: Ledger) -> bool:
    """Whether no further run may begin: somebody asked to stop, or the disk is full."""
    interrupt.check()
    return (ledger.path / "stop").exists() or bool(stopping.no_room(ledger.path))


def ablate(runner: Runner, certificate: Certificate) -> Ablation | None:
    """Run a certified champion afresh, and without each of its changes; None if it was stopped before."""
    champion, level, ledger = best(runner.history), champion_estimate(runner.history), runner.ledger
    assert champion is not None and champion.number == certificate.champion and level is not None, "it was certified"
    first = baseline(runner.history)
    assert first is not None, "it was compared with it"
    arms = (("", champion.proposal), *parts(champion, first))
    blocks, each = ablation_runs(len(arms) - 1, runner.environment.deterministic)

    def one(arm: int, block: int) -> Removed | None:
        if _is_hindered(ledger):
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
    name = name_of(certificate.look, certificate.environment, certificate.elsewhere, certificate.conditions)
    return ledger.path / "certificates" / f"{name}.json"


def name_of(look: int, environment: str, elsewhere: bool, conditions: Conditions) -> str:
    """The name of a certificate's file, and the beginning of those of its runs."""
    at = f"-at{conditions.name}" * bool(conditions.name)
    return f"{look}{at}-on-{environment}" if elsewhere else str(look)
