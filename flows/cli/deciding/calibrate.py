"""`nightshift calibrate ENVIRONMENT`: run the baseline a few times, and say what its noise asks of a night."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from environments.plugins import Refused
from flows.cli.running import single_run
from flows.cli.set_option import overrides_only
from flows.views import terminal
from tasks.deciding.certificate import RUNS as CERTIFICATES
from tasks.deciding.statistics import CONFIDENCE
from tasks.describe import number
from tasks.store import calibration
from tasks.store.calibration import FEWEST, FOLDER, Calibration, Findings, Foresight, Measured
from tasks.store.ledger import machine
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.home import home
from tasks.trial import TWENTIETHS, Proposal, Run

RUNS = 5
UNITS = 0.5
"""Share of the variance between runs from which on more units for each run are worth their price."""


def calibrate(
    environment: str, runs: int, settings: list[str], seed: int | None, walls: str, gain: float | None, as_json: bool
) -> int:  # fmt: skip
    """Run the baseline, store its runs beside those that are known, and report; 1 when a run crashed, else 0."""
    if runs < FEWEST:
        raise Refused(f"--runs {runs}: a spread needs at least {FEWEST} runs")
    if gain is not None and not 0 < gain < math.inf:
        raise Refused(f"--gain {gain:g}: give the least gain that is worth finding, above 0")
    from flows.server.connect import settle_in

    settle_in(home())
    from tasks.sandbox.program import CannotStart

    try:
        session = prepare(environment, runs, settings, seed, walls)
        done = session.measure(quiet=as_json)
    except CannotStart as fault:
        print(f"nightshift: {fault}", file=sys.stderr)
        return 1
    if error := done[-1].score.error:
        if as_json:
            terminal.print_json(
                {
                    "environment": session.stage.environment.name,
                    "error": error,
                    "directory": str(session.folder),
                }
            )
        else:
            print(f"the baseline crashed, so nothing is stored: {error}\nsee {session.folder}")
        return 1
    whole = calibration.add(home(), session.calibration(done))
    found = calibration.findings(whole.runs, gain)
    if as_json:
        terminal.print_json(document(whole, found, session))
    else:
        _print(whole, found, session)
    return 0


def prepare(environment: str, runs: int, settings: list[str], seed: int | None, walls: str) -> Session:
    """Freeze the environment, ready to run its baseline.

    Raises:
        Refused: what cannot be run, or a seed that has been run; nothing is left of it then.
    """
    from flows.spec.environment import checked_environment

    asked = checked_environment(environment, overrides_only(settings))
    root = home() / FOLDER / asked.name
    folder = single_run.next_in(root)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    seeds = tuple(derive(drawn, "train", turn, 1) for turn in range(1, runs + 1))
    try:
        problem = single_run.frozen(asked, folder)
        stage = single_run.stage(
            problem, walls, allow_unsandboxed=False, edited=False, root=root, verb="calibrate"
        )
        digest = calibration.digest(folder, problem)
        known = calibration.find(home(), digest, machine())
        if known and {one.run.seed for one in known.runs} & {*seeds}:
            raise Refused(f"--seed {seed} was run already, so its runs would count twice: leave it out")
    except Refused:
        file_trees.remove(folder)
        raise
    return Session(stage, folder, digest, known.runs if known else (), seeds)


@dataclass(frozen=True)
class Session:
    """Where the baseline is run."""

    stage: single_run.Stage
    folder: Path
    digest: str
    known: tuple[Measured, ...]
    """What was measured of the same thing on this machine before."""
    seeds: tuple[int, ...]
    """Of the runs to come."""

    def measure(self, quiet: bool = False) -> tuple[Measured, ...]:
        """Run the baseline under each seed; a run that crashes is the last one.

        Raises:
            CannotStart: no process could be started.
        """
        proposal = Proposal(self.stage.environment.defaults, proposer="calibrate")
        done: list[Measured] = []
        with interrupt.deferred():
            for turn, seed in enumerate(self.seeds, 1):
                interrupt.check()
                siblings: list[Run] = [one.run for one in (*self.known, *done)]
                place = TrialDir(self.folder / "trials" / f"{turn}")
                run, score = self.stage.measure(
                    self.folder / "program", place, proposal, seed, secrets.randbelow(2**63), siblings
                )
                done.append(Measured(run, score))
                if score.value is None:
                    break
                if not quiet:
                    se = f" (se {number(score.se)} over {score.n})" if score.se is not None else ""
                    print(
                        f"run {turn} of {len(self.seeds)}  seed {seed:<10}  {number(score.value)}{se}",
                        flush=True,
                    )
        return tuple(done)

    def calibration(self, runs: tuple[Measured, ...]) -> Calibration:
        """The runs as a calibration of their own."""
        problem = self.stage.environment
        return Calibration(
            environment=problem.name,
            digest=self.digest,
            machine=machine(),
            budget_seconds=problem.budget_seconds,
            budget_steps=problem.budget_steps,
            device=problem.device,
            created=time.time(),
            runs=runs,
        )


def document(whole: Calibration, found: Findings, session: Session) -> dict[str, object]:
    """What `--json` prints."""
    runs = [
        {
            "seed": one.run.seed,
            "score": one.score.value,
            "se": one.score.se,
            "n": one.score.n,
            "seconds": one.run.seconds,
            "directory": str(session.stage.root / one.run.dir),
        }
        for one in whole.runs
    ]
    facts = {name: value for name, value in vars(whole).items() if name != "runs"}
    problem = session.stage.environment
    return {
        **facts, "metric": problem.metric, "direction": problem.direction, "runs": runs, "findings": asdict(found),
        "words": in_words(found, problem.metric), "path": str(calibration.path_of(home(), whole)),
    }  # fmt: skip


def in_words(found: Findings, metric: str) -> list[str]:
    """What was found, a sentence each: the noise, what its units explain, and what a night is advised to do."""
    return [_noise(found, metric), _units(found), _cancel(found), _replicates(found), _certificate(found)]


def _noise(found: Findings, metric: str) -> str:
    mean = f"{metric} {number(found.mean)} on average over {found.runs} runs"
    if not found.sd:
        return f"{mean}, which all scored the same: any difference that shows is one"
    between = f"{number(found.low)}..{number(found.high)}"
    return f"{mean}; noise between runs: sd {number(found.sd)} ({100 * CONFIDENCE:.0f} % interval {between})"


def _units(found: Findings) -> str:
    if found.unit_se is None:
        return "units: a run has a single one, so nobody knows how much of the noise is the judge's"
    known = f"units: one run's score is known to {number(found.unit_se)} (standard error)"
    if found.unit_share is None:
        return known
    share = f"{known}, {min(found.unit_share, 1):.0%} of the variance between runs"
    if found.unit_share < UNITS:
        return f"{share}: the rest is training, and only more runs help against it"
    return f"{share}: more units for each run are the cheapest way to less noise"


def _cancel(found: Findings) -> str:
    if not found.foresight:
        return "cancel = none: no progress is reported that every run has in common"
    if found.cancel is None:
        return (
            "cancel = none: nowhere from 20 to 90 % of the budget is progress known to be at most twice as noisy "
            "between runs as at its end"
        )
    return (
        f"cancel: look at {found.cancel:.0%} of the budget (--set cancel.fraction={found.cancel:g}), the first place "
        "where progress is at most twice as noisy between runs as at its end. Whether a better idea shows that early "
        "is not known from runs of one program, which differ by luck alone"
    )


def _replicates(found: Findings) -> str:
    if found.replicates == 1:
        return "replicates = 1: what one run leaves open, the trials after it tell"
    return f"replicates = {found.replicates}: one run is noisier than the gain that is worth finding"


def _certificate(found: Findings) -> str:
    trials = next(least for least, arm in CERTIFICATES if arm <= found.certificate)
    length = f"a campaign of {trials} or more trials has them" if trials else "every campaign has them"
    shows = next(one.gain for one in found.detects if one.runs == found.certificate)
    certificate = (
        f"certificate: {found.certificate} runs of each arm show a gain of {number(shows)} four times out of five; "
        f"{length}"
    )
    asked = found.asked
    if asked is None or (asked.runs is not None and asked.runs <= found.certificate):
        return certificate
    needs = f"{asked.runs} runs" if asked.runs else "more than 1000 runs"
    return f"{certificate}. A gain of {number(asked.gain)} needs {needs} of each arm: `nightshift duel` takes --runs"


def _print(whole: Calibration, found: Findings, session: Session) -> None:
    console = Console(highlight=False)
    problem = session.stage.environment
    before = f", {len(session.known)} of them from before" if session.known else ""
    place = f"{terminal.clean(whole.environment)} on {whole.machine}, {whole.budget_seconds:g} s a run"
    print(f"\n{place}: {found.runs} runs{before}")
    if found.needed or found.asked:
        console.print(_needed(found))
    console.print(_detects(found))
    if found.foresight:
        console.print(_foresight(found.foresight))
        terminal.say(console, Text(_caution(found)))
    for sentence in in_words(found, problem.metric):
        terminal.say(console, Text(sentence))
    print(f"see {calibration.path_of(home(), whole)}")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _needed(found: Findings) -> Table:
    rows = [
        (number(one.gain), "-" if one.sds is None else f"{one.sds:.2g}", str(one.runs or "> 1000"))
        for one in (*found.needed, *([found.asked] if found.asked else []))
    ]
    return _table(("a gain of", "in sds", "needs runs of each arm"), rows)


def _detects(found: Findings) -> Table:
    rows = [(str(one.runs), number(one.gain)) for one in found.detects]
    return _table(("runs of each arm", "show a gain of"), rows)


def _foresight(seen: Sequence[Foresight]) -> Table:
    rows = [
        (
            f"{one.fraction:.0%}",
            "-" if one.noise is None else f"{one.noise:.2f}",
            "-" if one.correlation is None else f"{one.correlation:+.2f}",
            "-" if one.low is None or one.high is None else f"{one.low:+.2f}..{one.high:+.2f}",
            "-" if one.error is None else f"{one.error:.2f}",
        )
        for one in seen
        if round(one.fraction * TWENTIETHS) % 2 == 0 or one is seen[-1]
    ]
    interval = f"{100 * CONFIDENCE:.0f} % interval"
    return _table(("of the budget", "noise", "correlation", interval, "error"), rows)


def _caution(found: Findings) -> str:
    return (
        "noise: the spread of progress between runs, the end's being 1. correlation, error: how well progress told the "
        f"final score, the error in run sds. {found.runs} runs of one program say little of either: they vary by luck "
        "alone, and much less than trials do"
    )
