"""The red team against the control judge: whatever a program answers, the score is an honest one, or there is none.

What the programs try they say on standard error, which the engine keeps in
judge.txt, so that an attack that was not even made is told from one that failed.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest

import environments
from environments.score import SPARE_SECONDS, TIMES, Score, Wait
from environments.space import Value
from tasks.evaluate import judge_run
from tasks.sandbox import confinement, outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.trial import Proposal, Run
from tests.support.act_programs import PRELUDE
from tests.support.champions import CART
from tests.support.ledgers import created
from tests.support.levels import SANDBOXED, STRONGEST_AND_NONE, WORKING, crossed
from tests.support.toy import folder_of

SEED = 4_611_686_018_427_387_847
"""The judge's; long, so that a program that knew it would be seen to."""
TRAINING_SEED = 7
MARKER = f"red/judge-{os.getpid()}"
MIB = 2**20

SETTINGS: dict[str, Value] = {
    "control.other_episodes": 0, "control.start_seconds": 20, "control.answer_seconds": 10, "control.total_seconds": 30,
    "limits.output_mb": 1,
}  # fmt: skip

SPEAK = (
    PRELUDE
    + r"""
import pathlib, select, signal, struct, subprocess
config = json.loads(pathlib.Path("config.json").read_text())
OUT, READY = pathlib.Path(config["out"]), b'{"ready": true}\n'
shown = frames()

def tell(name, **more):
    os.write(2, ("@" + json.dumps({"name": name, **more}) + "\n").encode())  # whole, whoever else writes

def attempt(name, function):
    tell(name)
    try:
        tell(name, got=repr(function())[:200])
    except Exception as refused:
        tell(name, error=repr(refused)[:200])

def move(frame):
    return pack((frame[2][0][:, 2] > 0).astype(np.int64))

def play():
    for frame in shown: say(move(frame))

tell("began")
"""
)
"""What every program begins with; `say(READY)` and `play()` make it an honest one, that pushes where the pole leans."""


def told(place: TrialDir) -> dict[str, dict[str, object]]:
    """What the program says that it tried, the last word on each."""
    lines = place.judge_log.read_text(errors="replace").splitlines()
    reports = [json.loads(line[1:]) for line in lines if line.startswith("@")]
    return {report["name"]: report for report in reports}


def trained(folder: Path, act: str, level: Level, **settings: Value) -> tuple[environments.Environment, TrialDir, Run]:
    """A finished run whose program is `act`, and whose checkpoint is a bomb under several names: who unpickles it makes
    the file `canary`."""
    folder_of(folder, {"env/environment.toml": CART, "env/train.py": SPEAK + act, "program/train.py": SPEAK + act})
    environment = environments.load(folder / "env", SETTINGS | settings)
    place = TrialDir(folder / "trials/0007")
    digest = workspace.prepare(place, folder / "program", environment, Proposal({"x": 0.5}), TRAINING_SEED)
    bomb = b"cbuiltins\nopen\n(V" + str(folder / "canary").encode() + b"\nVw\ntR."
    for name in ("model.bin", "model.pkl", "model.pt", "model.npy", "data.joblib", "progress.jsonl"):
        (place.out / name).write_bytes(bomb)
    confinement.give(place.out, level)
    checkpoint = outputs.checkpoint(place.out)
    run = Run("trials/0007", TRAINING_SEED, 1.0, "finished", program=digest, checkpoint=checkpoint)
    return environment, place, run


def judged(folder: Path, act: str, level: Level, **settings: Value) -> tuple[Score, TrialDir]:
    environment, place, run = trained(folder, act, level, **settings)
    score = judge_run(MARKER, environment, Isolation(level), place, run, SEED)
    assert not (folder / "canary").exists(), "something was unpickled"
    return score, place


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Score:
    """What an honest program gets."""
    score, _ = judged(tmp_path_factory.mktemp("honest"), "say(READY)\nplay()", WORKING[0])
    assert score.value is not None and score.value > 20
    return score


ANSWERS: list[tuple[str, str, str, dict[str, Value]]] = [
    ("prints a score", "say(b'score: 500.0\\n')\nplay()", "handshake: answered 'score: 500.0' instead of", {}),
    ("floods its answers", "say(READY)\nwhile True: say(bytes(2**16))", "wrote more than its answers", {}),
    (
        "answers what is no number and would survive every comparison",
        "say(READY)\nos.read(0, 14 * lanes)\nsay(struct.pack('<4f', 0, 0, float('nan'), 0))\ntime.sleep(60)",
        "answered nan for the action in lane 2 at step 1",
        {"control.id": "Pendulum-v1"},
    ),
    (
        "says it byte by byte",
        "say(READY)\nnext(shown)\nfor _ in range(8 * lanes):\n    say(b'\\0')\n    time.sleep(0.2)",
        "step 1: did not answer within 0.5 s",
        {"control.answer_seconds": 0.5},
    ),
]


@pytest.mark.parametrize(("what", "act", "reason", "settings", "level"), crossed(ANSWERS))
def test_red_team_an_answer_that_is_none_is_a_crash_that_says_so(
    tmp_path: Path, level: Level, what: str, act: str, reason: str, settings: dict[str, Value]
) -> None:
    """Scores instead of frames, too many bytes, too few or too late: no score, nothing unpickled, and the
    engine reads no more than the answer that is due."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    score, place = judged(tmp_path, act, level, **settings)
    assert "began" in told(place), score.error
    assert score.value is None and score.units == () and score.also == {}
    assert score.error is not None and reason in score.error.splitlines()[0], score.error
    assert not orphans.marked(MARKER)
    if "floods" in what:
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < 64 * MIB  # imports included


@pytest.mark.parametrize("level", SANDBOXED)
def test_red_team_nothing_of_the_trial_can_be_written_during_judgement(
    tmp_path: Path, level: Level, honest: Score
) -> None:
    """It would swap its own checkpoint or program for what scores better, or leave a score where one is read."""
    act = (
        "trial = OUT.parent\n"
        "for path in ('out/model.bin', 'out/new', 'workspace/train.py', 'workspace/new.py', 'judged/result.json', "
        "'trial.json', 'proposal.json', 'log.txt'):\n"
        "    attempt(path, lambda: (trial / path).write_text('{\"score\": 500}'))\n"
        "attempt('rename', lambda: os.rename(OUT / 'model.bin', OUT / 'old.bin'))\n"
        "attempt('link', lambda: os.symlink('/etc/passwd', OUT / 'link'))\n"
        "attempt('remove', lambda: os.remove(OUT / 'model.bin'))\n"
        "attempt('touch', lambda: os.utime(OUT / 'model.bin', (0, 0)))\n"
        "attempt('open up', lambda: os.chmod(OUT / 'model.bin', 0o777))\n"
        "say(READY)\nplay()"
    )
    environment, place, run = trained(tmp_path, act, level)
    before = {path: _identity(path) for path in sorted(place.path.rglob("*"))}
    score = judge_run(MARKER, environment, Isolation(level), place, run, SEED)
    reports = told(place)
    tried = {name: report for name, report in reports.items() if name not in ("began", "touch", "open up")}
    assert len(tried) == 11 and all("error" in report for report in tried.values()), tried
    assert {"touch", "open up"} <= set(reports), "a filter may grant these, and do nothing"
    assert score.units == honest.units
    after = {path: _identity(path) for path in sorted(place.path.rglob("*"))}
    assert set(after) - set(before) == {place.judge_log, place.judged}
    changed = [path for path in before if after.get(path) != before[path]]
    assert not changed


def _identity(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    content = path.read_bytes() if path.is_file() else sorted(path.iterdir())
    return status.st_ino, status.st_mode, status.st_mtime_ns, status.st_nlink, content


def test_red_team_what_was_not_trained_is_not_judged(tmp_path: Path) -> None:
    """Something outside of any sandbox changes the checkpoint or the program between training and judgement."""
    for swapped, reason in (("out/model.bin", "out/ has changed"), ("workspace/json.py", "the program has changed")):
        environment, place, run = trained(tmp_path / Path(swapped).name, "say(READY)\nplay()", WORKING[0])
        (place.path / swapped).write_bytes(b"better!\n")
        score = judge_run(MARKER, environment, Isolation(WORKING[0]), place, run, SEED)
        assert score.value is None and score.error is not None and score.error.startswith(reason)
        assert not place.judge_log.exists(), "the program was started"


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_a_program_under_judgement_sees_observations_and_nothing_else(tmp_path: Path, level: Level) -> None:
    """No reward, no seed of the episodes, no state: it writes down all that it is given, and looks for more."""
    act = (
        "tell('hello', **hello)\ntell('config', **config)\ntell('given', argv=sys.argv, env=dict(os.environ))\n"
        "say(READY)\ndata = os.read(0, 10**6)\n"
        "tell('more', ready=len(data) != 18 * lanes or bool(select.select([0], [], [], 0.1)[0]))\nanswer(*blank())\nplay()"
    )
    _, place = judged(tmp_path, act, level)
    reports, log = told(place), place.judge_log.read_text()
    hello = reports["hello"]
    assert set(hello) - {"name"} == {"lanes", "observation", "action", "protocol", "deterministic", "seed"}
    assert hello["observation"] == [{"path": "", "dtype": "<f4", "shape": [4]}]
    assert reports["more"] == {"name": "more", "ready": False}, "a frame is masks and observations, and no more"
    for_episodes, for_policy = np.random.SeedSequence(SEED).spawn(2)
    assert hello["seed"] == int(for_policy.generate_state(1)[0])
    assert str(SEED) not in log
    assert not [seed for seed in for_episodes.generate_state(4) if str(seed) in log or str(seed >> 1) in log]
    assert reports["config"]["seed"] == TRAINING_SEED


def test_red_team_what_judges_draw_cannot_be_worked_out_from_a_training_seed(tmp_path: Path) -> None:
    """Two campaigns of one seed train alike, and are judged on other draws."""
    one, two = created(tmp_path, "one", seed=3), created(tmp_path, "two", seed=3)

    def drawn(ledger: Ledger, purpose: str) -> int:
        return ledger.seed(purpose, ledger.key(4))  # type: ignore[arg-type]

    assert drawn(one, "train") == drawn(two, "train") and drawn(one, "propose") == drawn(two, "propose")
    assert drawn(one, "search") != drawn(two, "search") and drawn(one, "control") != drawn(two, "control")
    assert drawn(one, "search") == drawn(Ledger.open("one"), "search") != drawn(one, "control")
    assert len(one.campaign.judge_key) == 32


# Training while it is judged, where nobody counts its steps: before it is ready, or as it answers. Each program plays
# honestly, and computes besides. What it computes while the judge steps the environments is not bounded.

TIGHT = Wait((10.0 - SPARE_SECONDS) / TIMES, 0.0, 0)  # ten seconds
"""Seconds: far more than an honest program in plain Python needs, on a busy machine too."""
SPENDING = """
def each(seconds):
    say(READY)
    for _ in range(30):
        data = next(shown)
        spend(seconds)
        say(move(data))
    play()
def spend(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends: pass
"""

PATIENCE: dict[str, Value] = {"control.start_seconds": 60, "control.answer_seconds": 10, "control.total_seconds": 60}


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
@pytest.mark.parametrize("act", ["spend(30)\nsay(READY)\nplay()", "each(0.5)", "time.sleep(0.5)\neach(0.01)"])
def test_red_team_training_under_judgement_is_a_crash_and_an_honest_program_has_time_enough(
    tmp_path: Path, level: Level, act: str
) -> None:
    """Before it is ready, or a little before each answer. Of the honest one it is kept how long it took."""
    environment, place, run = trained(tmp_path, SPENDING + act, level, **PATIENCE)
    found = judge_run(MARKER, environment, Isolation(level), place, run, SEED, need=TIGHT)
    if "sleep" in act:
        assert found.waited is not None, found.error
        assert 0.5 < found.waited.ready + found.waited.answering < 10.0
    else:
        assert found.value is None and "by what the baseline needed" in str(found.error).splitlines()[0], found
