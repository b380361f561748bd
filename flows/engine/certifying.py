"""Making a certificate: champion and baseline, retrained and compared (tasks/stats/certificate.py).

Its runs are trained and judged by the campaign's own `measure`, each with a plan of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.judges import ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from flows.engine import stopping
from flows.engine.attempt import Measurement, Train
from flows.engine.night import Night
from flows.engine.stopping import ASKED, Stop
from flows.spec.campaign_spec import CampaignSpec
from tasks.bench import Bench, RunPlan, Units, folder_of
from tasks.describe import setting
from tasks.recipes import output
from tasks.recipes.preparing import report_pool
from tasks.record import reconcile
from tasks.run_checks import same_play, same_weights
from tasks.stats import holdout_uses
from tasks.stats.ablation import Ablation, Removed, ablation_runs, parts
from tasks.stats.certificate import Certificate, Fresh, Searched, conclude, counted, drift, searched, unpromising
from tasks.stats.champion import run_sd
from tasks.stats.design import Arm, Design, alpha_of, design_of, equal_arms, least_p, of_groups
from tasks.stats.transfer import Arms, Conditions
from tasks.store.ledger import ABLATION, CERTIFICATE, Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, Run, baseline, best

Measure = Callable[..., Measurement]
"""`flows.campaign.measure`."""


@dataclass(frozen=True)
class Question:
    """What a certificate asks of a campaign: in which environment, and with which training budget."""

    spec: CampaignSpec
    ledger: Ledger
    history: History
    transfer: Environment | None = None
    """Another environment to run in; None: the campaign's own."""
    budget: float = 1.0
    """Training budget of each run, in that of the environment."""
    arms: Arms | None = None
    """What both arms run in another environment; None: the trials as they are."""

    @property
    def environment(self) -> Environment:
        return (self.transfer or self.ledger.environment).at(self.budget)

    @property
    def is_transfer(self) -> bool:
        """Whether its runs do not compare with those of the search."""
        return self.transfer is not None or self.budget != 1

    @property
    def conditions(self) -> Conditions:
        changed, left_out = (self.arms.changed, self.arms.left_out) if self.arms else (None, ())
        return Conditions(self.budget, changed, left_out)

    def bench(self, night: Night) -> Bench:
        if not self.is_transfer:
            return night.bench
        slots = self.spec.slots(self.environment)
        price, parallel = self.spec.advanced.usd_per_hour, self.spec.parallel
        bench = Bench(self.ledger, self.spec.isolation, slots, parallel, self.transfer, self.budget, price)
        night.benches.append(bench)
        return bench


def certify_at_the_end(night: Night, stop: Stop, measure: Measure) -> Stop:
    """Certify the champion of a campaign that has ended, if it is worthwhile; how the campaign ends then."""
    if stop.state != "finished" or not night.rule.certifies:
        return stop
    question = Question(night.spec, night.ledger, night.history)
    made = known(question)
    if made is None:
        if reason := why_not(question):
            night.ledger.event("uncertified", reason=reason)
            return stop
        made = certify(night, question, measure)
    done = made is not None and also_ablate(night, question, made, measure)
    return stop if done else stopping.full(night.ledger.path) or ASKED


@dataclass(frozen=True)
class DeclaredAnalysis:
    """A certificate as declared before its first run; its results change nothing of it."""

    champion: int
    design: Design
    """Without the runs of earlier certificates."""


DECLARATION = TypeAdapter(DeclaredAnalysis)


def also_ablate(night: Night, question: Question, made: Certificate, measure: Measure) -> bool:
    """Run a certified champion without each of its changes, if asked for; False if it was stopped before."""
    due = made.passed and not made.elsewhere and question.spec.advanced.ablation
    if not due or question.ledger.ablation(made.champion):
        return True
    return ablate(night, question, made, measure) is not None


def why_not(question: Question) -> str | None:
    """Why a campaign does not certify its champion by itself; None if it does."""
    champion = best(question.history)
    return nothing_to_certify(question) or (unpromising(question.history, champion) if champion else None)


def nothing_to_certify(question: Question, runs: int | None = None) -> str | None:
    """Why the champion cannot be certified, with at most `runs` of each arm if given; None if it can."""
    if reason := no_champion(question.history):
        return reason
    if question.environment.scores_are_reported:
        return "its scores were reported by the endpoint that trained it, and nothing here has measured them"
    return _earlier_crash(question) or _too_few_runs(question, runs) or _too_few_questions(question, runs)


def _too_few_runs(question: Question, runs: int | None) -> str | None:
    if runs is None or question.environment.deterministic:
        return None
    design = planned(question, error_left(question), runs)
    (champions, baselines), level = design.groups[-1], design.levels[-1]
    least, before = least_p((champions, baselines)), (0, 0)
    champion = best(question.history)
    earlier = _carried(question, champion.number) if champion else None
    for made in earlier.spent[0] if earlier else ():  # with these it goes on
        least, before = least * least_p((made[0] - before[0], made[1] - before[1])), made
    if least <= level:
        return None
    return (
        f"{champions} v {baselines} runs cannot show a difference: p would be {least:.2g} at best, and {level:.2g} is "
        "needed: ask for more --runs"
    )


def _earlier_crash(question: Question) -> str | None:
    champion = best(question.history)
    assert champion is not None, "there is one"
    earlier = _earlier(question, champion.number)
    if earlier and any(score.value is None for score in earlier.scores("champion")):
        return "a fresh run of this champion crashed in an earlier certificate, which counts in all later ones"
    return None


def _too_few_questions(question: Question, runs: int | None) -> str | None:
    pool = report_pool(question.environment)
    made = output.read(pool) if pool and question.environment.judge.block_units == "disjoint" else None
    if made is None:
        return None
    assert pool is not None, "its result is there"
    design, fewest = (
        planned(question, error_left(question), runs),
        question.environment.judge.most_blocks(pool, "report"),
    )
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


def known(question: Question) -> Certificate | None:
    """The newest certificate of the present champion, preferably one that passed; None without."""
    champion = best(question.history)
    mine = [
        one
        for one in question.ledger.certificates()
        if not one.elsewhere and champion and one.champion == champion.number
    ]
    return next((one for one in reversed(mine) if one.passed), mine[-1] if mine else None)


def next_look(question: Question) -> int:
    """Number of the next certificate in the question's environment, with its budget."""
    return 1 + len([one for one in question.ledger.certificates() if is_of(question, one)])


def is_of(question: Question, certificate: Certificate) -> bool:
    """Whether a certificate answers the question's question: in its environment, with its budget."""
    asked = question.is_transfer, question.environment.name, question.budget
    return (certificate.elsewhere, certificate.environment, certificate.budget) == asked


def is_answered(question: Question) -> bool:
    """Whether the champion has a certificate that answers it."""
    champion = best(question.history)
    return champion is not None and bool(_of_champion(question, champion.number))


def _of_champion(question: Question, champion: int) -> list[Certificate]:
    return [one for one in question.ledger.certificates() if is_of(question, one) and one.champion == champion]


def error_left(question: Question) -> float:
    """The error of the next certificate."""
    spent = (one.alpha for one in question.ledger.certificates() if is_of(question, one))
    alpha, pool = alpha_of(spent, question.ledger.campaign.looks), report_pool(question.environment)
    return min(alpha, holdout_uses.level_of(pool, _user(question), next_look(question))) if pool else alpha


def _user(question: Question) -> str:
    """Who uses the report questions: another budget is another question."""
    return f"{question.ledger.campaign.campaign_id}{question.conditions.name}"


def certify(night: Night, question: Question, measure: Measure, runs: int | None = None) -> Certificate | None:
    """Make the next certificate of the champion, group by group; None if somebody asked to stop, or the disk is full.

    A certificate is declared before its first run, and an interrupted one continues as declared: no finished run is
    repeated. It goes on from the runs of earlier certificates of this champion, with what is left of the error. If the
    champion has changed since it was declared, it counts as used and not passed. Refused without anything to certify.

    Args:
        runs: Fresh runs of each arm at most; None: as at the end of a campaign.
    """
    if reason := nothing_to_certify(question, runs):
        raise Refused(f"campaign {question.ledger.campaign.name!r} cannot be certified: {reason}")
    ledger, look, environment = question.ledger, next_look(question), question.environment
    leader, pool, conditions = best(question.history), report_pool(environment), question.conditions
    assert leader is not None, "there is something to certify"
    champion, is_apart = leader.number, question.is_transfer
    folder = name_of(look, environment.name, is_apart, conditions)
    before, alpha = None, error_left(question)
    if pool:  # before the declaration, which it limits
        before, _ = holdout_uses.charge(pool, _user(question), look)
    declared = _declared(question, folder, champion, alpha, runs)
    if declared.champion != champion:
        why = f"it was begun for trial {declared.champion}, and not finished before another trial became champion"
        lost = Certificate(
            look, alpha, declared.champion, environment.name, (), False, why, declared.design,
            declared.design.levels[-1], elsewhere=is_apart, conditions=conditions,
        )  # fmt: skip
        store(ledger, lost)
        return lost if nothing_to_certify(question) else certify(night, question, measure, runs)
    own = declared.design
    ledger.event(
        "certify", look=look, champion=champion, runs=own.champion, planned=own.runs, environment=environment.name,
        folder=folder, groups=own.groups, budget=conditions.budget, budget_seconds=environment.budget_seconds,
        where=setting(environment.name, conditions.budget) if is_apart else "",
    )  # fmt: skip

    certificate = _in_groups(night, question, measure, declared, look, alpha)
    if certificate is None:
        return None
    certificate = replace(certificate, looked_before=before, conditions=conditions)
    if pool:
        holdout_uses.conclude(pool, _user(question), look, certificate.passed)
    store(ledger, certificate)
    return certificate


def _in_groups(
    night: Night, question: Question, measure: Measure, declared: DeclaredAnalysis, look: int, alpha: float
) -> Certificate | None:
    """Make the runs of a certificate, group by group; None if it was stopped before its end."""
    ledger, environment, champion, own = question.ledger, question.environment, declared.champion, declared.design
    folder = name_of(look, environment.name, question.is_transfer, question.conditions)
    earlier = _carried(question, champion)
    fresh, design = ([*earlier.runs], own.after(*earlier.spent)) if earlier else (list[Fresh](), own)
    carried, blocks = len(fresh), max(design.champion, design.baseline)
    draw = random.Random(ledger.seed("order", ledger.key(champion, f"certificate-{folder}")))
    search, apart = _searched(question), ""
    for champions, baselines in design.groups[-len(own.groups) :]:
        while missing := _missing(fresh, champions, baselines - counted(search, baselines)):
            draw.shuffle(missing)
            plans = [_plan(question, folder, champion, arm, number, blocks) for arm, number in missing]
            done = _side_by_side(night, question, plans, measure)
            if len(done) < len(plans):
                return None
            fresh += [Fresh(arm, *one) for (arm, _), one in zip(missing, done, strict=True)]
            if apart := apart or drift(search, fresh, by_time=not environment.budget_steps):
                search = ()  # then more fresh runs of the baseline are missing
        certificate = conclude(
            look, alpha, champion, environment.name, fresh, design, guards=environment.guards,
            elsewhere=question.is_transfer, same_units=_same_units(environment, fresh), search=search,
            deterministic=environment.deterministic, carried=carried, not_reused=apart,
            same_play=_same_play(question, environment, fresh),
        )  # fmt: skip
        if not certificate.another:
            break
        ledger.event("looked", look=look, champion=champion, runs=len(fresh) - carried, reason=certificate.reason)
    return certificate


def _plan(question: Question, certificate: str, champion: int, arm: Arm, number: int, blocks: int) -> RunPlan:
    """One run of a certificate: the champion or the baseline, retrained and judged on units of its block.

    Args:
        blocks: Blocks that the certificate may have at most; `number` is this one's.
    """
    ledger, of = question.ledger, champion if arm == "champion" else 0
    trial = next(trial for trial in question.history if trial.number == of)
    run_dir = TrialDir(ledger.path / "certificates" / f"{certificate}-{champion:04d}-{arm}-{number}")

    def units(block: int) -> Units:
        """Each block has its own, so that their luck does not favour one arm in all of its runs."""
        return Units(ledger.key(champion, f"certificate-{certificate}-{block}"), ComparisonBlock(block, blocks))

    return RunPlan(
        ledger.key(champion, f"certificate-{certificate}-{arm}-{number}"),
        question.arms.of(arm) if question.arms else trial.proposal,
        folder_of(ledger.path, run_dir),
        "report",
        units=units(number),
        echo=units(1) if (arm, number) == ("champion", 2) else None,
    )


def _searched(question: Question) -> tuple[Searched, ...]:
    """The search's runs of the baseline that may count: not elsewhere, nor beside other questions of a pool."""
    return () if question.is_transfer or question.environment.prepared else searched(question.history)


def _missing(fresh: Sequence[Fresh], champions: int, baselines: int) -> list[tuple[Arm, int]]:
    """The runs that are to be made until there are so many, as arm and number."""
    have = Counter(one.arm for one in fresh)
    arms: tuple[tuple[Arm, int], ...] = (("champion", champions), ("baseline", baselines))
    return [(arm, number) for arm, many in arms for number in range(have[arm] + 1, many + 1)]


def _same_play(question: Question, environment: Environment, runs: Sequence[Fresh]) -> str:
    """Why the champion's runs are no runs of their own; empty if they are."""
    folder = question.ledger.path
    mine = [(fresh.run, fresh.score) for fresh in runs if fresh.arm == "champion" and not environment.deterministic]
    pairs = [(one, other) for one in mine if one[1].echo for other in mine if other is not one]
    strangers = [folder / fresh.run.dir / "out" for fresh in runs if fresh.arm == "baseline"]
    found = (
        same_play(folder, environment.metric, one, other)
        or same_weights(folder / one[0].dir / "out", folder / other[0].dir / "out", strangers)
        for one, other in pairs
    )
    return next((f"it {reason}" for reason in found if reason), "")


def _side_by_side(
    night: Night, question: Question, plans: Sequence[RunPlan], measure: Measure
) -> list[tuple[Run, Score]]:  # fmt: skip
    """Make runs, `parallel` at a time, and return them in their order; fewer where the night is to stop."""
    bench, made = question.bench(night), list[Measurement]()
    for plan in plans:
        while len(busy := [one.waited_for for one in made if not one.waited_for.done()]) >= night.spec.parallel:
            night.wait_for(busy)
        if _is_hindered(night.ledger):
            break
        made.append(measure(night, Train(plan), bench=bench))
    while busy := [one.waited_for for one in made if not one.waited_for.done()]:
        night.wait_for(busy)
    return [one.result(night) for one in made]


def _declared(question: Question, folder: str, champion: int, alpha: float, runs: int | None) -> DeclaredAnalysis:
    """The certificate as it was declared; it is now, unless it was."""
    if (known := _begun(question)) is not None:
        return known
    new = DeclaredAnalysis(champion, planned(question, alpha, runs))
    write_atomic(question.ledger.path / "certificates" / f"{folder}.begun", DECLARATION.dump_json(new).decode() + "\n")
    return new


def _begun(question: Question) -> DeclaredAnalysis | None:
    """The next certificate, if it was declared already."""
    folder = name_of(next_look(question), question.environment.name, question.is_transfer, question.conditions)
    declaration = question.ledger.path / "certificates" / f"{folder}.begun"
    return DECLARATION.validate_json(declaration.read_bytes()) if declaration.is_file() else None


def planned(question: Question, alpha: float, runs: int | None = None) -> Design:
    """The design of the next certificate, without the runs of earlier ones: as declared, if it goes on."""
    environment, spec, champion, begun = question.environment, question.spec, best(question.history), _begun(question)
    if begun and champion and begun.champion == champion.number:
        return begun.design
    if runs is not None:
        return of_groups(equal_arms(runs, len(_searched(question))), alpha)
    in_time = spec.runs_in_time(question.ledger.environment)
    return design_of(spec.trials, environment.deterministic, alpha, in_time)


def _earlier(question: Question, champion: int) -> Certificate | None:
    """The newest certificate of a champion in the question's environment that has runs, with the same arms."""
    made = (one for one in reversed(_of_champion(question, champion)) if one.runs)
    return next((one for one in made if one.conditions.changed == question.conditions.changed), None)


def _carried(question: Question, champion: int) -> Certificate | None:
    """The certificate whose runs the next one goes on with.

    The shares of a pool in another certificate have other sizes, so its runs were judged on some of these questions.
    """
    shares = report_pool(question.environment) and question.environment.judge.block_units == "disjoint"
    return None if shares else _earlier(question, champion)


def _same_units(environment: Environment, runs: Sequence[Fresh]) -> int:
    """Units that every run was judged on; 0 where they are drawn anew."""
    return max(run.score.n for run in runs) if environment.judge.block_units == "same" else 0


def _is_hindered(ledger: Ledger) -> bool:
    """Whether no further run may begin: somebody asked to stop, or the disk is full."""
    interrupt.check()
    return (ledger.path / "stop").exists() or bool(stopping.no_room(ledger.path))


def ablate(night: Night, question: Question, certificate: Certificate, measure: Measure) -> Ablation | None:
    """Run a certified champion afresh, and without each of its changes; None if it was stopped before."""
    champion, ledger = best(question.history), question.ledger
    assert champion is not None and champion.number == certificate.champion, "it was certified"
    first = baseline(question.history)
    assert first is not None, "it was compared with"
    arms = (("", champion.proposal), *parts(champion, first))
    blocks, each = ablation_runs(len(arms) - 1, question.environment.deterministic)

    runs = [(arm, block) for block in range(1, blocks + 1) for arm in range(len(arms)) if not arm or block <= each]
    plans = []
    for arm, block in runs:
        run_dir = TrialDir(ledger.path / "ablations" / f"{champion.number:04d}-{arm}-{block}")
        key, units = (ledger.key(champion.number, f"ablation-{part}") for part in (f"{arm}-{block}", f"block-{block}"))
        on = Units(units, ComparisonBlock(block, blocks))
        plans.append(RunPlan(key, arms[arm][1], folder_of(ledger.path, run_dir), "confirm", units=on))
    done = _side_by_side(night, question, plans, measure)
    if len(done) < len(plans):
        return None
    fresh = [Removed(arms[arm][0], *made) for (arm, _), made in zip(runs, done, strict=True)]
    kept, removed = ([run for run in fresh if bool(run.change) is gone] for gone in (False, True))
    made = Ablation.of(champion.number, kept, removed, run_sd(question.history))
    path = ledger.path / "ablations" / f"{champion.number:04d}.json"
    write_atomic(path, ABLATION.dump_json(made, indent=2).decode() + "\n")
    ledger.event("ablated", trial=champion.number, changes=[change for change, _ in arms[1:]])
    return made


def store(ledger: Ledger, certificate: Certificate) -> None:
    """Write a certificate to disk, atomically."""
    write_atomic(path_of(ledger, certificate), CERTIFICATE.dump_json(certificate, indent=2).decode() + "\n")
    reconcile(ledger)
    ledger.event("certified", look=certificate.look, trial=certificate.champion, passed=certificate.passed)


def path_of(ledger: Ledger, certificate: Certificate) -> Path:
    name = name_of(certificate.look, certificate.environment, certificate.elsewhere, certificate.conditions)
    return ledger.path / "certificates" / f"{name}.json"


def name_of(look: int, environment: str, elsewhere: bool, conditions: Conditions) -> str:
    """The name of a certificate's file, and the beginning of those of its runs."""
    at = f"-at{conditions.name}" * bool(conditions.name)
    return f"{look}{at}-on-{environment}" if elsewhere else str(look)
