"""The no-training control: when a would-be champion is run again without time, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from environments import Environment
from environments.score import Score, Wait
from flows.spec.campaign_spec import CampaignSpec
from tasks.bench import Bench, RunPlan
from tasks.control import baseline_need, control_of
from tasks.decide import Decision, weigh
from tasks.evaluate import judge_run
from tasks.machine.slots import NOWHERE, Slots
from tasks.rules import JudgedTrial
from tasks.rules.greedy import Greedy
from tasks.store.ledger import Ledger
from tasks.train import run_program
from tasks.trial import History, Proposal, Rerun, Run, Trial, UntrainedControl, Verdict, VerdictKind
from tests.support.toy import SANDBOX, quadratic


def strict(folder: Path, fit: str) -> Ledger:
    """A campaign in the toy problem, where a program must have learned what it can."""
    overrides = {"budget_seconds": 8, "startup_seconds": 8, "allow_untrained": False}
    return CampaignSpec.of(environment=str(quadratic(folder, fit=fit)), name="n", overrides=overrides).open()


def controlled(
    ledger: Ledger, proposal: Proposal, run: Run, baseline: Score, seconds: float = 60.0
) -> UntrainedControl:
    """The control of trial 1, where the baseline trained so many seconds."""
    bench = Bench(ledger, SANDBOX, Slots.of_cores(0), 1)
    plan = RunPlan(ledger.key(1), proposal, run.dir, control_of=run)
    return control_of(bench, plan, None, (replace(run, seconds=seconds), baseline), NOWHERE)


RUN = Run("trials/0001", 1, 1.0, "finished")
BEGIN = """\
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
"""
SAVE = '(out / "model.json").write_text(json.dumps({"x": 1.0}))\n'
READY = '(out / "progress.jsonl").write_text(\'{"ready": true}\\n\')'
HONEST = f"{BEGIN}READY\nbegan = time.monotonic()\nwhile time.monotonic() - began < 0.6:\n    time.sleep(0.01)\n{SAVE}"
WRITTEN = f"{BEGIN}{SAVE}READY\ntime.sleep(5)\n"
BEFORE_ITS_TIME = f"{BEGIN}time.sleep(0.6)\n{SAVE}READY\ntime.sleep(0.3)\n"
AT_ONCE = f"{BEGIN}{SAVE}READY\n"


def loss(value: float) -> Score:
    return Score.of([value], higher_is_better=False)


def trial(number: int, value: float, kind: VerdictKind = "keep") -> Trial:
    verdict = Verdict(kind, "as a test says", "provisional")
    return Trial(number, 1, number, Proposal({"x": 1.0}), (RUN,), loss(value), verdict)


def judged(
    environment: Environment, history: History, value: float, control: UntrainedControl | None = None
) -> Decision:
    """What rule greedy makes of a trial with this loss."""
    tried = JudgedTrial(len(history), Proposal({"x": 1.0}), (RUN,), loss(value), control=control)
    return weigh(history, environment, Greedy(), tried)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return strict(tmp_path / "env", HONEST).environment


NOTHING = Score.missing("left no checkpoint in out/", higher_is_better=False)
NOT_LEARNED, HIDDEN = "not learned: ", "not learned, or hidden"


@pytest.mark.parametrize(
    ("kept", "without", "unedited", "refused"),
    [
        ((), loss(9.0), None, ""),
        ((), loss(1.51), None, ""),
        ((), loss(1.5), None, NOT_LEARNED),
        ((), loss(0.2), None, NOT_LEARNED),
        ((1.1,), loss(1.6), None, ""),
        ((1.1,), loss(1.2), None, NOT_LEARNED),
        ((), NOTHING, None, ""),
        ((), NOTHING, NOTHING, ""),
        ((), NOTHING, loss(2.5), HIDDEN),
    ],
)
def test_half_of_the_gain_over_the_baseline_without_training_is_too_much(
    environment: Environment, kept: tuple[float, ...], without: Score, unedited: Score | None, refused: str
) -> None:
    """The baseline has a loss of 2, the trial 1: half of its gain is at 1.5, whatever was kept between. Who leaves
    nothing to judge has learned, unless the unedited program leaves something."""
    history = tuple(trial(number, value) for number, value in enumerate((2.0, *kept)))
    verdict = judged(environment, history, 1.0, UntrainedControl(without, unedited))
    assert isinstance(verdict, Verdict) and verdict.kind == ("discard" if refused else "keep")
    assert verdict.evidence["untrained"] == without.value
    assert not refused or verdict.reason.startswith(refused)


@pytest.mark.parametrize(
    ("program", "learned", "says_ready"),
    [
        pytest.param(HONEST, True, True, id="honest"),
        pytest.param(HONEST, True, False, id="honest and silent", marks=pytest.mark.slow),
        pytest.param(WRITTEN, False, True, id="written beforehand"),
        pytest.param(WRITTEN, False, False, id="written beforehand and silent", marks=pytest.mark.slow),
        pytest.param(BEFORE_ITS_TIME, None, True, id="trained before its time"),
        pytest.param(BEFORE_ITS_TIME, None, False, id="trained before its time and silent"),
    ],
)
def test_a_program_is_run_again_with_a_hundredth_of_its_time(
    tmp_path: Path, program: str, learned: bool | None, says_ready: bool
) -> None:
    """Honest: nothing is there yet. Written beforehand, or trained before it says that it is ready: all is there."""
    code = program.replace("READY", READY if says_ready else "")
    ledger, proposal = strict(tmp_path / "env", code), Proposal({"x": 1.0})
    environment, place = ledger.environment, ledger.place(1)
    run = run_program("test/control", environment, SANDBOX, ledger.program, place, proposal, seed=7)
    assert run.status == "finished", run.error
    assert judge_run("test/control", environment, SANDBOX, place, run, seed=8).value == 0.0

    if program == WRITTEN:
        run = replace(run, seconds=60.0)  # so long that a tenth of it is enough to start in, on a busy machine too
    control = controlled(ledger, proposal, run, Score.missing("not run", False))
    caught = control.score.value == 0.0
    # Who never says that it is ready is not told apart from one that takes its time to learn.
    expected = not learned if learned is not None else says_ready
    assert caught is expected, control
    assert control.unedited is None


@pytest.mark.parametrize(
    ("baseline_seconds", "kind"), [(0.1, "keep"), (0.6, "discard")], ids=["at once", "long enough"]
)
def test_only_a_baseline_that_trains_for_a_moment_spares_programs_the_control(
    tmp_path: Path, baseline_seconds: float, kind: str
) -> None:
    ledger = strict(tmp_path / "env", AT_ONCE.replace("READY", READY))
    ledger.place(1).path.mkdir()
    run = Run("trials/0001", 7, 0.9, "finished", startup=0.1)
    first = replace(trial(0, 2.0), runs=(replace(RUN, seconds=baseline_seconds),))
    control = controlled(ledger, Proposal({"x": 1.0}), run, loss(2.0), seconds=baseline_seconds)
    verdict = judged(ledger.environment, (first,), 0.0, control)
    assert isinstance(verdict, Verdict) and verdict.kind == kind, control
    assert ("not controlled" in verdict.reason) is (kind == "keep")
    assert (control.score.value == 0.0) is (kind == "discard")


LUCKY = f"""{BEGIN}\
seed = json.loads(pathlib.Path("config.json").read_text())["seed"]
(out / "model.json").write_text(json.dumps({{"x": SCORES[seed]}}))
READY
time.sleep(5)
"""
"""A program whose model before training depends on its seed alone."""


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [(1.0, 2.5, 2.25), (1.0, 1.5, 0.25), (3.0, 1.0, 4.0)],
    ids=["by luck", "whatever the seed", "worse than the baseline"],
)
def test_a_program_that_is_good_before_training_is_run_so_with_another_seed_and_the_worse_score_counts(
    tmp_path: Path, first: float, second: float, counts: float
) -> None:
    program = LUCKY.replace("SCORES", repr({4: first, 5: second})).replace("READY", READY)
    ledger = strict(tmp_path / "env", program)
    trained = Run("trials/0001", 4, 5.0, "finished", startup=1.0)
    ledger.place(1).path.mkdir()
    control = controlled(ledger, Proposal({"x": 2.5}), trained, loss(2.25 + 1e-9))
    assert control.score.value == counts
    assert (ledger.place(1).path / "untrained-again").exists() is (first < 3.0)


# How long a judge waits for a program, by the runs of the baseline

OTHER = Proposal({"x": 1})


def baseline(*waits: float | None, number: int = 0) -> Trial:
    runs = tuple(Run("trials/0000", seed, 1.0, "finished", machine=f"{seed}") for seed, _ in enumerate(waits))
    known = [Wait(seconds, 1.0, 10) if seconds else None for seconds in waits]
    scores = [Score(1.0, (1.0,), waited=one) for one in known]
    return Trial(number, 1, number, Proposal({}), runs, Score.over(scores), Verdict("keep", "the baseline"))


def test_without_a_known_need_nothing_is_bounded_and_neither_is_the_baseline_itself() -> None:
    assert baseline_need((), OTHER) is None
    assert baseline_need((baseline(None, None),), OTHER) is None
    assert baseline_need((baseline(2.0, number=1),), OTHER) is None
    assert baseline_need((baseline(2.0),), Proposal({})) is None


def test_the_largest_need_of_the_baseline_counts_also_of_its_reruns_on_any_machine() -> None:
    first = baseline(2.0, None, 1.0)
    fresh = Rerun(0, Run("trials/0001-again", 9, 1.0, "finished"), Score(1.0, waited=Wait(5.0, 1.0, 10)))
    later = Trial(1, 1, 1, OTHER, (), Score.missing("a crash", True), Verdict("crash", "a crash"), reruns=(fresh,))
    assert baseline_need((first,), OTHER) == Wait(2.0, 1.0, 10)
    assert baseline_need((first, later), OTHER) == Wait(5.0, 1.0, 10)
