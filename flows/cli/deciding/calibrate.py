"""`nightshift calibrate ENVIRONMENT`: the noise between runs of the baseline, and the settings that follow from it."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from environments import Environment
from environments.plugins import Refused
from flows.cli import consent
from flows.cli.running import single_run
from flows.cli.running.single_run import PlannedRun
from flows.cli.set_option import overrides_only
from flows.views import terminal
from tasks.certifying.group_design import RUNS as CERTIFICATES
from tasks.certifying.group_design import design_of
from tasks.certifying.power import MOST, POWER, RATIO
from tasks.deciding.statistics import CONFIDENCE
from tasks.numbers import number
from tasks.store import calibration
from tasks.store.calibration import FEWEST, FOLDER, Calibration, Findings, Measured
from tasks.store.ledger import machine
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.system.home import home
from tasks.trial import TWENTIETHS, Proposal

UNITS = 0.5
"""Share of the variance between runs from which on more units for each run are worth their price."""
SCATTERS = f"champion's sd {RATIO:g} x"
"""Heading: the same for a champion that is noisier than the baseline."""
INTERVAL = f"{100 * CONFIDENCE:.0f} % interval"


def calibrate(
    environment: str, runs: int, settings: list[str], trust: bool, seed: int | None, isolation: str,
    gain: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Run the baseline, store its runs with earlier ones, and report; 1 when a run crashed, else 0."""
    if runs < FEWEST:
        raise Refused(f"--runs {runs}: a spread needs at least {FEWEST} runs")
    if gain is not None and not 0 < gain < math.inf:
        raise Refused(f"--gain {gain:g}: give the least gain that is worth finding, above 0")
    from flows.server.server_process import settle_in

    settle_in(home())
    consent.ask_about(environment, overrides_only(settings), trust)
    session = prepare(environment, runs, settings, seed, isolation)
    made = session.measure(quiet=as_json)
    if error := made.runs[-1].score.error:
        if as_json:
            failure = {"environment": made.environment, "error": error, "directory": str(session.folder)}
            terminal.print_json(failure)
        else:
            print(f"the baseline crashed, so nothing is stored: {error}\nsee {session.folder}")
        return 1
    whole = calibration.add(home(), made)
    findings = calibration.findings(whole.runs, gain)
    if as_json:
        terminal.print_json(document(whole, findings, session.stage))
    else:
        _print(whole, findings, len(session.known), session.stage.environment)
    return 0


def prepare(environment: str, runs: int, settings: list[str], seed: int | None, isolation: str) -> Session:
    """Freeze the environment.

    Raises:
        Refused: it cannot be run, or the seed has been used before; nothing is left of the session then.
    """
    stage, folder, digest = staged(environment, settings, isolation)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    seeds = tuple(derive(drawn, "train", turn, 1) for turn in range(1, runs + 1))
    with single_run.removed_if_refused(folder):
        stored = calibration.find(home(), digest, machine())
        known = stored.runs if stored else ()
        if {earlier.run.seed for earlier in known} & {*seeds}:
            raise Refused(f"--seed {seed} was run already, so its runs would count twice: leave it out")
    return Session(stage, folder, digest, known, seeds)


def staged(environment: str, settings: list[str], isolation: str) -> tuple[single_run.Stage, Path, str]:
    """A frozen environment as a stage, the new folder that holds it, and the digest for which runs in it are valid.

    Refused if it cannot be run; nothing is left of the folder then.
    """
    from flows.spec.environment import checked_environment

    current = checked_environment(environment, overrides_only(settings))
    root = home() / FOLDER / current.name
    folder = single_run.next_in(root)
    with single_run.removed_if_refused(folder):
        problem = single_run.frozen(current, folder)
        stage = single_run.stage(problem, isolation, False, False, root, "calibrate")
        return stage, folder, calibration.digest(folder, problem)


@dataclass(frozen=True)
class Session:
    """A frozen environment whose baseline is to be run."""

    stage: single_run.Stage
    folder: Path
    digest: str
    known: tuple[Measured, ...]
    """Earlier runs of the same baseline on this machine."""
    seeds: tuple[int, ...]
    """Of the runs to come."""

    def measure(self, quiet: bool = False) -> Calibration:
        """Run the baseline under each seed, until a run crashes; these runs as a calibration.

        Raises:
            KeyboardInterrupt: this process was asked to end.
            Refused, OSError: the next run cannot begin. As for every error, the runs that had ended are stored.
        """
        done: list[Measured] = []
        earlier = [measured.run for measured in self.known]
        try:
            for planned, run, score in self.stage.measure_all(self._plan(), earlier):
                done.append(Measured(run, score))
                if score.value is None:
                    break
                if not quiet:
                    text = single_run.score_text(score)
                    head = f"run {planned.number} of {len(self.seeds)}  seed {run.seed:<10}"
                    print(f"{head}  {text}", flush=True)
        except BaseException:
            if done:
                calibration.add(home(), self._made(done))
                print(f"stored the {len(done)} of {len(self.seeds)} runs that had ended", file=sys.stderr)
            raise
        return self._made(done)

    def _made(self, runs: Sequence[Measured]) -> Calibration:
        problem = self.stage.environment
        return Calibration(
            environment=problem.name,
            digest=self.digest,
            machine=machine(),
            budget_seconds=problem.budget_seconds,
            budget_steps=problem.budget_steps,
            device=problem.device,
            created=time.time(),
            runs=tuple(runs),
        )

    def _plan(self) -> Iterator[PlannedRun]:
        proposal = Proposal(self.stage.environment.defaults, proposer="calibrate")
        for turn, seed in enumerate(self.seeds, 1):
            place = TrialDir(self.folder / "trials" / f"{turn}")
            units = secrets.randbelow(2**63)
            yield PlannedRun("baseline", turn, self.folder / "program", place, proposal, seed, units)


def document(whole: Calibration, findings: Findings, stage: single_run.Stage) -> dict[str, object]:
    """The output of `--json`."""
    problem = stage.environment
    return {
        **vars(whole), "metric": problem.metric, "direction": problem.direction,
        "runs": [stage.facts(measured.run, measured.score) for measured in whole.runs],
        "findings": asdict(findings), "words": in_words(findings, problem.metric, problem.deterministic),
        "path": str(calibration.path_of(home(), whole)),
    }  # fmt: skip


def in_words(findings: Findings, metric: str, deterministic: bool = False) -> list[str]:
    """The findings, a sentence each: the noise, the judge's share of it, and the settings that follow.

    Args:
        deterministic: Whether the environment is, whose certificates are shorter.
    """
    return [
        _noise(findings, metric),
        _units(findings),
        _cancel(findings),
        _replicates(findings),
        _certificate(findings, deterministic),
    ]


def _noise(findings: Findings, metric: str) -> str:
    mean = f"{metric} {number(findings.mean)} on average over {findings.runs} runs"
    if not findings.sd:
        return f"{mean}, which all scored the same: any difference is a real one"
    between = f"{number(findings.low)}..{number(findings.high)}"
    return f"{mean}; noise between runs: sd {number(findings.sd)} ({INTERVAL} {between})"


def _units(findings: Findings) -> str:
    if findings.unit_se is None:
        return "units: each run has a single one, so the judge's share of the noise is unknown"
    known = f"units: one run's score is known to {number(findings.unit_se)} (standard error)"
    if findings.unit_share is None:
        return known
    share = f"{known}, {min(findings.unit_share, 1):.0%} of the variance between runs"
    if findings.unit_share < UNITS:
        return f"{share}: the rest is training, and only more runs help against it"
    return f"{share}: more units for each run are the cheapest way to less noise"


def _cancel(findings: Findings) -> str:
    if not findings.foresight:
        return "cancel = none: no progress is reported that every run has in common"
    if findings.cancel is None:
        return (
            "cancel = none: nowhere from 20 to 90 % of the budget is progress known to be at most twice as noisy "
            "between runs as at its end"
        )
    return (
        f"cancel: look at {findings.cancel:.0%} of the budget (--set cancel.fraction={findings.cancel:g}), the first "
        "place where progress is at most twice as noisy between runs as at its end. Whether a better program shows "
        "that early is not known from runs of one program, which differ by chance alone"
    )


def _replicates(findings: Findings) -> str:
    if findings.replicates == 1:
        return "replicates = 1: later trials resolve what one run leaves open"
    return f"replicates = {findings.replicates}: one run is noisier than the gain that is worth finding"


def _certificate(findings: Findings, deterministic: bool) -> str:
    every = ((0, design_of(0, deterministic=True).groups),) if deterministic else CERTIFICATES
    sizes = [
        f"{groups[-1][0]} v {groups[-1][1]}" + (f" from {least} trials on" if least else "")
        for least, groups in reversed(every)
    ]
    length = f"that of a campaign has at most {', '.join(sizes)}"
    shows = next(detects for detects in findings.detects if detects.runs == findings.certificate)
    certificate = (
        f"certificate: {findings.certificate} runs of each arm show a true gain of {number(shows.gain)} with "
        f"{POWER:.0%} power, of {number(shows.noisier)} if the champion's runs scatter {RATIO:g} times as much as "
        f"these; {length}"
    )
    asked = findings.asked
    if asked is None or (asked.runs is not None and asked.runs <= findings.certificate):
        return certificate
    needs = f"{asked.runs} runs" if asked.runs else f"more than {MOST} runs"
    return f"{certificate}. A gain of {number(asked.gain)} needs {needs} of each arm: `nightshift duel` takes --runs"


def _print(whole: Calibration, findings: Findings, known: int, environment: Environment) -> None:
    console = terminal.console()
    before = f", {known} of them from before" if known else ""
    where = f"{terminal.clean(whole.environment)} on {whole.machine}, {whole.budget_seconds:g} s a run"
    print(f"\n{where}: {findings.runs} runs{before}")
    if needed := [*findings.needed, *([findings.asked] if findings.asked else [])]:
        rows = [
            (number(row.gain), _cell(row.sds, ".2g"), str(row.runs or f"> {MOST}"), str(row.noisier or f"> {MOST}"))
            for row in needed
        ]
        console.print(_table(("a gain of", "in sds", "needs runs of each arm", SCATTERS), rows))
    detects = [(str(row.runs), number(row.gain), number(row.noisier)) for row in findings.detects]
    console.print(_table(("runs of each arm", "show a gain of", SCATTERS), detects))
    if findings.foresight:
        last = findings.foresight[-1]
        curve = [
            (
                f"{row.fraction:.0%}",
                _cell(row.noise, ".2f"),
                _cell(row.correlation, "+.2f"),
                "-" if row.low is None or row.high is None else f"{row.low:+.2f}..{row.high:+.2f}",
                _cell(row.error, ".2f"),
            )
            for row in findings.foresight
            if round(row.fraction * TWENTIETHS) % 2 == 0 or row is last
        ]
        console.print(_table(("of the budget", "noise", "correlation", INTERVAL, "error"), curve))
        caution = (
            "noise: the spread of progress between runs, the end's being 1. correlation, error: how well progress "
            f"predicted the final score, the error in run sds. {findings.runs} runs of one program say little of "
            "either: they vary by chance alone, and much less than trials do"
        )
        terminal.say(console, Text(caution))
    for sentence in in_words(findings, environment.metric, environment.deterministic):
        terminal.say(console, Text(sentence))
    print(f"see {calibration.path_of(home(), whole)}")


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table
