"""The program Claude Code itself, where it is installed, with a scripted model, as a proposer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.scripted_model import ClaudeModel, Steps
from tests.support.toy import nightshift, quadratic, status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("claude") is None, reason="there is no program claude: npm install -g @anthropic-ai/claude-code"
    ),
]


def run(folder: Path, model: ClaudeModel, place: Path, server: str, *more: str) -> None:
    done = nightshift(
        *("run", str(folder), "--name", "night", "--rule", "greedy", "--trials", "1"),
        *("--proposer", "agent", "--set", "proposer.command=claude", *more),
        server=server, CLAUDE_CONFIG_DIR=str(place / "claude"), **model.variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def editor(seen: list[str]) -> Steps:
    task = yield "Read", {"file_path": "TASK.md"}
    assert "proposal.json" in task, task
    program = yield "Read", {"file_path": "fit.py"}
    assert "args.x" in program, program
    seen.append((yield "Bash", {"command": "touch escaped", "description": "run a command"}))
    change = {"file_path": "fit.py", "old_string": '{"x": args.x}', "new_string": '{"x": args.x - 1}'}
    yield "Edit", change
    yield "Read", {"file_path": "proposal.json"}
    why = {"old_string": '"rationale": ""', "new_string": '"rationale": "One less is better."'}
    yield "Edit", {"file_path": "proposal.json", **why}
    return "I subtracted one."


def test_it_edits_and_says_why_and_what_it_costs_and_runs_no_command(tmp_path: Path, home: Path, server: str) -> None:
    folder, seen = quadratic(tmp_path / "quad"), list[str]()
    with ClaudeModel(editor(seen)) as model:
        run(folder, model, tmp_path, server)
    trial = status("night")["trials"][1]
    assert (trial["proposer"], trial["model"], trial["verdict"]) == ("agent", "claude", "keep"), trial
    assert "One less is better." in json.dumps(trial)
    assert trial["usd"] and trial["usd"] > 0, "Claude Code states a price itself"
    assert seen and not list(tmp_path.rglob("escaped")), seen
    assert (tmp_path / "claude").is_dir(), "its own files are where its variable says"
