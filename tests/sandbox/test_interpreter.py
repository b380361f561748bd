"""The Python of programs: the user's own and what it has in editable mode are found, and what is not is said before."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.spec import permissions
from tasks.imports import imported, missing
from tasks.sandbox import interpreter
from tasks.sandbox.confinement import Level
from tasks.sandbox.interpreter import OWN, interpreter_of
from tests.sandbox.test_advice import FIRST, train
from tests.support.toy import FIT, QUADRATIC, quadratic

PROGRAM = f"""import sys
import pathlib
import lander_tools
for beside in (pathlib.Path(lander_tools.__file__).parents[1] / "judge.py", pathlib.Path(sys.prefix) / "secret.txt"):
    try:
        beside.read_text()
        sys.exit("it reads what lies beside the package or the interpreter")
    except OSError:
        print(sys.executable, lander_tools.__file__)
{FIT}"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with two packages in editable mode: by a path, and by the import hook of setuptools."""
    folder = tmp_path_factory.mktemp("theirs")
    venv.create(folder / "venv", symlinks=True)
    (folder / "venv/secret.txt").write_text("somebody's")
    for name in ("lander_tools", "hooked"):
        (folder / f"src/{name}").mkdir(parents=True)
        (folder / f"src/{name}/__init__.py").touch()
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (folder / "src/judge.py").write_text("beside the packages")
    (folder / "src/with_problem/inner").mkdir(parents=True)
    (folder / "src/with_problem/__init__.py").touch()
    (folder / "src/with_problem/inner/environment.toml").touch()
    (packages / "lander.pth").write_text(f"import sys\n{folder}/src\n")
    hook = f"MAPPING: dict[str, str] = {{'hooked': '{folder}/src/hooked'}}\n"
    (packages / "__editable___hooked_1_0_finder.py").write_text(hook)
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


@pytest.mark.parametrize("level", FIRST)
def test_a_program_is_started_by_the_users_python_and_finds_its_editable_packages(
    tmp_path: Path, level: Level, theirs: Path
) -> None:
    run = train(tmp_path, level, PROGRAM, python=str(theirs / "venv"))
    assert run.status == "finished", run.error
    log = (tmp_path / "trial/log.txt").read_text()
    assert str(theirs / "venv/bin/python") in log and str(theirs / "src/lander_tools") in log


def test_its_files_tell_what_it_needs_without_running_it(theirs: Path) -> None:
    for named in (theirs / "venv", theirs / "venv/bin/python"):
        found = interpreter_of(str(named))
        assert found.executable == theirs / "venv/bin/python"
        assert set(found.editable) == {theirs / "src/lander_tools", theirs / "src/hooked"}
        assert found.listed(found.editable) == [theirs / "src"] and found.listed(()) == []
        assert Path(sys.base_prefix) in found.prefixes
    assert interpreter_of("") is OWN


def test_it_is_asked_about_and_one_that_is_none_is_refused(tmp_path: Path, theirs: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=f'python = "{theirs}/venv"\n{QUADRATIC}')
    (sentence,) = permissions.of(environments.load(folder))
    assert f"started by {theirs}/venv/bin/python" in sentence and str(theirs / "src/hooked") in sentence
    for wrong, why in ((".venv", "absolute path"), (str(tmp_path / "none"), "there is no")):
        with pytest.raises(Refused, match=why):
            interpreter_of(wrong)


def test_places_of_ours_and_of_keys_are_not_seen_as_editable_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "work/runs"))
    for hidden in (interpreter.CODE, interpreter.CODE / "tasks", tmp_path / "work", tmp_path / "me"):
        assert interpreter.is_hidden(hidden), hidden
    assert not interpreter.is_hidden(tmp_path / "package")
    monkeypatch.setattr(interpreter, "_editable", lambda prefixes: (tmp_path / "work/package",))
    assert OWN.editable and not OWN.listed(OWN.editable), "beside it is the home of campaigns"


def test_what_programs_import_is_looked_for_in_their_sandbox_before_anything_trains(
    tmp_path: Path, theirs: Path
) -> None:
    fit = "import json\nimport helper, lander_tools, nowhere.part\ntry:\n    import optional\nexcept ImportError:\n    pass\n"
    folder = quadratic(tmp_path / "quad", fit=fit)
    (folder / "helper.py").write_text("import hooked, nowhere_either\n")
    (folder / "judge.py").write_text("import numpy, judged_by_nobody\n")
    listed = environments.load(folder, {"program": ["fit.py", "helper.py"], "python": str(theirs / "venv")})
    assert set(imported(listed)) == {"lander_tools", "nowhere", "hooked", "nowhere_either", "numpy", "judged_by_nobody"}
    found = missing(listed, "none")
    assert set(found) == {"nowhere", "nowhere_either", "numpy", "judged_by_nobody"}
    assert "fit.py imports nowhere" in found["nowhere"] and "pip install" not in found["nowhere"]
    ours = missing(environments.load(folder, {"program": ["fit.py"]}), "none")
    assert set(ours) == {"helper", "lander_tools", "nowhere", "judged_by_nobody"}
    assert "add it to `program`" in ours["helper"]
