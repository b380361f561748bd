"""Every trainer is a program, in one file or with parts beside it; that it imports nothing of ours, `lint-imports` checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from environments import plugins
from tasks.store.workspace import TRAINERS, trainer_files


def test_a_trainer_finds_its_parts_in_its_workspace_by_the_names_that_they_have_here() -> None:
    files = {name: [called for _, called in trainer_files(name)] for name in plugins.names(TRAINERS)}
    assert [files[name] for name in ("ppo", "sac", "grpo")] == [["train.py", "_program.py"]] * 3
    assert files["command"] == ["train.py"]
    parts = {called.partition("/")[0] for called in files["prime_rl"]}
    assert parts == {"train.py", "_program.py", "prime_rl_parts"}


def test_the_command_trainer_has_no_program_of_its_own_and_says_so(tmp_path: Path) -> None:
    [(source, _)] = trainer_files("command")
    done = subprocess.run([sys.executable, source], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "set train_cmd in environment.toml" in done.stderr
