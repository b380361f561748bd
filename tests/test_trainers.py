"""Conformance of every trainer: a program in one file that knows nothing of the engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from environments import plugins
from tasks.workspace import TRAINERS

NAMES = plugins.names(TRAINERS)
OURS = {"flows", "tasks", "environments", "blocks"}


def source(name: str) -> str:
    return (plugins.folder(TRAINERS) / f"{name}.py").read_text()


def imported(tree: ast.AST) -> set[str]:
    """The top-level packages that a program imports anywhere; a relative import counts as ours."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("tasks" if node.level else str(node.module).partition(".")[0])
    return names


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_says_what_it_is(name: str) -> None:
    said = ast.get_docstring(ast.parse(source(name)))
    assert said and len(said.splitlines()[0]) > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_compiles(name: str) -> None:
    compile(source(name), f"{name}.py", "exec", dont_inherit=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_imports_nothing_of_ours(name: str) -> None:
    assert imported(ast.parse(source(name))) & OURS == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "command"])
def test_a_trainer_of_ours_both_trains_and_plays(name: str) -> None:
    assert "config.json" in source(name) and '"act"' in source(name)


def test_the_command_trainer_has_no_program_of_its_own_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source("command"))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "set train_cmd in environment.toml" in done.stderr
