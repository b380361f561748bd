"""Making a certificate: champion and baseline, retrained by the campaign's own `measure` and compared."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from environments import Environment
from environments.judges import ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from flows.engine import stopping
from flows.engine.attempt import Measurement
from flows.engine.night import Night, bench_of
from flows.engine.stopping import ASKED, Stop
from flows.spec.campaign_spec import SPARE, CampaignSpec
from flows.spec.spec import end_of, runs_in_time
from tasks import preparing
from tasks.bench import RunPlan, Units
from tasks.describe import setting
from tasks.record import reconcile
from tasks.run_checks import one_training
from tasks.stats import holdout_uses
from tasks.stats.ablation import Ablation, Removed, ablation_runs, parts
from tasks.stats.certificate import CAMPAIGNS, Certificate, Conditions, Fresh, conclude, counted, drift, searched
from tasks.stats.champion import run_sd, unpromising
from tasks.stats.design import EXACT, Arm, Design, alpha_of, design_of, equal_arms, least_p, new_runs, of_groups
from tasks.store import campaign_lock
from tasks.store.ledger import ABLATION, CERTIFICATE, Ledger, machine
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, Proposal, Run, Trial, baseline, best

Measure = Callable[..., Measurement]


@dataclass(frozen=True)
class Question:
    """What a certificate asks of a campaign: in which environment, and with which training budget."""

    spec: CampaignSpec
    ledger: Ledger
    history: History
    transfer: Environment | None = None
    """Another environment than the campaign's own."""
    conditions: Conditions = CAMPAIGNS
    arms: Mapping[Arm, Proposal] | None = None
    """What both arms run in another environment; None: the trials as they are."""

    @property
    def environment(self) -> Environment:
        return (self.transfer or self.ledger.environment).at(self.conditions.budget)

    @property
    def is_transfer(self) -> bool:
        """Whether its runs do not compare with those of the search."""
        return self.transfer is not None or self.conditions.budget != 1

    @property
    def champion(self) -> Trial | None:
        return best(self.history)

    @property
    def answers(self) -> list[Certificate]:
        """The certificates in its environment, with its budget, whosever champion."""
        asked = self.is_transfer, self.environment.name, self.conditions.budget
        every = self.ledger.certificates()
        return [one for one in every if (one.elsewhere, one.environment, one.conditions.budget) == asked]

    @property
    def answers_on_champion(self) -> list[Certificate]:
        champion = self.champion
        return [one for one in self.answers if champion and one.champion == champion.number]

    @property
    def look(self) -> int:
        return 1 + len(self.answers)

    @property
    def name(self) -> str:
        return name_of(self.look, self.environment.name, self.is_transfer, self.conditions)

    @property
    def pool(self) -> Path | None:
        """The prepared files with the report questions, where these wear out."""
        return preparing.report_pool(self.environment)

    @property
    def user(self) -> str:
        """Who uses these questions: another budget or another environment is another question."""
        where = f"-on-{self.environment.name}" if self.is_transfer else ""
        return f"{self.ledger.campaign.campaign_id}{self.conditions.name}{where}"

    @property
    def error_left(self) -> float:
        alpha = alpha_of(one.alpha for one in self.answers)
        return min(alpha, holdout_uses.place_of(self.pool, self.user, self.look)[1]) if self.pool else alpha

    @property
    def declaration(self) -> Path:
        return self.ledger.path / "certificates" / f"{self.name}.begun"

    @property
    def declared(self) -> Certificate | None:
        """The next certificate as declared before its first run, without the runs of earlier ones."""
        return CERTIFICATE.validate_json(self.declaration.read_bytes()) if self.declaration.is_file() else None

    @property
    def earlier(self) -> Certificate | None:
        """The newest certificate of this champion that has runs, with the same arms."""
        made = (one for one in reversed(self.answers_on_champion) if one.runs)
        return next((one for one in made if one.conditions.changed == self.conditions.changed), None)

    @property
    def just_made(self) -> Certificate | None:
        """The newest certificate of the champion, if whoever made it was cut off before its end."""
        recent = {event.get("name") for event in self.ledger.cut_off() if event["event"] == "certified"}
        newest = self.answers_on_champion[-1:]
        return next((one for one in newest if recent & {_file_name(one)}), None)

    @property
    def carried(self) -> Certificate | None:
        """Whose runs the next one goes on with: none of a pool, whose shares are of other sizes, or another machine."""
        others = self.spec.launch == "here" and {*(self.earlier.machines if self.earlier else ())} - {machine()}
        return None if others or (self.pool and self.environment.judge.block_units == "disjoint") else self.earlier

    @property
    def searched(self) -> tuple[Fresh, ...]:
        """The search's runs of the baseline that may count: not elsewhere, nor beside other questions of a pool."""
        return () if self.is_transfer or self.environment.prepared else searched(self.history)


def certify_at_the_end(night: Night, stop: Stop, measure: Measure) -> Stop:
    """Certify the champion of a campaign that has ended, if it is worthwhile; how the campaign ends then."""
    if stop.state != "finished" or not night.rule.certifies:
        return stop
    question = Question(night.spec, night.ledger, night.history)
    # Of the certificates that it has, preferably one that passed.
    made = max(question.answers_on_champion, key=lambda one: (one.passed, one.look), default=None)
    if made is None:
        if reason := nothing_to_certify(question) or unpromising(night.history):
            night.ledger.event("uncertified", reason=reason)
            return stop
        if reason := _not_any_more(night, question):
            return Stop("stopped", reason)
        made = certify(night, question, measure)
    done = made is not None and also_ablate(night, question, made, measure)
    return stop if done else stopping.full(night.ledger.path) or ASKED


def _not_any_more(night: Night, question: Question) -> str:
    """Why limits that have changed since time and money were reserved allow no certificate; empty if they do."""
    spec, environment, history = night.spec, question.environment, question.history
    if time.time() > end_of(vars(spec)):
        return f"until = {spec.until} has passed: `nightshift certify {spec.name}` makes the certificate"
    seconds = spec.time_for_the_certificate(environment, history, parallel=1) / SPARE
    try:
        if not question.declared:  # else a part of it may be paid
            night.money.check(history, "the certificate", environment, seconds)
    except Refused as short:
        return str(short)
    return ""


def nothing_to_certify(question: Question, runs: int | None = None) -> str | None:
    """Why the champion cannot be certified, with at most `runs` of each arm if given; None if it can."""
    if reason := no_champion(question.history):
        return reason
    if question.environment.scores_are_reported:
        return "its scores were reported by the endpoint that trained it, and nothing here has measured them"
    if question.earlier and any(score.value is None for score in question.earlier.scores("champion")):
        return "a fresh run of this champion crashed in an earlier certificate, which counts in all later ones"
    return _too_few_runs(question, runs) or _too_few_questions(question, runs)


def no_champion(history: History) -> str | None:
    """Why there is no champion besides the baseline; None if there is one."""
    first, champion = baseline(history), best(history)
    if champion is None:
        return "no trial has a score"
    if first is None or first.score.value is None:
        return "the baseline has no score, so there is nothing to compare with"
    return "nothing that was tried was kept" if champion.number == 0 else None


def _too_few_runs(question: Question, runs: int | None) -> str | None:
    if question.environment.deterministic or question.declared:
        return None
    design = planned(question, runs)
    champions, baselines = design.groups[-1]
    before = new_runs(question.carried.spent[0]) if question.carried else []  # with these it goes on
    least, level = least_p([*before, *new_runs(design.groups)]), design.levels[-1]
    if least <= level:
        return None
    more = ": ask for more --runs" if least > 1 / EXACT else ", since others have used up the error"
    return (
        f"{champions} v {baselines} runs cannot show a difference: p would be {least:.2g} at best, and {level:.2g} is "
        f"needed{more}"
    )


def _too_few_questions(question: Question, runs: int | None) -> str | None:
    pool, judge = question.pool, question.environment.judge
    made = preparing.read(pool) if pool and judge.block_units == "disjoint" else None
    if pool is None or made is None:
        return None
    design, has = planned(question, runs), made.questions["report"]
    if has >= (blocks := max(design.champion, design.baseline)):
        return None
    return f"its report pool has {has} questions, and {blocks} runs need one each at least: make more of them"


def planned(question: Question, runs: int | None = None) -> Design:
    """The design of the next certificate, without the runs of earlier ones: as declared, if it goes on. (runs: of each
    arm at most; None: as at the end of a campaign)
    """
    environment, spec, champion, declared = question.environment, question.spec, question.champion, question.declared
    if declared and champion and declared.champion == champion.number:
        return declared.design
    alpha = question.error_left
    if runs is not None:
        reused = 0 if question.carried else len(question.searched)  # the carried runs hold them already
        return of_groups(equal_arms(runs, reused), alpha)
    ledger = question.ledger
    in_time = runs_in_time(vars(spec), ledger.campaign.created, ledger.environment.budget_seconds)
    return design_of(spec.trials, environment.deterministic, alpha, in_time)


def certify(night: Night, question: Question, measure: Measure, runs: int | None = None) -> Certificate | None:
    """Make the next certificate of the champion, group by group; None if somebody asked to stop, or the disk is full.

    It is declared before its first run, and an interrupted one continues as declared. It goes on from the runs of
    earlier certificates of this champion, with what is left of the error. If the champion has changed since it was
    declared, it counts as used and not passed. Refused without anything to certify.
    """
    if reason := nothing_to_certify(question, runs):
        raise Refused(f"campaign {question.ledger.campaign.name!r} cannot be certified: {reason}")
    ledger, look, pool, leader = question.ledger, question.look, question.pool, question.champion
    assert leader is not None, "there is something to certify"
    # A pool is charged before the declaration, which it limits.
    before = holdout_uses.charge(pool, question.user, look)[0] if pool else None
    declared = question.declared
    if declared is None:
        own = planned(question, runs)
        declared = Certificate(
            look, question.error_left, leader.number, question.environment.name, (), False, "", own, own.levels[-1],
            elsewhere=question.is_transfer, conditions=question.conditions,
        )  # fmt: skip
        write_atomic(question.declaration, CERTIFICATE.dump_json(declared).decode() + "\n", lasting=True)
    if declared.champion != leader.number:
        why = f"it was begun for trial {declared.champion}, and not finished before another trial became champion"
        lost = replace(declared, reason=why)
        store(ledger, lost)
        return lost if nothing_to_certify(question) else certify(night, question, measure, runs)
    ledger.event(
        "certify", look=look, champion=leader.number, runs=declared.design.champion, planned=declared.design.runs,
        folder=question.name,
        where=setting(declared.environment, declared.conditions.budget) if question.is_transfer else "",
    )  # fmt: skip

    certificate = _in_groups(night, question, measure, declared)
    if certificate is None:
        return None
    certificate = replace(certificate, looked_before=before)
    if pool:
        holdout_uses.conclude(pool, question.user, look, certificate.passed)
    store(ledger, certificate)
    return certificate


def _in_groups(night: Night, question: Question, measure: Measure, declared: Certificate) -> Certificate | None:
    """Make the runs of a certificate, group by group; None if it was stopped before its end."""
    ledger, environment, champion, own = question.ledger, question.environment, declared.champion, declared.design
    earlier, look, name = question.carried, question.look, question.name
    fresh, design = ([*earlier.runs], own.after(*earlier.spent)) if earlier else (list[Fresh](), own)
    carried, blocks = len(fresh), max(design.champion, design.baseline)
    draw = random.Random(ledger.seed("order", ledger.key(champion, f"certificate-{name}")))
    search, apart = question.searched, ""
    if earlier and earlier.not_reused:  # they stay apart
        search, apart = (), earlier.not_reused
    for champions, baselines in design.groups[-len(own.groups) :]:
        while missing := _missing(fresh, champions, baselines - counted(search, baselines)):
            draw.shuffle(missing)
            plans = [_plan(question, name, champion, arm, number, blocks) for arm, number in missing]
            done = _side_by_side(night, question, plans, measure)
            if len(done) < len(plans):
                return None
            fresh += [Fresh(*one, arm) for (arm, _), one in zip(missing, done, strict=True)]
            if apart := apart or drift(search, fresh, by_time=not environment.budget_steps):
                search = ()  # then more fresh runs of the baseline are missing
        certificate = conclude(
            look, declared.alpha, champion, environment.name, fresh, design, guards=environment.guards, search=search,
            deterministic=environment.deterministic, same_play=_same_play(question, environment, fresh),
        )  # fmt: skip
        if not certificate.another:
            break
        ledger.event("looked", look=look, champion=champion, runs=len(fresh) - carried, reason=certificate.reason)
    same_units = max(run.score.n for run in fresh) if environment.judge.block_units == "same" else 0
    return replace(
        certificate, elsewhere=question.is_transfer, conditions=question.conditions, same_units=same_units,
        carried=carried, not_reused=apart,
    )  # fmt: skip


def _plan(question: Question, certificate: str, champion: int, arm: Arm, number: int, blocks: int) -> RunPlan:
    """One run of a certificate: the champion or the baseline, retrained and judged on units of block `number`."""
    ledger, of = question.ledger, champion if arm == "champion" else 0
    trial = next(trial for trial in question.history if trial.number == of)

    def units(block: int) -> Units:
        """Each block has its own, so that their luck does not favour one arm in all of its runs."""
        return Units(ledger.key(champion, f"certificate-{certificate}-{block}"), ComparisonBlock(block, blocks))

    return RunPlan(
        ledger.key(champion, f"certificate-{certificate}-{arm}-{number}"),
        question.arms[arm] if question.arms else trial.proposal,
        f"certificates/{certificate}-{champion:04d}-{arm}-{number}",
        "report",
        units=units(number),
        echo=units(1) if (arm, number) == ("champion", 2) else None,
    )


def _missing(fresh: Sequence[Fresh], champions: int, baselines: int) -> list[tuple[Arm, int]]:
    have = Counter(one.arm for one in fresh)
    arms: tuple[tuple[Arm, int], ...] = (("champion", champions), ("baseline", baselines))
    return [(arm, number) for arm, many in arms for number in range(have[arm] + 1, many + 1)]


def _same_play(question: Question, environment: Environment, runs: Sequence[Fresh]) -> str:
    """Why the champion's runs are no runs of their own; empty if they are."""
    mine = [(fresh.run, fresh.score) for fresh in runs if fresh.arm == "champion" and not environment.deterministic]
    strangers = [fresh.run for fresh in runs if fresh.arm == "baseline"]
    reason = one_training(question.ledger.path, environment.metric, mine, strangers)
    return f"it {reason}" if reason else ""


def _side_by_side(
    night: Night, question: Question, plans: Sequence[RunPlan], measure: Measure
) -> list[tuple[Run, Score]]:  # fmt: skip
    """Make runs, `parallel` at a time, and return them in their order; fewer where the night is to stop."""
    bench = bench_of(night.spec, night.ledger, question.transfer, question.conditions.budget)
    made = list[Measurement]()
    for plan in plans:
        while len(night.running) >= night.spec.parallel:
            night.wait()
        interrupt.check()
        night.heed()
        if night.pause or campaign_lock.asked_to_stop(night.ledger) or stopping.full(night.ledger.path):
            break
        made.append(measure(night, plan, bench=bench))
    while night.running:
        night.wait()
    return [one.result(night) for one in made]


def without_ablation(question: Question) -> Certificate | None:
    """The newest certificate of the champion, if it passed and the ablation that is asked for is not made."""
    newest = next(reversed(question.answers_on_champion), None)
    return newest if newest and _lacks_ablation(question, newest) else None


def _lacks_ablation(question: Question, made: Certificate) -> bool:
    due = made.passed and not made.elsewhere and question.spec.advanced.ablation
    return due and not question.ledger.ablation(made.champion)


def also_ablate(night: Night, question: Question, made: Certificate, measure: Measure) -> bool:
    """Run a certified champion without each of its changes, if asked for; False if it was stopped meanwhile."""
    if not _lacks_ablation(question, made):
        return True
    champion, first, ledger = question.champion, baseline(question.history), question.ledger
    assert champion is not None and first is not None, "it was certified"
    arms = (("", champion.proposal), *parts(champion, first))
    blocks, each = ablation_runs(len(arms) - 1, question.environment.deterministic)
    runs = [(arm, block) for block in range(1, blocks + 1) for arm in range(len(arms)) if not arm or block <= each]
    plans = []
    for arm, block in runs:
        folder = f"ablations/{champion.number:04d}-{arm}-{block}"
        key, units = (ledger.key(champion.number, f"ablation-{part}") for part in (f"{arm}-{block}", f"block-{block}"))
        on = Units(units, ComparisonBlock(block, blocks))
        plans.append(RunPlan(key, arms[arm][1], folder, "confirm", units=on))
    done = _side_by_side(night, question, plans, measure)
    if len(done) < len(plans):
        return False
    fresh = [Removed(arms[arm][0], *one) for (arm, _), one in zip(runs, done, strict=True)]
    found = Ablation.of(champion.number, fresh, run_sd(question.history))
    path = ledger.path / "ablations" / f"{champion.number:04d}.json"
    write_atomic(path, ABLATION.dump_json(found, indent=2).decode() + "\n")
    ledger.event("ablated", trial=champion.number, changes=[change for change, _ in arms[1:]])
    return True


def store(ledger: Ledger, certificate: Certificate) -> None:
    name = _file_name(certificate)
    text = CERTIFICATE.dump_json(certificate, indent=2).decode() + "\n"
    write_atomic(ledger.path / "certificates" / f"{name}.json", text, lasting=True)
    reconcile(ledger)
    facts = {"look": certificate.look, "trial": certificate.champion, "passed": certificate.passed}
    ledger.event("certified", **facts, name=name)


def _file_name(made: Certificate) -> str:
    return name_of(made.look, made.environment, made.elsewhere, made.conditions)


def name_of(look: int, environment: str, elsewhere: bool, conditions: Conditions) -> str:
    """The name of a certificate's file, and the beginning of those of its runs."""
    at = f"-at{conditions.name}" * bool(conditions.name)
    return f"{look}{at}-on-{environment}" if elsewhere else str(look)
