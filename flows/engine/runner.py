"""The runner: trains and judges the runs that a campaign needs. Every step is a task whose result is a checkpoint."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from environments import Environment
from environments.effort import Allowance
from environments.judges import ComparisonBlock, Use
from environments.score import Score
from flows.engine.launching import run_elsewhere
from flows.engine.slurm.request import request_of
from flows.engine.worker_pool import run_in_parallel
from flows.spec.campaign_spec import CampaignSpec
from tasks.cache_key import At, history_digest, is_kept, kept, whole
from tasks.certifying.certificate import Fresh
from tasks.certifying.group_design import Arm
from tasks.certifying.transfer import Arms, Conditions
from tasks.decide import Decision, NeedsControl, decide
from tasks.deciding.judge_allowance import allowance
from tasks.deciding.run_checks import believed
from tasks.deciding.values import BASELINE_SCORES, JudgedTrial, NeedsRerun
from tasks.evaluate import evaluate
from tasks.machine.slots import NOWHERE, Slot, Slots
from tasks.spending.spent import note_rented
from tasks.store import workspace
from tasks.store.launch_files import RESULTS, LaunchRequest, Step
from tasks.store.ledger import Ledger, frozen_elsewhere, machine
from tasks.store.workspace import TrialDir
from tasks.system.clock import clock, covered
from tasks.train import train
from tasks.trial import CONTROLS, History, Proposal, Rerun, Run, Trial, UntrainedControl, Verdict, baseline
from tasks.untrained_control import untrained

SPARED = 10
"""One in this many early stops is not carried out, as a check of the pruner."""


@dataclass(frozen=True)
class Runner:
    """Runs trials and certificates; all that it may know of the campaign is `history`."""

    spec: CampaignSpec
    ledger: Ledger
    history: History
    slots: Slots
    elsewhere: Environment | None = None
    """Another environment to run in; None: the campaign's own."""
    budget: float = 1.0
    """Training budget of each run, in that of the environment."""
    arms: Arms | None = None
    """What both arms of a certificate run in another environment; None: the trials as they are."""
    written: History | None = None
    """The part of the history that other machines can read; None: all of it."""
    launched: bool = False
    """Whether it runs inside a deployment run (flows/trial.py), not in the campaign's process."""
    queued: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each wait of its runs, for a slot or in a queue of other machines, on the engine's clock."""

    @property
    def environment(self) -> Environment:
        return (self.elsewhere or self.ledger.environment).at(self.budget)

    @property
    def is_apart(self) -> bool:
        """Whether its runs do not compare with those of the search."""
        return self.elsewhere is not None or self.budget != 1

    @property
    def conditions(self) -> Conditions:
        """Those of its certificates."""
        changed, left_out = (self.arms.changed, self.arms.left_out) if self.arms else (None, ())
        return Conditions(self.budget, self.environment.range, changed, left_out)

    @property
    def program(self) -> Path:
        """The frozen baseline program of the environment that it runs in."""
        path = frozen_elsewhere(self.ledger.path, self.elsewhere.name) if self.elsewhere else self.ledger.path
        return path / "program"

    @property
    def queued_seconds(self) -> float:
        """Time in which a run of it waited; waits at the same time count once."""
        return covered(self.queued)

    def trial(self, number: int, proposal: Proposal) -> JudgedTrial:
        """Train and judge a proposal under each of its training seeds; a failed run is the last one."""
        known = () if number else self.ledger.calibrated
        seeds = fewest = self.spec.replicates if number else self.baseline_runs
        if not number and not known:
            fewest = min(seeds, BASELINE_SCORES)
        train = self._in_turn if self.spec.parallel == 1 else self._side_by_side
        runs, scores = zip(*train(number, proposal, seeds, fewest), strict=True)
        return JudgedTrial(number, proposal, runs, Score.over(scores, fewest), known)

    @property
    def baseline_runs(self) -> int:
        """Runs of the baseline: those of any trial after a calibration, else enough to know the noise."""
        if self.ledger.calibrated:
            return self.spec.replicates
        return self.spec.loaded_rule.baseline_runs(self.spec.replicates, self.environment.deterministic)

    @property
    def baseline_runs_left(self) -> int:
        """Those that are not judged yet."""
        runs = (self._at(0, _part(seed)) for seed in range(1, self.baseline_runs + 1))
        return sum(not is_kept(self.ledger.results, at, "evaluate") for at in runs)

    def _in_turn(self, number: int, proposal: Proposal, seeds: int, fewest: int) -> list[tuple[Run, Score]]:
        """Train one seed after another, while `fewest` of them can still have a score."""
        done: list[tuple[Run, Score]] = []
        for seed in range(1, seeds + 1):
            siblings = tuple(run for run, _ in done)
            done.append(self.measure(number, proposal, _part(seed), "search", siblings, early=seed == 1))
            if _missing(done) > seeds - fewest:
                break
        return done

    def _side_by_side(self, number: int, proposal: Proposal, seeds: int, fewest: int) -> list[tuple[Run, Score]]:
        """Train all seeds in parallel; those after the one that puts `fewest` scores out of reach do not count."""

        def one(seed: int) -> tuple[Run, Score]:
            return self.measure(number, proposal, _part(seed), "search", early=seeds == 1)

        done = run_in_parallel(one, [(seed,) for seed in range(1, seeds + 1)], self.spec.parallel)
        believable: list[tuple[Run, Score]] = []
        for seed, (run, score) in enumerate(done, 1):
            if not workspace.settled(self.ledger.place(number, _part(seed)), _part(seed)):
                before = tuple(earlier for earlier, _ in believable)
                budget = self.environment.at(proposal.share)
                run = believed(budget, (), proposal, run, self.ledger.path, before)
            if run.status == "crash":
                score = Score.missing(run.error or "crash", self.environment.higher_is_better)
            believable.append((run, score))
            if _missing(believable) > seeds - fewest:
                break
        return believable

    def more(self, tried: JudgedTrial, wanted: Decision) -> JudgedTrial:
        """Run what a verdict still needs: a rerun, or the untrained control."""
        if isinstance(wanted, NeedsRerun):
            others = "" if wanted.of == tried.number else f"-of-{wanted.of:04d}"
            part = f"again-{len(tried.reruns) + 1}{others}"
            proposal = tried.proposal if wanted.of == tried.number else self._trial(wanted.of).proposal
            siblings = tried.runs if wanted.of == tried.number else ()
            run, score = self.measure(tried.number, proposal, part, "confirm", siblings)
            return replace(tried, reruns=(*tried.reruns, Rerun(wanted.of, run, score)))
        assert isinstance(wanted, NeedsControl), f"{wanted} is no question"
        return replace(tried, control=self.control(tried.number, tried.proposal, tried.runs[0]))

    def control(self, number: int, proposal: Proposal, trained: Run) -> UntrainedControl:
        """Score a trial's program without training; `trained` is its first run."""
        at, place = self._at(number), self.ledger.place(number)
        if self._is_launched(at, place, "untrained"):
            asked = LaunchRequest(at, "untrained", proposal, self._name(place), *self._known, siblings=(trained,))
            self._run_elsewhere(asked, self.environment)
        try:
            with self._slot(at, place, "untrained") as slot:
                control = kept(untrained, self.ledger.results)(
                    at, whole(self.environment), self.spec.isolation, self.ledger.program, place, proposal, trained,
                    self.ledger.seed("control", at), self.ledger.seed("search", at), whole(slot),
                    self.granted("control"), *self._lender,
                )  # fmt: skip
        finally:
            for name in CONTROLS:
                note_rented(self.ledger, replace(at, part=name), TrialDir(place.path / name))
        self.ledger.verify()
        return control

    @property
    def _lender(self) -> tuple[TrialDir, int, Score]:
        """The baseline's first run with a score: its directory, the seed of its units, and the score; missing if not
        known here."""
        known = baseline(self.history)  # on another machine, none while the baseline itself is run again
        attempt = known.attempt if known else None
        each = known.score.each if known else (Score.missing("not known here", self.environment.higher_is_better),)
        number = next((number for number, score in enumerate(each, 1) if score.value is not None), 1)
        return (
            self.ledger.place(0, _part(number), attempt),
            self.ledger.seed("search", self.ledger.at(0, _part(number), attempt)),
            each[number - 1],
        )

    def decide(self, tried: JudgedTrial) -> Verdict:
        rule = whole(self.spec.loaded_rule)
        at, problem, known = self.ledger.at(tried.number), whole(self.environment), whole(self.history)
        return kept(decide, self.ledger.results)(at, known, problem, rule, whole(tried))

    def fresh(self, certificate: str, champion: int, arm: Arm, number: int, blocks: int) -> Fresh:
        """One run of a certificate: the champion or the baseline, retrained and judged on units of its block.

        Args:
            blocks: Blocks that the certificate may have at most; `number` is this one's.
        """
        part = f"certificate-{certificate}-{arm}-{number}"
        trial = self._trial(champion if arm == "champion" else 0)
        proposal = self.arms.of(arm) if self.arms else trial.proposal
        place = TrialDir(self.ledger.path / "certificates" / f"{certificate}-{champion:04d}-{arm}-{number}")
        # Each block has its own units, so that their luck does not favour one arm in all of its runs.
        judged = self.ledger.at(champion, f"certificate-{certificate}-{number}")
        run, score = self.measure(
            champion, proposal, part, "report", place=place, judged=judged, block=ComparisonBlock(number, blocks)
        )
        return Fresh(arm, run, score)

    def measure(
        self,
        number: int,
        proposal: Proposal,
        part: str,
        purpose: Use,
        siblings: tuple[Run, ...] = (),
        early: bool = False,
        place: TrialDir | None = None,
        judged: At | None = None,
        block: ComparisonBlock | None = None,
    ) -> tuple[Run, Score]:
        """Train once and judge the result.

        Args:
            part: Which run of the trial it is; empty for the first.
            siblings: Runs of the same proposal that are not in the history yet.
            early: Whether it may be stopped early.
            judged: Run whose units it is judged on; None: its own.
            block: Its block, where it is a run of a comparison.
        """
        ledger, results = self.ledger, self.ledger.results
        at, place = self._at(number, part), place or ledger.place(number, part)
        if self._is_launched(at, place, "measure"):
            other = self.elsewhere.name if self.elsewhere else ""
            known, name = self._known, self._name(place)
            asked = LaunchRequest(
                at, "measure", proposal, name, *known, purpose, siblings, early, judged, block, other, self.budget
            )
            self._run_elsewhere(asked, self.environment.at(proposal.share))
        environment, isolation = self.environment.at(proposal.share), self.spec.isolation
        problem = whole(environment)
        seed = ledger.seed(purpose, judged or at)
        with self._slot(at, place, "evaluate") as slot:
            run = self._train(at, place, proposal, early, slot)
            if not workspace.settled(place, at.part):  # the output of a decided run may be pruned from the disk
                run = believed(environment, self.history, proposal, run, ledger.path, siblings)
            if not (results / f"{at}/evaluate").is_file():
                ledger.verify()  # the judge is the frozen one
            granted = self.granted(purpose, proposal)
            return run, kept(evaluate, results)(
                at, problem, isolation, place, run, seed, purpose, whole(slot), granted, block
            )

    def train_ahead(self, number: int, proposal: Proposal) -> None:
        """Train the first run of a proposal while the baseline is under way.

        Nothing is known yet that could stop it early, or that it could be judged by. So `trial` goes on with it once
        the baseline is decided.
        """
        at, place = self._at(number), self.ledger.place(number)
        with self._slot(at, place, "train") as slot:
            self._train(at, place, proposal, early=False, slot=slot)

    def _train(self, at: At, place: TrialDir, proposal: Proposal, early: bool, slot: Slot) -> Run:
        environment, ledger = self.environment.at(proposal.share), self.ledger
        canceller = self.spec.loaded_canceller(self.environment) if early and self.history else None
        run = None
        try:
            run = kept(train, ledger.results)(
                at, whole(environment), self.spec.isolation, self.program, place, proposal, ledger.seed("train", at),
                whole(self.history), whole(canceller), ledger.seed("spare", at) % SPARED == 0,
                whole(slot),
            )  # fmt: skip
        finally:
            note_rented(ledger, at, place, run)
        return run

    def granted(self, purpose: Use, proposal: Proposal | None = None) -> Allowance | None:
        """The time that a program may spend under judgement; None in another environment, whose baseline is not known.

        A certificate and reruns grant half of the spare time: what a program gains by computing there, half must not
        give it.

        Args:
            proposal: It has trained for its share of the budget; None for a whole one.
        """
        number = next((trial.number for trial in self.history if trial.proposal == proposal), None)
        budget = self.environment.at(proposal.share if proposal else 1.0).budget_seconds
        known = None if self.elsewhere else allowance(self.history, machine(), budget, number)
        return known.halved() if known and purpose in ("confirm", "report") else known

    @contextmanager
    def _slot(self, at: At, place: TrialDir, last: str) -> Iterator[Slot]:
        """A slot for a run; none if the result of its `last` task is stored."""
        if is_kept(self.ledger.results, at, last) or workspace.settled(place, at.part):
            yield NOWHERE
            return
        began = clock()
        with self.slots.hold(lambda words: self.ledger.event("waiting", number=at.number, who=words)) as slot:
            self.queued.append((began, clock()))
            where = {"number": at.number, "slot": slot.name} | ({"on": platform.node()} if self.launched else {})
            self.ledger.event("slot", **where)
            try:
                yield slot
            finally:
                proof = {} if place.path.is_relative_to(self.ledger.trials) else {"proof": True}
                self.ledger.event("slot free", **where, **proof, **slot.use.rounded)

    def _run_elsewhere(self, asked: LaunchRequest, environment: Environment) -> None:
        run_elsewhere(self.spec.launch, self.ledger, asked, request_of(self.spec, environment), self.queued)

    def _at(self, number: int, part: str = "") -> At:
        return replace(self.ledger.at(number, part), launched=self.launched)

    def _is_launched(self, at: At, place: TrialDir, step: Step) -> bool:
        """Whether a run is still to be done, on another machine."""
        if self.spec.launch == "here" or workspace.settled(place, at.part):
            return False
        return not all(is_kept(self.ledger.results, at, name) for name in RESULTS[step])

    @property
    def _known(self) -> tuple[int, str]:
        """The part of the history that a launched run may read: its length and digest."""
        known = self.history if self.written is None else self.written
        return len(known), history_digest(known)

    def _name(self, place: TrialDir) -> str:
        return place.path.relative_to(self.ledger.path).as_posix()

    def _trial(self, number: int) -> Trial:
        return next(trial for trial in self.history if trial.number == number)


def _missing(done: list[tuple[Run, Score]]) -> int:
    return sum(score.value is None for _, score in done)


def _part(seed: int) -> str:
    """The name of a trial's run under its n-th training seed; empty for the first."""
    return f"run-{seed}" if seed > 1 else ""
