"""Every trainer is a program, in one file or with parts beside it; that it imports nothing of ours, `lint-imports` checks."""

from __future__ import annotations

from environments import plugins
from tasks.store.workspace import TRAINERS, trainer_files


def test_a_trainer_finds_its_parts_in_its_workspace_by_the_names_that_they_have_here() -> None:
    files = {name: [called for _, called in trainer_files(name)] for name in plugins.names(TRAINERS)}
    assert [files[name] for name in ("ppo", "sac", "grpo")] == [["train.py", "_program.py"]] * 3
    assert files["command"] == ["train.py"]
    parts = {called.partition("/")[0] for called in files["prime_rl"]}
    assert parts == {"train.py", "_program.py", "prime_rl_parts"}
