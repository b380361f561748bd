"""A program under judgement starts as `python train.py act` does, but for its packages, which come first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import environments
from tasks.evaluate import judge_run
from tasks.judged_start import LOADED, command
from tasks.store.workspace import TrialDir
from tests.support.champions import cart
from tests.support.toy import SANDBOX

MAIN = """\
import pickle, sys, colorsys, shadow, nowhere_to_be_found
class Thing: pass
assert pickle.loads(pickle.dumps(Thing)) is Thing and __name__ == "__main__" and __file__.endswith("/train.py")
print(sys.argv, sys.path[0], sys.stdin.readline())
"""


def start(folder: Path, program: str, *files: tuple[str, str]) -> subprocess.Popen[str]:
    for name, text in (("train.py", program), *files):
        (folder / name).write_text(text)
    line = command([sys.executable, "train.py", "act"])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(line, cwd=folder, text=True, env=variables, **pipes)  # type: ignore[call-overload,no-any-return]


def told(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it prints and complains of, once it is spoken to."""
    assert process.stdout is not None
    assert process.stdout.readline() == LOADED.decode() + "\n"
    return process.communicate("hello\n", timeout=60)


def test_the_program_runs_as_python_would_run_it(tmp_path: Path) -> None:
    files = ("shadow.py", ""), ("nowhere_to_be_found.py", "")
    printed, complained = told(start(tmp_path, MAIN, *files))
    assert printed.split("\n")[0] == f"['train.py', 'act'] {tmp_path.resolve()} hello", complained


def test_no_statement_of_the_program_or_of_its_modules_runs_before_the_judge_speaks(tmp_path: Path) -> None:
    """Not even of one that is named as a package, or beside a package that its module imports."""
    ran = "import pathlib; pathlib.Path('ran').touch()\n"
    process = start(tmp_path, f"import shadow, colorsys, sndhdr\n{ran}", ("shadow.py", ran), ("colorsys.py", ran))
    assert process.stdout is not None
    assert process.stdout.readline() == LOADED.decode() + "\n"
    assert not (tmp_path / "ran").exists()
    process.communicate("hello\n", timeout=60)
    assert (tmp_path / "ran").exists()


def test_packages_are_imported_first_and_what_they_print_is_no_answer(tmp_path: Path) -> None:
    """`this` prints a poem; the judge hears none of it."""
    own = ("own.py", "if True:\n    try:\n        import this\n    except ImportError:\n        import nothing\n")
    process = start(tmp_path, "import own, sys\nprint('this' in sys.modules)\n", own)
    assert told(process)[0] == "True\n"


def test_what_modules_within_its_own_packages_import_is_loaded_too(tmp_path: Path) -> None:
    (tmp_path / "own/deep").mkdir(parents=True)
    files = {
        "own/__init__.py": "",
        "own/near.py": "import colorsys\nfrom . import far\nfrom .deep.last import x\n",
        "own/far.py": "import wave\n",
        "own/deep/last.py": "import shelve\nfrom .. import far\nx = 1\n",
    }
    loaded = "print([name in sys.modules for name in ('colorsys', 'wave', 'shelve')])"
    process = start(tmp_path, f"import sys\n{loaded}\nfrom own.near import x\n", *files.items())
    assert told(process)[0] == "[True, True, True]\n"


def test_a_trial_that_was_trained_before_its_home_was_moved_is_judged_where_it_is(tmp_path: Path) -> None:
    trained = cart(tmp_path / "before").trial.runs[0]
    (tmp_path / "before").rename(tmp_path / "after")
    environment = environments.load(tmp_path / "after/environment", name="cart")
    score = judge_run("moved", environment, SANDBOX, TrialDir(tmp_path / "after/0007"), trained, seed=1)
    assert score.value is not None, score.error


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("x = (", "SyntaxError"),
        ("import sys\nsys.exit('enough')", "enough"),
        ("def f():\n    raise ValueError('no')\nf()", 'line 3, in <module>'),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        (f"x = {'-' * 90_000}1", "MemoryError"),
    ],
)  # fmt: skip
def test_a_program_that_cannot_run_fails_as_it_would_without(tmp_path: Path, program: str, why: str) -> None:
    process = start(tmp_path, program)
    _, complained = told(process)
    assert process.returncode == 1 and why in complained
    assert complained.count('File "<string>"') <= 1, "the start is not in its traceback"
