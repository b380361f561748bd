"""Run -> Score: start the candidate, hand it to the environment's judge, and return the judge's score.

A candidate that answers wrongly, late or not at all gets a missing score with the reason.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from prefect import State, task

from environments import FILE, Environment
from environments.judges import ComparisonBlock, Exam, Misbehaved, Use
from environments.plugins import Refused, name_of
from environments.score import LARGEST, Score, Wait
from tasks.bench import Bench, RunPlan, Units
from tasks.checkpoint import KEPT, ended
from tasks.describe import in_short
from tasks.machine.slots import NOWHERE, Slot
from tasks.sandbox import confinement, outputs
from tasks.sandbox.advice import advice
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import NotAProgram, Program
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.redact import one_line
from tasks.task_key import TaskKey
from tasks.train import placeholders
from tasks.trial import Run


@task(**KEPT, cache_key_fn=lambda _, given: f"{given['key']}/evaluate")
def evaluate(key: TaskKey, bench: Bench, plan: RunPlan, run: Run, need: Wait | None) -> State[Score]:
    """The judged score of a run; missing for a crashed one."""
    if isinstance(run, Exception):
        raise RuntimeError("there is no run to judge: the machine failed its training") from run
    bench.ledger.verify()  # the judge is the frozen one
    with bench.slot(key) if run.status == "finished" else nullcontext(NOWHERE) as slot:

        def judged(units: Units) -> Score:
            where = key.marker(bench.launched), bench.environment, bench.isolation, bench.dir(plan)
            return judge_run(*where, run, bench.ledger.seed(plan.use, units.of), slot, plan.use, need, units.block)

        echo = judged(plan.echo).units if plan.echo else ()
        score = replace(judged(plan.units or Units(key)), echo=echo)
    if run.status != "finished":
        return ended(score, f"not judged: {in_short(run.error or 'the run was stopped early')}")
    if score.value is None:
        return ended(score, "", score.error or "no score")
    error = f" (se {score.se:.2g})" if score.se is not None else ""
    return ended(score, f"score {score.value:.4g}{error}, {score.n} units")


def judge_run(
    marker: str, environment: Environment, isolation: Isolation, place: TrialDir, run: Run, seed: int,
    slot: Slot = NOWHERE, use: Use = "search", need: Wait | None = None, block: ComparisonBlock | None = None,
) -> Score:  # fmt: skip
    """Judge one run on units drawn from `seed`. Only a fault of the machine raises (CannotStart).

    Args:
        need: What the baseline needed, by which its program is waited for; None: that is not bounded.
        block: The block of a comparison, whose units a finite pool gives to no other block; None: no comparison.
    """
    if run.status != "finished":
        return Score.missing(run.error or run.status, environment.higher_is_better)
    if changed := changed_since(place, run):
        return Score.missing(changed, environment.higher_is_better)
    workspace.relocate(place, environment)
    if run.isolation != isolation.level:  # it may belong to another user, under another umask
        file_trees.open_to_all(place.out)
    judge = environment.judge
    exam = Exam(seed, use, environment.prepared, environment.folder, need, block, interrupt.check)
    file_trees.remove(place.judged)
    place.judged.mkdir()
    confinement.give(place.judged, isolation.level)
    command = workspace.fill(judge.command(), judge_placeholders(environment, place, seed, use, block))
    directory = place.workspace if judge.runs_in == "workspace" else environment.folder
    began = time.monotonic()
    try:
        with Program(
            command, cwd=directory, log=place.judge_log, marker=marker, level=isolation.level,
            view=view(environment, place), limits=environment.limits, pipes=True, slot=slot,
        ) as program:  # fmt: skip
            try:
                candidate = PipedCandidate(program, place.result, judge.total_seconds)
                # A judge that plays works in this thread while the candidate waits. What another starts, such as the
                # process that scores answers, may serve further slots and has to stay free.
                with (slot if judge.runs_in == "workspace" else NOWHERE).on_its_cores():
                    score = judge.score(candidate, exam)
            except Misbehaved as wrong:
                program.kill()
                why, tail = one_line(str(wrong), REASON), program.tail()
                remedy = advice(isolation.level, environment, tail)
                score = Score.missing(f"{why}\n{tail}".rstrip() + remedy, environment.higher_is_better)
    except NotAProgram as wrong:
        score = Score.missing(str(wrong), environment.higher_is_better)
    slot.used("judge", time.monotonic() - began)
    # In a sandbox nothing can have changed, and hashing a large checkpoint takes seconds.
    changed = changed_since(place, run) if isolation.level == "none" else None
    told = {name: value for name, value in score.also.items() if abs(value) <= LARGEST}  # no NaN can be stored
    score = replace(score, also=told, higher_is_better=environment.higher_is_better)
    reason = changed or _invalid(score, environment)
    return Score.missing(reason, environment.higher_is_better) if reason else score


def _invalid(score: Score, environment: Environment) -> str | None:
    """Why a score is no score: a unit outside of the metric's range, or no guarded metric."""
    low, high = environment.range or (-LARGEST, LARGEST)  # nan lies in no range
    for index, unit in enumerate(score.units):
        if not low <= unit <= high:
            bounds = f"outside of the metric's range {[low, high]}" if environment.range else "no number that counts"
            return f"unit {index} scored {unit:g}, {bounds}"
    for name in environment.guards if score.value is not None else ():
        if name not in score.also:
            is_measured = environment.judge.measures() is not None
            return f"the result lacks guard metric {name!r}" + ("" if is_measured else ': write it under "also"')
    return None


def changed_since(place: TrialDir, run: Run) -> str | None:
    """How program or checkpoint differ from what was trained; None if they do not."""
    if run.checkpoint != outputs.checkpoint(place.out):
        return "out/ has changed since the training ended"
    if run.program != workspace.program_digest(place):
        return "the program has changed since the training began: write to out/ or TMPDIR, not to the workspace"
    return None


def view(environment: Environment, place: TrialDir) -> VisiblePaths:
    """What the candidate may read: a trial's program its trial, an evaluation command the environment."""
    judge = environment.judge
    if judge.runs_in == "workspace":
        return replace(confinement.of(environment, (place.workspace, place.out), ()), network=False)
    reads = [environment.folder / path for path in judge.reads]
    made = [environment.prepared] if environment.prepared and judge.shows_prepared else []
    view = confinement.of(environment, (environment.folder, place.out, *made, *reads), (place.judged,))
    return replace(view, network=judge.online)


def judge_placeholders(
    environment: Environment, place: TrialDir, seed: int, use: Use = "search", block: ComparisonBlock | None = None
) -> dict[str, object]:
    named = placeholders(environment, {}, place.out, seed % 2**31)  # the range that most libraries accept
    share = f"{block.number}/{block.of}" if block else "1/1"
    return {**named, "result": str(place.result.absolute()), "use": use, "block": share}


def check(environment: Environment) -> None:
    """Refuse a judge whose command line cannot be filled in, and reported scores that do not say that they are."""
    source, metric = environment.folder / FILE, environment.metric
    if environment.scores_are_reported and not environment.remote:
        raise Refused(
            f"{source}: judge = 'reported' takes the score from another machine, and trainer {environment.trainer!r} "
            "trains here, where a program would score itself: use another judge"
        )
    if environment.scores_are_reported and not metric.startswith(REPORTED):
        raise Refused(
            f"{source}: metric = {metric!r}, and judge = 'reported' measures nothing: call it "
            f"'{REPORTED}{metric.rpartition('/')[2]}', which is shown wherever the score is"
        )
    values = judge_placeholders(environment, TrialDir(Path("trial")), seed=0)
    workspace.fill(environment.judge.command(), values, f"{source}: [{name_of(environment.judge)}] ")


REPORTED = "reported/"
"""Beginning of the name of a metric that nothing here has measured."""
REASON = 2_000
"""Most characters of a reason."""


class PipedCandidate:
    """A started program being judged, for `seconds` in all (see `environments.judges.Candidate`)."""

    def __init__(self, program: Program, result: Path, seconds: float) -> None:
        stdin, stdout = program.process.stdin, program.process.stdout
        assert stdin is not None and stdout is not None, "a candidate is started with pipes"
        self.result = result
        self._program, self._seconds, self._ends = program, seconds, time.monotonic() + seconds
        self._stdin, self._stdout = stdin.fileno(), stdout.fileno()
        self._pending = bytearray()
        for descriptor in (self._stdin, self._stdout):
            os.set_blocking(descriptor, False)

    def send(self, data: bytes, seconds: float) -> None:
        deadline, left = time.monotonic() + seconds, memoryview(data)
        while left:
            try:
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                self._wait(self._stdin, select.POLLOUT, deadline, f"did not read what it was sent within {seconds:g} s")
            except BrokenPipeError:
                raise Misbehaved(self._ended()) from None

    def receive(self, size: int, seconds: float) -> bytes:
        return self._take_until(lambda held: size if len(held) >= size else None, size, seconds)

    def receive_line(self, limit: int, seconds: float) -> bytes:
        def line_end(held: bytearray) -> int | None:
            end = held.find(b"\n")
            if end < 0 and len(held) > limit:
                raise Misbehaved(f"answered with more than {limit} bytes where one line was due")
            return end + 1 if end >= 0 else None

        return self._take_until(line_end, limit, seconds).rstrip(b"\r\n")

    def wait(self) -> int:
        self._program.note(bytes(self._pending))
        self._program.listen()  # what it prints belongs in the log, and must not fill the pipe
        while (status := self._program.poll(0.02)) is None:
            self._check()
        return status

    def _take_until(self, complete: Callable[[bytearray], int | None], size: int, seconds: float) -> bytes:
        interrupt.check()
        deadline, late = time.monotonic() + seconds, f"did not answer within {seconds:g} s"
        while (length := complete(self._pending)) is None:
            got = self._read(max(size - len(self._pending), 1))
            if got is None:
                self._wait(self._stdout, select.POLLIN, deadline, late)
            elif not got:
                raise Misbehaved(self._ended())
            self._check(deadline, late)
        answer = bytes(self._pending[:length])
        del self._pending[:length]
        return answer

    def _read(self, size: int) -> bool | None:
        """Take in what there is to read: whether there was any before its end; None where there is nothing yet."""
        try:
            chunk = os.read(self._stdout, size)
        except BlockingIOError:
            return None
        self._pending += chunk
        return bool(chunk)

    def _wait(self, pipe: int, event: int, deadline: float, late: str) -> None:
        """Wait for a pipe, in short steps so that error output keeps flowing into the log."""
        poll = select.poll()
        poll.register(pipe, event)
        while not poll.poll(50):
            self._program.poll(0)
            self._check(deadline, late)

    def _check(self, deadline: float = math.inf, late: str = "") -> None:
        """Raises Misbehaved: the answer is late, or the evaluation as a whole."""
        if time.monotonic() >= self._ends:
            raise Misbehaved(f"the evaluation was not over after {self._seconds:g} s in all")
        if time.monotonic() >= deadline:
            raise Misbehaved(late)

    def _ended(self) -> str:
        status = self._program.wait(1.0)  # the pipe closes a moment before the process can be collected
        words = "closed its pipe" if status is None else self._program.describe(status)
        return f"{words} under judgement"
