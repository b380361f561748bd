"""`nightshift calibrate ENVIRONMENT --fidelity 0.3`: whether runs of a part of the budget rank points as whole ones."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from environments.plugins import Refused
from flows.cli import consent
from flows.cli.deciding.calibrate import staged
from flows.cli.running import single_run
from flows.cli.running.single_run import PlannedRun
from flows.cli.set_option import overrides_only
from flows.views import terminal
from flows.views.terminal import duration
from tasks.deciding.fidelity import LEAST, MOST, found_words
from tasks.proposing.axes import varied
from tasks.store import short_runs
from tasks.store.calibration import Measured
from tasks.store.ledger import machine
from tasks.store.seeds import derive
from tasks.store.short_runs import MeasuredPoint, ShortRuns
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.home import home
from tasks.trial import Params, Proposal

POINTS = 20
"""Points that are measured, unless another number is asked for."""


def calibrate(
    environment: str, share: float, points: int, settings: list[str], trust: bool, seed: int | None, isolation: str,
    as_json: bool,
) -> int:  # fmt: skip
    """Measure as many points as are missing, and report all of them; 1 if no rank correlation came out, else 0."""
    if not LEAST <= share <= MOST:
        raise Refused(f"--fidelity {share:g}: give a share of the budget from {LEAST:g} to {MOST:g}, such as 0.3")
    if points < 4:
        raise Refused(f"--configs {points}: a rank correlation needs at least 4 points")
    from flows.server.server_process import settle_in

    settle_in(home())
    consent.ask_about(environment, overrides_only(settings), trust)
    session = prepare(environment, share, settings, seed, isolation)
    if not as_json:
        print(cost(session, points), flush=True)
    whole = session.measure(points, quiet=as_json)
    words = found_words(share, whole.correlation, len(whole.points))
    if as_json:
        terminal.print_json(document(whole, session.stage, words))
    else:
        print(f"{words}\nsee {whole.path(home())}")
    return 0 if whole.correlation else 1


def prepare(environment: str, share: float, settings: list[str], seed: int | None, isolation: str) -> ShortSession:
    """Freeze the environment. Refused if it cannot be run, or has no parameter to vary."""
    stage, folder, digest = staged(environment, settings, isolation)
    with single_run.removed_if_refused(folder):
        if not varied(stage.environment.space):
            raise Refused(f"{environment} has no parameter in [space] to vary, so there are no points to rank")
    name = stage.environment.name
    known = short_runs.stored(home(), ShortRuns(name, digest, machine(), share, 0.0))
    return ShortSession(stage, folder, known, secrets.randbelow(2**31) if seed is None else seed)


def cost(session: ShortSession, points: int) -> str:
    """What measuring so many points costs, in a sentence."""
    missing, problem = max(points - len(session.known.points), 0), session.stage.environment
    before = f", {len(session.known.points)} known from before" if session.known.points else ""
    share = session.known.share
    longest = duration(missing * (1 + share) * problem.budget_seconds)
    each = f"each for {share:.0%} of the budget and in full"
    return f"{points} points of {problem.name}{before}; {missing} to run, {each}: up to {longest} of training"


@dataclass(frozen=True)
class ShortSession:
    """A frozen environment in which points are to be run at two budgets."""

    stage: single_run.Stage
    folder: Path
    known: ShortRuns
    """Those of before, on this machine."""
    seed: int

    def measure(self, points: int, quiet: bool = False) -> ShortRuns:
        """Run points until there are so many, each stored at once; a signal interrupts between two runs."""
        whole = self.known
        with interrupt.deferred():
            while (number := len(whole.points)) < points:
                params = self._drawn(number)
                short = self._run(number, params, whole.share)
                full = self._run(number, params, 1.0) if short.score.value is not None else None
                whole = short_runs.add(home(), whole, MeasuredPoint(params, short, full))
                if not quiet:
                    then = f"in full {single_run.score_text(full.score)}" if full else "left out"
                    head = f"point {len(whole.points)} of {points}"
                    print(f"{head}  short {single_run.score_text(short.score)}; {then}", flush=True)
        if not any(self.folder.joinpath("trials").iterdir()):
            file_trees.remove(self.folder)  # everything was known
        return whole

    def _drawn(self, number: int) -> Params:
        """A point, drawn at random."""
        draws, environment = np.random.default_rng(derive(self.seed, "propose", number, 1)), self.stage.environment
        return environment.complete({name: one.sample(draws) for name, one in environment.space.items()})

    def _run(self, number: int, params: Params, share: float) -> Measured:
        interrupt.check()
        part = f"{number + 1}-at-{share:g}"
        place = TrialDir(self.folder / "trials" / part)
        proposal = Proposal(params, proposer="calibrate", share=share)
        seed, units = derive(self.seed, "train", number, 1, part), secrets.randbelow(2**63)
        planned = PlannedRun(part, 1, self.folder / "program", place, proposal, seed, units)
        return Measured(*self.stage.measure(planned))


def document(whole: ShortRuns, stage: single_run.Stage, words: str) -> dict[str, object]:
    """The output of `--json`."""
    found, problem = whole.correlation, stage.environment
    return {
        "environment": whole.environment, "machine": whole.machine, "metric": problem.metric,
        "budget_seconds": problem.budget_seconds, "share": whole.share,
        "points": [
            {
                "params": point.params,
                "short": stage.facts(point.short.run, point.short.score),
                "full": stage.facts(point.full.run, point.full.score) if point.full else None,
            }
            for point in whole.points
        ],
        "correlation": {**asdict(found), "pays": found.pays} if found else None,
        "words": words, "path": str(whole.path(home())),
    }  # fmt: skip
