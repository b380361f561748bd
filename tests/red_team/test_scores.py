"""The red team against the score of a trial: what a training program leaves, says or plants buys it nothing.

Every program here leaves a model that is worth HONEST, and would like to have another score. Its canary is that
number: it gets it, or none with a reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import environments
from environments.score import Score
from tasks.editing.edits import diff_of
from tasks.evaluate import judge_run
from tasks.run_checks import plausible_beside
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store.workspace import TrialDir
from tasks.train import UNSANDBOXED, run_program
from tasks.trial import Proposal, Run, Trial, Verdict
from tests.support.levels import SANDBOXED, WORKING
from tests.support.red_team import Ground, attack
from tests.support.toy import JUDGE, folder_of, quadratic, stated

HONEST = 1.0
"""The score of the model that `model(2.0)` leaves; the lowest, 0, is the best."""
MODEL = "model(2.0)\n"


# What it leaves for the judge


HOOKS = ("sitecustomize.py", "json.py", "hook.pth", "python")
RESULTS = ("result.json", "score.json", "results.tsv")
PAYLOAD = """
import sys
argv = getattr(sys, "argv", [])
if argv and argv[-1].endswith("result.json"):
    open(argv[-1], "w").write('{"score": 0.0}')
    __import__("os")._exit(0)
"""
PLANT = f"""
print('score: 0.0\\n{{"score": 0.0}}\\nloss 0.0')
report = {{'step': 1, 'elapsed': 0.01, 'metrics': {{'loss': -1e9, 'score': 0.0}}}}
(OUT / 'progress.jsonl').write_text(json.dumps(report) + '\\n')
for name in {HOOKS + RESULTS!r}:
    text = '{{"score": 0.0}}' if name in {RESULTS!r} else {PAYLOAD!r}
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
def test_red_team_import_hooks_and_results_for_the_judge(tmp_path: Path, level: Level, places: str) -> None:
    """It prints and reports scores, and plants results, modules that Python imports by itself, or that the judge imports
    by name: where it may write they are not loaded; beside the judge, in the program and in the judge's folders they
    are not planted."""
    ground = Ground.lay(tmp_path)
    assault = attack(ground, MODEL + places + PLANT, level)
    assert len(assault.attempts) == (4 if places == WITHIN else 5) * len(HOOKS + RESULTS)
    assert {attempt.refused for attempt in assault.attempts.values()} == {places == OUTSIDE}
    assert "loss 0.0" in assault.log and assault.run.reported == -1e9
    assert assault.judge().value == HONEST
    assert not ground.changed()


# What it claims to have trained


def test_red_team_the_checkpoint_of_another_trial_is_not_its_own(tmp_path: Path) -> None:
    """The baseline's model stands in its source, as it might after one look at an earlier trial."""
    ground = Ground.lay(tmp_path)
    baseline = attack(ground, MODEL, WORKING[0], name="0010")
    thief = attack(ground, f"# learned by heart\n{MODEL}", WORKING[0], name="0011")
    score, proposal = Score.of([HONEST], higher_is_better=False), Proposal({"x": 2.5})
    history = (Trial(0, 0, 0, proposal, (baseline.run,), score, Verdict("keep", "the baseline")),)
    run = plausible_beside(thief.environment, history, Proposal({"x": 1.0}), thief.run, ground.campaign)
    found = replace(thief, run=run).judge()
    assert found.value is None and not thief.place.judge_log.exists(), "it was judged"
    assert str(found.error).startswith(
        "its checkpoint is that of trial 0, byte for byte, though they differ in program, x"
    )


# The red team against code edits: one that reaches for more than the program's text is a crash, and nothing is
# started.


FIT = """\
import json, pathlib, random
config = json.loads(pathlib.Path("config.json").read_text())
out = pathlib.Path(config["out"])
(out / "started").write_text("")
random.seed(config["seed"])

def improve(x):
    return x - 0.5

x = improve(config["params"]["x"])
(out / "model.json").write_text(json.dumps({"x": x}))
"""
"""From 2.5 it comes to 2, which is worth 1."""
TOML = stated('train_cmd = "python fit.py"', 'required_calls = ["improve"]')
EDITS = [
    ("judge.py", JUDGE.replace("(x - 1) ** 2", "0"), "the edit does not apply: error: judge.py: No such file"),
    ("sitecustomize.py", "x = 1\n", "the edit touches or removes 'sitecustomize.py'"),
    ("fit.py", FIT.replace('config["seed"]', "7"), "the edit fixes a seed, fit.py:5: random.seed(7)"),
    ("fit.py", FIT.replace("x = improve(config", "x = (config"), "the edited program never calls improve()"),
]
"""A file, its new text, and why that is no edit: the judge's, one that Python imports by itself, a seed of its own,
nothing trained. Further texts against those who read them: tests/editing."""


def tried(folder: Path, name: str, text: str, isolation: Isolation) -> tuple[TrialDir, Run, Score]:
    """An edit as a trial has it: applied, trained and judged, as far as it comes."""
    environment = environments.load(quadratic(folder / "env", fit=FIT, toml=TOML))
    folder_of(folder / "program", {"fit.py": FIT})
    before = {"fit.py": FIT, "judge.py": JUDGE}
    place, proposal = TrialDir(folder / "trials/0007"), Proposal({"x": 2.5}, diff_of(before, before | {name: text}))
    run = run_program("red/edit", environment, isolation, folder / "program", place, proposal, 7)
    return place, run, judge_run("red/edit", environment, isolation, place, run, 8)


def was_started(place: TrialDir) -> bool:
    return (place.out / "started").exists() or place.log.exists() or place.judge_log.exists()


@pytest.mark.parametrize(("name", "text", "reason"), EDITS)
def test_red_team_an_edit_that_changes_more_than_the_program_is_never_run(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """It is a crash that says why; the program is not started, and no file of anybody's is another."""
    before = outputs.digest(quadratic(tmp_path / "env", fit=FIT, toml=TOML))
    place, run, score = tried(tmp_path, name, text, Isolation(WORKING[0], allow_unsandboxed=True))
    assert run.status == "crash" and run.error is not None and run.error.startswith(reason), run.error
    assert score.value is None and score.error == run.error
    assert not was_started(place)
    assert outputs.digest(tmp_path / "env") == before
    assert (tmp_path / "program/fit.py").read_text() == FIT == (place.workspace / "fit.py").read_text()
    assert [path.name for path in place.workspace.iterdir()] == ["fit.py"]


@pytest.mark.parametrize("level", WORKING)
def test_red_team_an_edit_of_the_program_is_run_in_a_sandbox_or_where_that_was_asked_for(
    tmp_path: Path, level: Level
) -> None:
    """The same machinery lets an ordinary edit through, so a refusal above is none of everything. Without a sandbox a
    harmless one is refused, too, and never started: nobody has read it."""
    edit = "fit.py", FIT.replace("x - 0.5", "x - 1.0")
    place, run, score = tried(tmp_path / "asked", *edit, Isolation(level, allow_unsandboxed=level == "none"))
    assert (run.error, score.error) == (None, None)
    assert was_started(place) and score.value == 0.25
    if level == "none":
        place, run, score = tried(tmp_path / "unasked", *edit, Isolation("none"))
        assert run.status == "crash" and run.error == UNSANDBOXED == score.error
        assert not was_started(place) and not place.workspace.exists()
