"""The bench: run what a campaign wants to know, and judge it. Every step is a task whose result is a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace

from environments import Environment
from environments.score import Score
from flows.spec import CampaignSpec
from tasks.certificate import Arm, Fresh
from tasks.checkpoint import At, kept, whole
from tasks.decide import Untrained, Wanted, decide
from tasks.evaluate import evaluate
from tasks.ledger import Ledger
from tasks.plausible import believed
from tasks.rules import Again, Tried
from tasks.seeds import Purpose
from tasks.train import train
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict
from tasks.untrained import untrained
from tasks.workspace import TrialDir

SPARED = 10
"""One in so many cancellations that are due is not carried out."""


@dataclass(frozen=True)
class Bench:
    """Where the next trial of a campaign, or a certificate, is run; everything that it may know is `history`."""

    spec: CampaignSpec
    ledger: Ledger
    history: History
    elsewhere: Environment | None = None
    """Another environment to run in than the campaign's own."""

    @property
    def environment(self) -> Environment:
        return self.elsewhere or self.ledger.environment

    def trial(self, number: int, proposal: Proposal) -> Tried:
        """Train and judge a proposal under every training seed it gets; a run that fails is the last one."""
        runs: list[Run] = []
        scores: list[Score] = []
        known = () if self.history else self.ledger.calibrated
        seeds = self.spec.replicates
        if not self.history and not known:
            seeds = self.spec.loaded_rule.baseline_runs(seeds, self.environment.deterministic)
        for seed in range(1, seeds + 1):
            part = f"run-{seed}" if seed > 1 else ""
            run, score = self.measure(number, proposal, part, "search", tuple(runs), early=seed == 1)
            runs.append(run)
            scores.append(score)
            if score.value is None:
                break
        return Tried(number, proposal, tuple(runs), Score.over(scores), known)

    def more(self, tried: Tried, wanted: Wanted) -> Tried:
        """What else has to be known before a trial can be decided."""
        if isinstance(wanted, Again):
            part = f"again-{len(tried.reruns) + 1}"
            proposal = tried.proposal if wanted.of == tried.number else self._trial(wanted.of).proposal
            siblings = tried.runs if wanted.of == tried.number else ()
            run, score = self.measure(tried.number, proposal, part, "confirm", siblings)
            return replace(tried, reruns=(*tried.reruns, Rerun(wanted.of, run, score)))
        assert isinstance(wanted, Untrained), f"{wanted} is no question"
        at, place = self.ledger.at(tried.number), self.ledger.place(tried.number)
        control = kept(untrained, self.ledger.results)(
            at, whole(self.environment), self.spec.isolation, self.ledger.program, place, tried.proposal,
            tried.runs[0], self.ledger.seed("control", at),
        )  # fmt: skip
        self.ledger.verify()
        return replace(tried, control=control)

    def decide(self, tried: Tried) -> Verdict:
        rule = whole(self.spec.loaded_rule)
        at, problem, known = self.ledger.at(tried.number), whole(self.environment), whole(self.history)
        return kept(decide, self.ledger.results)(at, known, problem, rule, whole(tried))

    def fresh(self, name: str, folder: str, champion: int, arm: Arm, number: int) -> Fresh:
        """One run of a certificate: the champion or the baseline anew, on fresh units that a block shares."""
        part = f"{name}-{arm}-{number}"
        trial = self._trial(champion if arm == "champion" else self.history[0].number)
        place = TrialDir(self.ledger.path / "certificates" / f"{folder}-{champion:04d}-{arm}-{number}")
        # Units of its own for each block: what they favour in one arm must not be in all of its runs alike.
        judged = self.ledger.at(champion, f"{name}-{number}")
        run, score = self.measure(champion, trial.proposal, part, "report", place=place, judged=judged)
        return Fresh(arm, run, score)

    def measure(
        self,
        number: int,
        proposal: Proposal,
        part: str,
        purpose: Purpose,
        siblings: tuple[Run, ...] = (),
        early: bool = False,
        place: TrialDir | None = None,
        judged: At | None = None,
    ) -> tuple[Run, Score]:
        """Train once and judge what comes of it.

        Args:
            part: Which run of the trial it is; empty for its first.
            siblings: Runs of the same proposal that no trial of the history holds yet.
            early: Whether it may be cancelled.
            judged: Whose units it is judged on; None: units of its own.
        """
        ledger, results = self.ledger, self.ledger.results
        at, place = ledger.at(number, part), place or ledger.place(number, part)
        problem, walls = whole(self.environment), self.spec.isolation
        canceller = self.spec.loaded_canceller(self.environment) if early and self.history else None
        run = kept(train, results)(
            at, problem, walls, ledger.program, place, proposal, ledger.seed("train", at),
            whole(self.history), whole(canceller), ledger.seed("spare", at) % SPARED == 0,
        )  # fmt: skip
        run = believed(self.environment, self.history, proposal, run, ledger.path, siblings)
        if not (results / f"{at}/evaluate").is_file():
            ledger.verify()  # what judges is what was frozen
        seed = ledger.seed(purpose, judged or at)
        return run, kept(evaluate, results)(at, problem, walls, place, run, seed)

    def _trial(self, number: int) -> Trial:
        return next(trial for trial in self.history if trial.number == number)
