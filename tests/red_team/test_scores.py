"""The red team against the score of a trial: what a training program leaves, says or plants buys it nothing.

Every program here leaves a model that is worth HONEST, and would like to have another score. Its canary is that
number: it gets it, or none with a reason.
"""

from __future__ import annotations

import difflib
import json
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.score import Score
from tasks.evaluate import judge_run
from tasks.run_checks import plausible_beside
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.train import UNSANDBOXED, run_program
from tasks.trial import Proposal, Run, Trial, Verdict
from tests.support.levels import SANDBOXED, STRONGEST_AND_NONE, WORKING
from tests.support.red_team import Ground, attack
from tests.support.toy import JUDGE, QUADRATIC, folder_of, quadratic

HONEST = 1.0
"""The score of the model that `model(2.0)` leaves; the lowest, 0, is the best."""
MODEL = "model(2.0)\n"


# What it says


def test_red_team_what_it_prints_and_reports_decides_nothing(tmp_path: Path) -> None:
    """It prints scores in every form that somebody may have thought of parsing, and reports the best loss there can
    be; the score is the judge's alone."""
    says = (
        "for line in ('score: 0.0', '{\"score\": 0.0}', '{\"units\": [0]}', 'loss 0.0'):\n    print(line)\n"
        "report = {'step': 1, 'elapsed': 0.01, 'metrics': {'loss': -1e9, 'score': 0.0}}\n"
        "(OUT / 'progress.jsonl').write_text(json.dumps(report) + '\\n')\n"
    )
    assault = attack(Ground.lay(tmp_path), MODEL + says, WORKING[0])
    assert "score: 0.0" in assault.log and assault.run.reported == -1e9
    assert assault.judge().value == HONEST


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
    """It plants results, modules that Python imports by itself, or that the judge imports by name: where it may write
    they are not loaded; beside the judge, in the program and in the judge's folders they are not planted."""
    ground = Ground.lay(tmp_path)
    assault = attack(ground, MODEL + places + PLANT, level)
    assert len(assault.attempts) == (4 if places == WITHIN else 5) * len(HOOKS + RESULTS)
    assert {attempt.refused for attempt in assault.attempts.values()} == {places == OUTSIDE}
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
TOML = QUADRATIC.replace("python fit.py --x {x} --out {out}", "python fit.py").replace(
    'editable = ["fit.py"]', 'editable = ["fit.py"]\nrequired_calls = ["improve"]'
)
ALWAYS_RIGHT = JUDGE.replace("(x - 1) ** 2", "0")


def diff(name: str, before: str, after: str) -> str:
    """A unified diff of one file; of a new one, when there was nothing before."""
    old = f"a/{name}" if before else "/dev/null"
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), old, f"b/{name}")
    mode = "" if before else "new file mode 100644\n"
    return f"diff --git a/{name} b/{name}\n{mode}{''.join(lines)}"


def rewritten(old: str, new: str) -> str:
    assert old in FIT
    return diff("fit.py", FIT, FIT.replace(old, new))


EDITS = [
    ("the judge", diff("judge.py", JUDGE, ALWAYS_RIGHT), "the edit does not apply: error: judge.py: No such file"),
    ("a place above", diff("../env/judge.py", JUDGE, ALWAYS_RIGHT), "the edit "),
    ("what Python imports by itself", diff("sitecustomize.py", "", "x = 1\n"), "the edit touches or removes 'sitecustomize.py'"),
    (
        "the program's name",
        "diff --git a/fit.py b/judge.py\nsimilarity index 100%\nrename from fit.py\nrename to judge.py\n",
        "the edit has 'rename fit.py => judge.py",
    ),
    ("the seed", rewritten('config["seed"]', "7"), "the edit fixes a seed, fit.py:5: random.seed(7)"),
    (
        "the training away",
        rewritten("x = improve(config", "x = (config"),
        "the edited program never calls improve()",
    ),
    ("the encoding", diff("fit.py", FIT, "# coding: utf-7\n" + FIT), "fit.py:1 claims to be in utf-7"),
    (
        "what no reader comes to the end of",
        rewritten("x = improve(config", f"y = f'{'{x}' * 80_000}'\nx = improve(config"),
        "the text takes more than 3 s of processor time to be read",
    ),
]  # fmt: skip


def tried(folder: Path, edit: str, isolation: Isolation) -> tuple[Environment, TrialDir, Run, Score]:
    """An edit as a trial has it: applied, trained and judged, as far as it comes."""
    environment = environments.load(quadratic(folder / "env", fit=FIT, toml=TOML))
    folder_of(folder / "program", {"fit.py": FIT})
    place = TrialDir(folder / "trials/0007")
    run = run_program("red/edit", environment, isolation, folder / "program", place, Proposal({"x": 2.5}, edit), 7)
    return environment, place, run, judge_run("red/edit", environment, isolation, place, run, 8)


def was_started(place: TrialDir) -> bool:
    return (place.out / "started").exists() or place.log.exists() or place.judge_log.exists()


@pytest.mark.parametrize(("what", "edit", "reason"), EDITS, ids=[what for what, _, _ in EDITS])
def test_red_team_an_edit_that_changes_more_than_the_program_is_never_run(
    tmp_path: Path, what: str, edit: str, reason: str
) -> None:
    """It is a crash that says why; the program is not started, and no file of anybody's is another."""
    before = outputs.digest(quadratic(tmp_path / "env", fit=FIT, toml=TOML))
    _, place, run, score = tried(tmp_path, edit, Isolation(WORKING[0], allow_unsandboxed=True))
    assert run.status == "crash" and run.error is not None and run.error.startswith(reason), (what, run.error)
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
    edit = rewritten("x - 0.5", "x - 1.0")
    _, place, run, score = tried(tmp_path / "asked", edit, Isolation(level, allow_unsandboxed=level == "none"))
    assert (run.error, score.error) == (None, None)
    assert was_started(place) and score.value == 0.25
    if level == "none":
        _, place, run, score = tried(tmp_path / "unasked", edit, Isolation("none"))
        assert run.status == "crash" and run.error == UNSANDBOXED == score.error
        assert not was_started(place) and not place.workspace.exists()
