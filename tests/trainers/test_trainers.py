"""Conformance of every trainer: a program, in one file or with parts beside it, that knows nothing of the engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from environments import plugins
from tasks.store.workspace import TRAINERS, trainer_files

NAMES = plugins.names(TRAINERS)
OURS = {"flows", "tasks", "environments", "blocks"}


def source(name: str) -> str:
    return (plugins.folder(TRAINERS) / f"{name}.py").read_text()


def modules(name: str) -> dict[str, str]:
    """All files of a trainer, by the names that they have in a workspace."""
    return {called: path.read_text() for path, called in trainer_files(name)}


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
def test_a_trainer_imports_nothing_of_ours(name: str) -> None:
    for called, text in modules(name).items():
        assert imported(ast.parse(text)) & OURS == set(), called


def test_a_trainer_finds_its_parts_in_its_workspace_by_the_names_that_they_have_here() -> None:
    assert [list(modules(name)) for name in ("ppo", "sac", "grpo")] == [["train.py", "_program.py"]] * 3
    assert list(modules("command")) == ["train.py"]
    parts = {called.partition("/")[0] for called in modules("prime_rl") if called != "train.py"}
    assert parts == {"prime_rl_parts"} <= imported(ast.parse(source("prime_rl")))


def test_the_command_trainer_has_no_program_of_its_own_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source("command"))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "set train_cmd in environment.toml" in done.stderr
