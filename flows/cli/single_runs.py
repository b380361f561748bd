"""Training runs outside of any campaign, without Prefect's server and MLflow: those of `try` and of `compare`."""

from __future__ import annotations

import contextlib
import secrets
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment, plugins
from environments.judges import ComparisonBlock, Use
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli.arguments import parse_params, placed, read_diff
from flows.spec.campaign_spec import checked_environment
from flows.views import terminal
from flows.views.terminal import clean
from tasks.describe import in_short
from tasks.evaluate import judge_run
from tasks.machine.slots import Slots, slots_of
from tasks.numbers import number
from tasks.preparing import laid, prepare
from tasks.proposing.validation import originals
from tasks.run_checks import learned_nothing, plausible, plausible_beside
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import Isolation, check_given, choose
from tasks.stats.design import design_of
from tasks.store.ledger import Ledger, campaigns, freeze
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.train import UNSANDBOXED, run_program
from tasks.trial import Params, Proposal, Run, best

FILE, TRIES = "fresh.json", ".tries"
TRIALS, POWER = 20, 0.8
"""Of a campaign, and how often its certificate shows the gain that is told with several runs."""
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Side:
    """Parameters and edit as they were named on the command line, over a program (None: the environment's)."""

    text: str = ""
    params: Params = field(default_factory=dict)
    edit: str | None = None
    program: Path | None = None


@dataclass(frozen=True)
class Question:
    """What is to be trained and judged, by arm, in an environment that was loaded with these keys over it."""

    sides: Mapping[str, Side]
    environment: Environment
    overrides: dict[str, Value]


@dataclass(frozen=True)
class FreshRun:
    """A run, `number` in its arm from 1. Its directory is relative to the parent of the stage's folder."""

    arm: str
    number: int
    run: Run
    score: Score


FRESH = TypeAdapter(FreshRun)


@dataclass(frozen=True)
class Job:
    """A run that is to be made."""

    arm: str
    number: int
    seed: int
    units: int
    """Seed of the units that it is judged on."""
    block: ComparisonBlock | None = None
    """In a comparison: its share of a finite pool of units for confirm."""
    echo: Job | None = None
    """On whose units it is judged besides, as in `Score.echo`."""


@dataclass(frozen=True)
class Stage:
    """A frozen environment with the sides that run in it, a sandbox and slots: all that runs need."""

    environment: Environment
    isolation: Isolation
    folder: Path
    sides: Mapping[str, Side]
    slots: Slots
    marker: str = field(default_factory=lambda: f"single-{secrets.token_hex(4)}")
    """Identifies its processes."""

    def make(self, jobs: Sequence[Job], is_over: Callable[[Sequence[FreshRun]], object]) -> list[FreshRun]:
        """Make those of the runs that are missing, side by side in the slots of this machine; all of them. Each is told
        on stderr. A signal, and what `is_over` says of the runs so far, end those that go on.

        Raises CannotStart: no process could be started.
        """
        made = self.finished(jobs)
        known = {(one.arm, one.number) for one in made}
        due = [] if made and is_over(made) else [job for job in jobs if (job.arm, job.number) not in known]
        siblings = {arm: [one.run for one in made if one.arm == arm] for arm in self.sides}
        with interrupt.deferred(), ThreadPoolExecutor(len(self.slots.parts)) as pool:
            running = {pool.submit(self._run, job, siblings[job.arm]) for job in due}
            try:
                while running:
                    ended, running = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                    for one in (future.result() for future in ended):
                        made.append(one)
                        line = f"{one.arm.upper()} {one.number}  seed {one.run.seed:<10}  {score_text(one.score)}"
                        print(line, file=sys.stderr)  # stdout may be read by a program
                    if ended and is_over(made):
                        break
                    interrupt.check()
            finally:
                with interrupt.asked():
                    pool.shutdown(cancel_futures=True)
        return made

    def _run(self, job: Job, siblings: list[Run]) -> FreshRun:
        """Train and judge, in a slot; an implausible run is a crash."""
        problem, sandbox, root, place = self.environment, self.isolation, self.folder.parent, self._dir(job)
        side = self.sides[job.arm]
        program = side.program or self.folder / "program"
        proposal = Proposal(side.params, side.edit, rationale="by hand", proposer="hand")
        with self.slots.hold(lambda reason: print(f"waiting: {reason}", file=sys.stderr)) as slot:
            run = run_program(self.marker, problem, sandbox, program, place, proposal, job.seed, slot=slot)
            run = replace(run, dir=place.path.relative_to(root).as_posix())
            run = plausible_beside(problem, (), proposal, plausible(problem, run, root), root, siblings)
            use: Use = "confirm" if job.block else "search"
            *again, score = (
                judge_run(self.marker, problem, sandbox, place, run, on.units, slot, use, block=on.block)
                for on in (job.echo, job)  # in this order: the files that stay are those of the score
                if on
            )
        one = FreshRun(job.arm, job.number, run, replace(score, echo=again[0].units if again else ()))
        write_atomic(place.path / FILE, FRESH.dump_json(one).decode() + "\n")
        siblings.append(run)
        return one

    def finished(self, jobs: Iterable[Job]) -> list[FreshRun]:
        """Those of the runs that were made."""
        files = [self._dir(job).path / FILE for job in jobs]
        return [FRESH.validate_json(file.read_bytes()) for file in files if file.is_file()]

    def _dir(self, job: Job) -> TrialDir:
        return TrialDir(self.folder / "trials" / f"{job.arm}-{job.number}")

    def facts(self, one: FreshRun) -> dict[str, object]:
        """A run in a JSON document."""
        run, score = one.run, one.score
        return {
            "seed": run.seed, "score": score.value, "se": score.se, "n": score.n, "seconds": run.seconds,
            "error": score.error, "directory": str(self.folder.parent / run.dir),
        }  # fmt: skip


def parse_side(text: str) -> tuple[Side, Ledger | None]:
    """The side that a text names, and the campaign that it comes from. Refused if there is no such side."""
    if text == "baseline":
        return Side(text), None
    if text.lstrip().startswith("{"):
        return Side(text, parse_params(text, "parameters")), None
    if text.endswith(".json"):
        return Side(text, parse_params(Path(text).read_bytes(), text)), None
    if text.endswith((".diff", ".patch")):
        return Side(text, edit=read_diff(Path(text), "the edit")), None
    name, _, which = text.partition("/")
    plugins.require(name, ("baseline", *campaigns()), what="side of a comparison")
    ledger = Ledger.open(name)
    if which == "baseline":
        return Side(text, ledger.environment.defaults, program=ledger.program), ledger
    history = ledger.history()
    champion = best(history)
    trials = {str(trial.number): trial for trial in history} | ({"champion": champion} if champion else {})
    which = which or "champion"
    plugins.require(which, [*trials, "baseline"], what=f"trial of campaign {name!r}")
    proposal = trials[which].proposal
    return Side(text, proposal.params, proposal.edit, ledger.program), ledger


def between(a: str, b: str, on: str | None, overrides: dict[str, Value], trust: bool) -> Question:
    """Two sides in the environment `on`, or in that of the first campaign that one of them comes from. Raises Refused:
    there is no such side, no environment is named, or it asks for what nobody grants.
    """
    (first, ledger), (second, other) = parse_side(a), parse_side(b)
    sides, campaign = {"a": first, "b": second}, ledger or other
    if on:
        return Question(sides, checked_environment(on, overrides, trust), overrides)
    if campaign is None:
        raise Refused("neither side names a campaign, so there is no environment: give --on ENVIRONMENT, or --train")
    if overrides:
        raise Refused("--set: the environment of a campaign is frozen: name another one, or leave --set out")
    if other:
        other.verify()
    return in_campaign(sides, campaign)


def in_campaign(sides: Mapping[str, Side], ledger: Ledger) -> Question:
    """Sides in a campaign's frozen environment, over its frozen program. Refused if that was changed."""
    ledger.verify()
    frozen = {name: replace(side, program=side.program or ledger.program) for name, side in sides.items()}
    return Question(frozen, ledger.environment, ledger.campaign.overrides)


@contextlib.contextmanager
def set_up(question: Question, place: str, isolation: Isolation) -> Iterator[Stage]:
    """A stage in a new numbered folder of the home below `place`; none is left if it, or the block, is refused. Raises
    Refused: parameters or an edit do not fit, an edited program would run without a sandbox, a GPU does not answer, or
    the recipe fails.
    """
    parent = home() / place / question.environment.name
    parent.mkdir(parents=True, exist_ok=True)
    last = max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0)
    folder = parent / f"{last + 1:04d}"
    folder.mkdir()
    try:
        freeze(question.environment, folder)
        problem = laid(question.environment.model_copy(update={"folder": folder / "environment"}), home())
        sides = {name: _fitted(side, problem, folder) for name, side in question.sides.items()}
        yield stage_in(folder, problem, sides, isolation)
    except Refused:
        file_trees.remove(folder)
        raise


def _fitted(side: Side, environment: Environment, folder: Path) -> Side:
    """A side with complete parameters, and its edit as its program has the lines. Refused if one does not fit."""
    edit = side.edit
    if edit:
        program = originals(environment, side.program or folder / "program")
        edit = placed(edit, side.text, program, environment.editable)
    return replace(side, params=environment.complete(side.params), edit=edit)


def stage_in(folder: Path, environment: Environment, sides: Mapping[str, Side], isolation: Isolation) -> Stage:
    """All that runs need; the recipe is run if that is still to do. Refused as in `set_up`."""
    check_given(isolation.level, home(), outside(environment))
    if not all(isolation.may_run(side.edit) for side in sides.values()):
        raise Refused(UNSANDBOXED)
    slots = slots_of(environment)
    if environment.prepare:
        with interrupt.deferred():
            prepare(environment, home(), partial(print, file=sys.stderr))
    return Stage(environment, isolation, folder, sides, slots)


def isolated(level: str, allow_unsandboxed: bool) -> Isolation:
    """The sandbox of all runs. Refused if this machine does not offer it. (level: `auto` takes the strongest)"""
    return Isolation(choose(level), allow_unsandboxed)


def attempt(question: Question, runs: int, seed: int | None, isolation: Isolation, as_json: bool) -> int:
    """Run the one side of a question, and say how it scored; 0 when every run has a score, else 1. With `--json` these
    are the facts of the last run, or of one that crashed, and what all of them say together.
    """
    with set_up(question, TRIES, isolation) as stage:
        first = secrets.randbelow(2**31) if seed is None else seed
    jobs = [Job("run", 1 + turn, (first + turn) % 2**31, secrets.randbelow(2**63)) for turn in range(runs)]
    done = stage.make(jobs, lambda made: any(one.score.value is None for one in made))
    problem, last = stage.environment, next((one for one in done if one.score.value is None), done[-1])
    scores = [one.score.value for one in done if one.score.value is not None]
    mean = None if last.score.error else statistics.fmean(scores)
    sd = statistics.stdev(scores) if len(scores) > 1 else None
    design = design_of(TRIALS, problem.deterministic)
    gain = None if sd is None else design.smallest_gain(sd, POWER)
    lines = [f"{problem.metric} {score_text(last.score)} after {last.run.seconds:.1f} s of training"]
    if last.score.error:
        lines = [f"crash: {last.score.error}"]
    elif sd is not None:
        several = f"on average over {len(done)} runs; spread between runs: sd {number(sd)}"
        lines = [f"{problem.metric} {number(mean)} {several}"]
        lines.append(f"smallest gain that a certificate of {TRIALS} trials shows in {POWER:.0%}: {number(gain)}")
    if not last.score.error and (still := learned_nothing(stage.folder.parent / last.run.dir, problem.metric)):
        lines.append(f"learned nothing: {still}")
    document = {
        "environment": problem.name, "params": stage.sides["run"].params, "metric": problem.metric,
        "direction": problem.direction, "isolation": isolation.level, **stage.facts(last), "steps": last.run.steps,
        "score": mean, "sd": sd, "runs": [stage.facts(one) for one in done],
        "detectable": {"champion": design.champion, "baseline": design.baseline, "power": POWER, "gain": gain},
    }  # fmt: skip
    terminal.tell(document, "\n".join([*lines, f"see {document['directory']}"]), as_json)
    return 1 if last.score.error else 0


def score_text(score: Score) -> str:
    """A score with its standard error, or in short why there is none."""
    if score.value is None:
        return f"crash: {clean(in_short(score.error or 'no score'))}"
    return number(score.value) + (f" (se {number(score.se)} over {score.n})" if score.se is not None else "")
