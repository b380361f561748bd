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
from tasks.rules import JudgedTrial
from tasks.rules.greedy import Greedy
from tasks.run_checks import plausible, plausible_beside
from tasks.sandbox.confinement import Level
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.train import run_program
from tasks.trial import History, Proposal, Run, Trial, Verdict, best
from tests.support.histories import undemanding
from tests.support.levels import SANDBOXED, STRONGEST, STRONGEST_AND_NONE, WORKING
from tests.support.red_team import Assault, Ground, attack

HONEST = 1.0
"""The score of the model that `model(2.0)` leaves; the lowest, 0, is the best."""
MODEL = "model(2.0)\n"


def earlier(run: Run, score: float, number: int = 0, x: float = 1.0) -> Trial:
    """A decided trial of this run."""
    judged = Score.of([score], higher_is_better=False)
    return Trial(number, 0, number, Proposal({"x": x}), (run,), judged, Verdict("keep", "the baseline"))


def settled(assault: Assault, history: History = ()) -> Score:
    """What a campaign makes of a finished program: its score, as far as its run is believed."""
    folder = assault.ground.campaign
    alone = plausible(assault.environment, assault.run, folder)
    run = plausible_beside(assault.environment, history, Proposal({"x": 1.0}), alone, folder)
    return replace(assault, run=run).judge()


def refused(assault: Assault, reason: str, history: History = ()) -> None:
    """Check that it trained as far as it can tell, and that it is a crash for this reason, and never judged."""
    assert assault.run.status == "finished", assault.run.error
    score = settled(assault, history)
    assert score.value is None and score.error is not None and score.error.startswith(reason), score.error
    assert not assault.place.judge_log.exists(), "it was judged"


# What it says


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_what_it_prints_and_reports_decides_nothing(tmp_path: Path, level: Level) -> None:
    """It prints scores in every form that somebody may have thought of parsing, and reports the best loss there can
    be; the decision and the champion go by the judge alone."""
    says = (
        "for line in ('score: 0.0', '{\"score\": 0.0}', '{\"units\": [0]}', 'loss 0.0'):\n    print(line)\n"
        "report = {'step': 1, 'elapsed': 0.01, 'metrics': {'loss': -1e9, 'score': 0.0}}\n"
        "(OUT / 'progress.jsonl').write_text(json.dumps(report) + '\\n')\n"
    )
    assault = attack(Ground.lay(tmp_path), MODEL + says, level)
    score = assault.judge()
    assert "score: 0.0" in assault.log and assault.run.reported == -1e9
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
@pytest.mark.parametrize("silent", [False, True])
def test_red_team_a_result_that_training_wrote_is_not_read(tmp_path: Path, level: Level, silent: bool) -> None:
    """It leaves result.json, and every other file that says `score`, wherever it can write, for a judge that may give
    up without a word."""
    ground = Ground.lay(tmp_path)
    if silent:
        ground.judge.write_text("print('nothing to say')\n")
    writes = f"""
        for folder in {["judged"] if silent else ["out", "workspace", "judged", "judge.txt.tmp", ".", "judge.txt"]}:
            for name in ('result.json', 'score.json', 'trial.json', 'results.tsv'):
                def write(path=OUT.parent / folder / name):
                    path.parent.mkdir(exist_ok=True)
                    path.write_text('{{"score": 0.0}}')
                attempt(f'{{folder}}/{{name}}', write)
    """
    assault = attack(ground, MODEL + textwrap.dedent(writes), level)
    assert assault.attempts["judged/result.json"].refused == (level != "none")
    score = assault.judge()
    if silent:
        assert score.value is None and "result.json cannot be read" in str(score.error)
    elif level == "none":  # nothing keeps it from its own workspace
        assert str(score.error).startswith("the program has changed since the training began")
    else:
        assert score.value == HONEST
        assert assault.attempts["workspace/result.json"].refused


HOOKS = ("sitecustomize.py", "json.py", "hook.pth", "python")
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


WITHIN = """
site_packages = f'.local/lib/python3.{sys.version_info.minor}/site-packages'
home = pathlib.Path.home()
PLACES = [OUT, OUT / site_packages, home, home / site_packages]
"""
OUTSIDE = """
trial = OUT.parent
PLACES = [pathlib.Path(TARGETS['judge']).parent, trial / 'workspace', trial / 'judge.txt.tmp', trial / 'judged', trial]
"""


@pytest.mark.parametrize(
    ("level", "places"),
    [*((level, WITHIN) for level in (WORKING[0], "none")), *((level, OUTSIDE) for level in SANDBOXED)],
)
def test_red_team_import_hooks_for_the_judge(tmp_path: Path, level: Level, places: str) -> None:
    """It plants modules that Python imports by itself, or that the judge imports by name: where it may write they are
    not loaded; beside the judge, in the program and in the judge's folders they are not planted."""
    ground = Ground.lay(tmp_path)
    assault = attack(ground, MODEL + places + PLANT, level)
    assert len(assault.attempts) == (4 if places == WITHIN else 5) * len(HOOKS)
    assert {attempt.refused for attempt in assault.attempts.values()} == {places == OUTSIDE}
    assert assault.judge().value == HONEST
    assert not ground.changed()


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


def test_red_team_a_program_that_fixes_its_seed_is_found_out(tmp_path: Path) -> None:
    """Two runs under two seeds leave the same model, so their agreement is no evidence of anything."""
    first = attack(Ground.lay(tmp_path), "import random\nrandom.seed(0)\nmodel(random.random())\n", WORKING[0])
    second = again(first, "0012", seed=8)
    refused(second, "ignores its seed: its checkpoint is that of trial 3", (earlier(first.run, HONEST, 3),))


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
