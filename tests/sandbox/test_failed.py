"""How a program says why it failed: what of that becomes the reason, and when the machine is blamed for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import environments
from tasks.sandbox.program import CannotStart
from tasks.sandbox.progress import REASON_CHARACTERS, Progress
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.toy import FIT, QUADRATIC, SANDBOX, quadratic

SETTINGS = QUADRATIC.replace('program = ["fit.py"]', 'program = ["fit.py", "train.toml"]').replace(
    'editable = ["fit.py"]', 'editable = ["train.toml"]'
)
"""An environment whose edits change settings, and no code."""


def failing(line: dict[str, Any], status: int = 3, more: str = "") -> str:
    """A program that leaves a model, says why it failed, and ends."""
    say = f"(args.out / 'progress.jsonl').write_text({json.dumps(line)!r} + '\\n')\n"
    return f"{FIT}{say}{more}print('the log goes on')\nraise SystemExit({status})\n"


def train(tmp_path: Path, program: str, toml: str = QUADRATIC, **overrides: Any) -> Run:
    folder = quadratic(tmp_path / "env", fit=program, toml=toml)
    (folder / "train.toml").write_text(program)
    environment = environments.load(folder, {"budget_seconds": 60, "startup_seconds": 60, **overrides})
    place = TrialDir(tmp_path / "trial")
    return run_program("test/failed", environment, SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)


def told(tmp_path: Path, line: dict[str, Any]) -> Progress:
    (tmp_path / "progress.jsonl").write_text(json.dumps(line) + "\n")
    progress = Progress(tmp_path / "progress.jsonl", "loss")
    progress.read()
    return progress


def test_the_reason_that_a_program_gives_is_that_of_its_crash_and_the_log_follows(tmp_path: Path) -> None:
    run = train(tmp_path, failing({"failed": "out of GPU memory: 2 GiB more were asked for", "retry": False}))
    assert (run.status, run.startup) == ("crash", None)
    assert run.error == "said: out of GPU memory: 2 GiB more were asked for\n| the log goes on"


def test_a_reason_is_one_clean_line_without_secrets_and_of_bounded_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "hub-canary-123456")
    failure = told(tmp_path, {"failed": f"did not start:\n\x1b[31mhub-canary-123456 {'x' * 9000}"}).failure
    assert failure and not failure.retry
    assert failure.reason.startswith("did not start: [secret HUB_TOKEN] xxx")
    assert "canary" not in failure.reason and len(failure.reason) < REASON_CHARACTERS + 40


def test_a_sentence_on_the_result_is_kept_in_one_clean_line_and_is_no_sign_of_being_ready(tmp_path: Path) -> None:
    progress = told(tmp_path, {"note": f"a third\nis \x1b[31mleft {'x' * 9000}"})
    assert progress.note.startswith("a third is left xxx") and len(progress.note) < REASON_CHARACTERS + 40
    assert not progress.ready and progress.failure is None
    assert told(tmp_path, {"step": 7, "note": 3}).note == ""


AT_FAULT = failing({"failed": "port in use: 8000 is held by process 7", "retry": True})


def test_the_machine_is_at_fault_where_no_edit_can_have_made_the_program_say_so(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"port in use: 8000 .*process 7.*/trial/log.txt"):
        train(tmp_path, AT_FAULT, SETTINGS)


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("the program itself may be edited", 'editable = ["train.toml"]', 'editable = ["train.toml", "fit.py"]'),
        ("so may a file without a known suffix", 'editable = ["train.toml"]', 'editable = ["train.toml", "go"]'),
        ("settings are run as code", "python fit.py", "python train.toml"),
    ],
)
def test_a_program_that_an_edit_can_have_changed_is_not_believed(tmp_path: Path, what: str, old: str, new: str) -> None:
    program = AT_FAULT.replace("parse_args()", "parse_known_args()[0]")
    run = train(tmp_path, program, SETTINGS.replace(old, new))
    assert run.status == "crash", what
    assert run.error and run.error.startswith("said: port in use: 8000 is held by process 7\n| the log goes on")
