"""The red team against code edits: one that reaches for more than the program's text is a crash, and nothing is started.

The program says that it was started before it does anything else, so that an edit that was refused is told from one
that was applied and failed.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.score import Score
from tasks.evaluate import judge_run
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store.workspace import TrialDir
from tasks.train import UNSANDBOXED, run_program
from tasks.trial import Proposal, Run
from tests.support.levels import WORKING
from tests.support.toy import JUDGE, QUADRATIC, quadratic

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
DOUBLE = FIT.replace("x - 0.5", "x - 1.0")


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
    ("the judge", diff("judge.py", JUDGE, ALWAYS_RIGHT), "the edit touches 'judge.py'; editable: fit.py"),
    ("a place above", diff("../env/judge.py", JUDGE, ALWAYS_RIGHT), "the edit "),
    ("what Python imports by itself", diff("sitecustomize.py", "", "x = 1\n"), "the edit touches 'sitecustomize.py'"),
    (
        "the program's name",
        "diff --git a/fit.py b/judge.py\nsimilarity index 100%\nrename from fit.py\nrename to judge.py\n",
        "the edit touches 'judge.py'",
    ),
    ("the seed", rewritten('config["seed"]', "7"), "the edit fixes a seed, fit.py:5: random.seed(7)"),
    (
        "the training away",
        rewritten("x = improve(config", "x = (config"),
        "the edited program never calls improve()",
    ),
    ("the encoding", diff("fit.py", FIT, "# coding: utf-7\n" + FIT), "the edited program is not Python: fit.py:1"),
    (
        "what no reader comes to the end of",
        rewritten("x = improve(config", f"y = f'{'{x}' * 80_000}'\nx = improve(config"),
        "the text takes more than 3 s of processor time to be read",
    ),
]  # fmt: skip


def tried(folder: Path, edit: str, isolation: Isolation) -> tuple[Environment, TrialDir, Run, Score]:
    """An edit as a trial has it: applied, trained and judged, as far as it comes."""
    quadratic(folder / "env", fit=FIT, toml=TOML)
    environment = environments.load(folder / "env")
    (folder / "program").mkdir()
    (folder / "program/fit.py").write_text(FIT)
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
    """The same machinery lets an ordinary edit through, so a refusal above is none of everything."""
    isolation = Isolation(level, allow_unsandboxed=level == "none")
    _, place, run, score = tried(tmp_path, diff("fit.py", FIT, DOUBLE), isolation)
    assert (run.error, score.error) == (None, None)
    assert was_started(place) and score.value == 0.25


def test_red_team_without_a_sandbox_an_edit_is_refused_and_never_started(tmp_path: Path) -> None:
    """A harmless one, too: nobody has read it."""
    _, place, run, score = tried(tmp_path, diff("fit.py", FIT, DOUBLE), Isolation("none"))
    assert run.status == "crash" and run.error == UNSANDBOXED == score.error
    assert not was_started(place) and not place.workspace.exists()
