"""The red team against the score of a trial: what a training program leaves, says or plants buys it nothing.

Every program here leaves a model that is worth HONEST, and would like to have another score. Its canary is that
number: it gets it, or none with a reason.
"""

from __future__ import annotations

import json
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from environments.score import Score
from tasks.decide import weigh
from tasks.deciding.run_checks import plausible, plausible_beside
from tasks.deciding.values import JudgedTrial
from tasks.rules.greedy import Greedy
from tasks.sandbox.confinement import Level
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.train import run_program
from tasks.trial import History, Proposal, Run, Trial, Verdict, best
from tests.support.histories import undemanding
from tests.support.levels import SANDBOXED, STRONGEST, STRONGEST_AND_NONE, WORKING, crossed
from tests.support.red_team import JUDGE, Assault, Ground, attack

HONEST = 1.0
"""The score of the model that `model(2.0)` leaves; the lowest, 0, is the best."""
MODEL = "model(2.0)\n"


def earlier(run: Run, score: float, number: int = 0, x: float = 1.0) -> Trial:
    """A decided trial of this run."""
    judged = Score.of([score], higher_is_better=False)
    return Trial(number, 0, number, Proposal({"x": x}), (run,), judged, Verdict("keep", "the baseline"))


def settled(assault: Assault, history: History = ()) -> Score:
    """What a campaign makes of a finished program: its score, as far as its run is believed."""
    environment, campaign = assault.environment, assault.ground.campaign
    run = plausible(environment, assault.run, campaign)
    run = plausible_beside(environment, history, Proposal({"x": 1.0}), run, campaign)
    return replace(assault, run=run).judge()


def refused(assault: Assault, reason: str, history: History = ()) -> None:
    """Check that it trained as far as it can tell, and that it is a crash for this reason, and never judged."""
    assert assault.run.status == "finished", assault.run.error
    score = settled(assault, history)
    assert score.value is None and score.error is not None and score.error.startswith(reason), score.error
    assert not assault.place.judge_log.exists(), "it was judged"


# What it says


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_a_score_that_is_printed_is_no_score(tmp_path: Path, level: Level) -> None:
    """It prints scores in every form that somebody may have thought of parsing."""
    prints = "for line in ('score: 0.0', '{\"score\": 0.0}', '{\"units\": [0]}', 'loss 0.0'):\n    print(line)\n"
    assault = attack(Ground.lay(tmp_path), MODEL + prints, level)
    assert "score: 0.0" in assault.log
    assert assault.judge().value == HONEST


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_a_progress_that_is_made_up_decides_nothing(tmp_path: Path, level: Level) -> None:
    """It reports the best loss there can be; the decision and the champion go by the judge alone."""
    reports = (
        "for step in range(20):\n    report = {'step': step, 'elapsed': 0.01, 'metrics': {'loss': -1e9, 'score': 0.0}}\n"
        "    with open(OUT / 'progress.jsonl', 'a') as file: file.write(json.dumps(report) + '\\n')\n"
    )
    assault = attack(Ground.lay(tmp_path), MODEL + reports, level)
    score = assault.judge()
    assert assault.run.reported == -1e9
    assert score.value == HONEST
    champion = earlier(Run("trials/0000", 1, 1.0, "finished", reported=3.0), score=0.5)
    tried = JudgedTrial(1, Proposal({"x": 1.0}), (assault.run,), score)
    verdict = weigh((champion,), undemanding(), Greedy(), tried)
    assert isinstance(verdict, Verdict)
    assert verdict.kind == "discard" and verdict.evidence["score"] == HONEST
    trial = Trial(1, 0, 1, Proposal({"x": 1.0}), (assault.run,), score, verdict)
    assert best((champion, trial)) is champion


# What it leaves for the judge


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_a_result_that_training_wrote_is_not_read(tmp_path: Path, level: Level) -> None:
    """It leaves result.json, and every other file that says `score`, wherever it can write."""
    writes = """
        for folder in ('out', 'workspace', 'judged', 'judge.txt.tmp', '.', 'judge.txt'):
            for name in ('result.json', 'score.json', 'trial.json', 'results.tsv'):
                def write(path=OUT.parent / folder / name):
                    path.parent.mkdir(exist_ok=True)
                    path.write_text('{"score": 0.0}')
                attempt(f'{folder}/{name}', write)
    """
    assault = attack(Ground.lay(tmp_path), MODEL + textwrap.dedent(writes), level)
    assert len(assault.attempts) == 24 and not assault.attempts["out/result.json"].refused
    score = assault.judge()
    if level == "none":  # nothing keeps it from its own workspace
        assert str(score.error).startswith("the program has changed since the training began")
    else:
        assert score.value == HONEST
        assert assault.attempts["judged/result.json"].refused and assault.attempts["workspace/result.json"].refused


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_a_result_that_training_wrote_is_gone_when_the_judge_says_nothing(
    tmp_path: Path, level: Level
) -> None:
    """It has heard of a judge that gives up silently, and leaves a result where that one's would be."""
    ground = Ground.lay(tmp_path)
    ground.judge.write_text("print('nothing to say')\n")
    write = """
        (OUT.parent / 'judged').mkdir(exist_ok=True)
        (OUT.parent / 'judged/result.json').write_text('{"score": 0.0}')
    """
    program = MODEL + f"attempt('write', lambda: exec({textwrap.dedent(write)!r}))\n"
    assault = attack(ground, program, level)
    assert assault.attempts["write"].refused == (level != "none")
    score = assault.judge()
    assert score.value is None and score.error is not None and "result.json cannot be read" in score.error


HOOKS = (
    "sitecustomize.py", "usercustomize.py", "json.py", "pathlib.py", "os.py", "encodings.py", "numpy.py", "conftest.py",
    "hook.pth", ".pythonrc.py", "python", "libc.so.6", "model.json.py", "__init__.py", "__main__.py",
)  # fmt: skip
PAYLOAD = """
import sys
argv = getattr(sys, "argv", [])
if argv and argv[-1].endswith("result.json"):
    open(argv[-1], "w").write('{"score": 0.0}')
    __import__("os")._exit(0)
"""
PLANT = f"""
for name in {HOOKS!r}:
    text = {PAYLOAD!r}
    if name.endswith('.pth'):
        text = 'import sys; exec(' + repr(text) + ')'
    for place in PLACES:
        def plant(path=place / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        attempt(str(place / name), plant)
"""


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_import_hooks_in_its_folders_are_not_loaded_by_the_judge(tmp_path: Path, level: Level) -> None:
    """It plants modules that Python imports by itself, or that the judge imports by name: out/ and its scratch."""
    places = (
        "site_packages = f'.local/lib/python3.{sys.version_info.minor}/site-packages'\n"
        "home = pathlib.Path.home()\nPLACES = [OUT, OUT / site_packages, home, home / site_packages]\n"
    )
    assault = attack(Ground.lay(tmp_path), MODEL + places + PLANT, level)
    assert len(assault.attempts) == 4 * len(HOOKS)
    assert not [name for name, attempt in assault.attempts.items() if attempt.refused]
    assert assault.judge().value == HONEST


@pytest.mark.parametrize("level", SANDBOXED)
def test_red_team_import_hooks_outside_of_its_folders_are_not_planted(tmp_path: Path, level: Level) -> None:
    """It would plant them beside the judge, in the program, and in the judge's scratch."""
    places = (
        "trial = OUT.parent\nPLACES = [pathlib.Path(TARGETS['judge']).parent, trial / 'workspace',\n"
        "    trial / 'judge.txt.tmp', trial / 'judged', trial]\n"
    )
    ground = Ground.lay(tmp_path)
    assault = attack(ground, MODEL + places + PLANT, level)
    assert len(assault.attempts) == 5 * len(HOOKS)
    assert not [name for name, attempt in assault.attempts.items() if not attempt.refused]
    assert assault.judge().value == HONEST
    assert not ground.changed()


def test_red_team_modules_that_an_engines_user_has_in_reach_do_not_reach_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine itself is started with a path and a library of somebody else's: its programs see neither."""
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in HOOKS:
        (evil / name).write_text(PAYLOAD)
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "LD_PRELOAD", "LD_AUDIT", "BASH_ENV"):
        monkeypatch.setenv(name, str(evil))
    ground = Ground.lay(tmp_path / "ground")
    ground.judge.write_text("import os\nprint(sorted(os.environ))\n" + JUDGE)
    assault = attack(ground, MODEL + "os.environ['PYTHONPATH'] = str(OUT)\nos.environ['SCORE'] = '0'\n", WORKING[0])
    assert assault.judge().value == HONEST
    seen = assault.place.judge_log.read_text()
    assert "'HOME'" in seen
    assert not [name for name in ("PYTHONPATH", "PYTHONHOME", "LD_", "BASH_ENV", "SCORE") if name in seen]


CHECKPOINTS = [
    ("a link to a file of the machine", "(OUT / 'model.json').symlink_to('/etc/passwd')", "that may lead out of it"),
    ("a link to another trial's", "(OUT / 'model.json').symlink_to(TARGETS['checkpoint'])", "that may lead out of it"),
    ("a link that climbs", "(OUT / 'model.json').symlink_to('../../0001/out/model.json')", "that may lead out of it"),
    ("a folder that is a link", "(OUT / 'model').symlink_to('..')", "that may lead out of it"),
    ("a named pipe", "os.mkfifo(OUT / 'model.json')", "which is a named pipe"),
    ("a hard link", "(OUT / 'm').write_text('{}')\nos.link(OUT / 'm', OUT / 'model.json')", "which is hard-linked"),
    (
        "another trial's by another name",  # in a sandbox it ends with an error at this line
        "os.link(TARGETS['checkpoint'], OUT / 'model.json')",
        "model.json",
    ),
    ("nothing", "os.remove(OUT / 'attempts.jsonl')", "left no checkpoint in out/"),
]


@pytest.mark.parametrize(("what", "leave", "reason", "level"), crossed(CHECKPOINTS, "another trial's by another name"))
def test_red_team_a_checkpoint_that_is_not_its_own_is_a_crash(
    tmp_path: Path, level: Level, what: str, leave: str, reason: str
) -> None:
    """What it leaves as its model is somebody else's file, or no file at all."""
    ground = Ground.lay(tmp_path)
    assault = attack(ground, f"print('leaving it', flush=True)\n{leave}\n", level)
    assert "leaving it" in assault.log
    assert assault.run.status == "crash" and assault.run.error is not None and reason in assault.run.error, what
    assert assault.judge().value is None
    assert not assault.place.judge_log.exists(), "it was judged"
    assert ground.secret in ground.canaries["checkpoint"].read_text()


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_what_waits_to_swap_the_checkpoint_is_dead_by_then(tmp_path: Path, level: Level) -> None:
    """A daemon of the training waits until that has ended, and then keeps putting a better model in its place."""
    swaps = """
        daemon = os.fork()
        if not daemon:
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(1.4)
            while True:
                pathlib.Path(OUT, 'new').write_text(json.dumps({'x': 1.0}))
                os.replace(OUT / 'new', OUT / 'model.json')
        os.waitpid(daemon, 0)
        note('left a daemon')
    """
    assault = attack(Ground.lay(tmp_path), MODEL + textwrap.dedent(swaps), level, marker="red/daemon")
    assert "left a daemon" in assault.attempts
    assert assault.judge().value == HONEST
    assert not orphans.marked("red/daemon")
    time.sleep(0.2)
    assert json.loads((assault.place.out / "model.json").read_text()) == {"x": 2.0}


# What it claims to have trained


def again(assault: Assault, name: str, seed: int) -> Assault:
    """The same program once more, under another seed."""
    ground, frozen = assault.ground, assault.ground.root / f"program-{assault.place.path.name}"
    place = TrialDir(ground.campaign / "trials" / name)
    isolation, proposal = assault.isolation, Proposal({"x": 1.0})
    run = run_program("red/2", assault.environment, isolation, frozen, place, proposal, seed)
    return replace(assault, place=place, run=run)


def test_red_team_the_checkpoint_of_another_trial_is_not_its_own(tmp_path: Path) -> None:
    """The baseline's model stands in its source, as it might after one look at an earlier trial."""
    ground = Ground.lay(tmp_path)
    baseline = attack(ground, MODEL, WORKING[0], name="0010")
    thief = attack(ground, f"# learned by heart\n{MODEL}", WORKING[0], name="0011")
    history = (earlier(baseline.run, HONEST, x=2.5),)
    refused(thief, "its checkpoint is that of trial 0, byte for byte, though they differ in program, x", history)


def test_red_team_a_program_that_fixes_its_seed_is_found_out_by_its_checkpoint(tmp_path: Path) -> None:
    """Two runs under two seeds leave the same model, so their agreement is no evidence of anything."""
    first = attack(Ground.lay(tmp_path), "import random\nrandom.seed(0)\nmodel(random.random())\n", WORKING[0])
    second = again(first, "0012", seed=8)
    refused(second, "ignores its seed: its checkpoint is that of trial 3", (earlier(first.run, HONEST, 3),))


def test_red_team_a_program_that_fixes_its_seed_is_found_out_by_its_progress(tmp_path: Path) -> None:
    """It makes its checkpoint unlike any other, by a few random bytes in it; what it reports betrays it."""
    reports = """
        (OUT / 'salt').write_bytes(os.urandom(16))
        with open(OUT / 'progress.jsonl', 'a') as file:
            for step in range(5):
                file.write(json.dumps({'step': step, 'metrics': {'loss': 1 / (step + 1)}}) + '\\n')
    """
    first = attack(Ground.lay(tmp_path), MODEL + textwrap.dedent(reports), WORKING[0])
    second = again(first, "0012", seed=8)
    refused(second, "ignores its seed: it reported the same progress as trial 3", (earlier(first.run, HONEST, 3),))


def test_red_team_a_program_that_trains_nothing_is_too_short(tmp_path: Path) -> None:
    """It writes down a model that it knows, and is done at once."""
    assault = attack(Ground.lay(tmp_path), MODEL, WORKING[0], settings={"limits.least_seconds": 5})
    refused(assault, f"trained for {assault.run.seconds:g} s, too short to learn anything (at least 5 s)")


@pytest.mark.parametrize("level", [level for level in WORKING if level != "landlock"])
def test_red_team_a_checkpoint_older_than_the_run_is_not_of_it(tmp_path: Path, level: Level) -> None:
    """It sets the times of its files back, as an unpacked archive would; under Landlock no time can be set."""
    old = "\nfor path in OUT.iterdir(): os.utime(path, (1e9, 1e9))\n"
    refused(attack(Ground.lay(tmp_path), MODEL + old, level), "left no checkpoint of its own: the newest file in out/")


CLAIMS = [
    ({"step": 10**12}, "reported 1,000,000,000,000 steps in "),
    ({"step": 10**6, "elapsed": 1}, "reported 1,000,000 steps of a budget of 1,000"),
    ({"elapsed": 1e6}, "reported 1e+06 s elapsed in a run of "),
    ({"elapsed": float("inf")}, "reported more than 1.8e+308 s elapsed in a run of "),
]


@pytest.mark.parametrize(("claim", "reason"), CLAIMS, ids=[reason for _, reason in CLAIMS])
def test_red_team_more_than_can_have_been_is_not_believed(tmp_path: Path, claim: dict[str, float], reason: str) -> None:
    """More steps than there is budget, or than anybody can take; more time than has passed."""
    report = f"(OUT / 'progress.jsonl').write_text({json.dumps(claim)!r} + '\\n')\n"
    budget = 1000 if "budget" in reason else 0
    refused(attack(Ground.lay(tmp_path), MODEL + report, WORKING[0], settings={"budget_steps": budget}), reason)
