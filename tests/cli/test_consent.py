"""What an environment or a spec asks for is shown, and nothing starts before somebody has agreed."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli import consent
from flows.cli.arguments import stated
from tests.support.toy import QUADRATIC, command, nightshift, quadratic

ONLINE = "network = true\n" + QUADRATIC
WISH = "training uses the network"


def answered(answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command on a terminal, whose one question is answered so."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown, deadline = b"", time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if b"[y/N] " in shown and answer:
                os.write(ours, answer.encode() + b"\n")
                answer = ""
    os.close(ours)
    return process.returncode, shown.decode()


def test_without_a_terminal_nothing_starts_and_the_exit_code_says_so(tmp_path: Path, home: Path) -> None:
    done = nightshift("run", str(quadratic(tmp_path / "quad", toml=ONLINE)), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert WISH in done.stderr and "say so once with --trust" in done.stderr
    assert not [path for path in home.iterdir() if path.name[0] != "."]


@pytest.mark.slow
def test_on_a_terminal_a_person_is_asked_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = quadratic(tmp_path / "quad", toml=ONLINE)
    code, shown = answered("y", "env", "validate", str(folder))
    assert code == 0, shown
    assert f"- {WISH}" in shown and "valid; next" in shown
    consent.ask_about(str(folder), {}, yes=False)
    assert "(granted)" in capsys.readouterr().err


def test_an_ordinary_problem_and_a_bundled_one_are_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consent.ask_about(str(quadratic(tmp_path / "quad")), {}, yes=False)
    consent.ask_about("gsm8k", {}, yes=False)
    consent.ask_about("gymnasium", {"control.id": "this:Zen-v0"}, yes=False)
    assert capsys.readouterr().err == ""


def test_a_spec_beside_an_environment_cannot_leave_the_sandbox_without_a_yes(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    spec = folder / "spec.toml"
    spec.write_text('environment = "."\n[advanced]\nisolation = "none"\n')
    with pytest.raises(Refused, match=r"without a sandbox.*--trust"):
        stated(str(spec), settings=[])
    stated(str(spec), settings=[], trust=True)
    assert stated(str(spec), settings=[])["environment"] == str(folder)
