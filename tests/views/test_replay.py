"""A night that is played again: what it shows, what it needs, and what a recording holds."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from flows import replay
from tasks.store.ledger import Ledger
from tests.support.finished import Finished
from tests.support.recording import record
from tests.support.terminals import terminal

PLAY = """
import socket, sys
from flows.cli.seeing import replay

def refuse(*_):
    raise AssertionError("a request")

socket.socket.connect = socket.create_connection = refuse
replay()
assert not {"torch", "gymnasium", "mlflow"} & sys.modules.keys()
"""


def test_the_night_that_comes_along_plays_without_torch_server_or_network(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PLAY], capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    decided = [int(line.split()[1]) for line in lines if line[1:2] in ("+", "-", "~", "x")]
    assert sorted(decided) == list(range(90)) and "certified: +" in done.stdout
    (page,) = home.glob(".replay/*/report.html")
    assert page.is_file() and "data:image/gif;base64," in page.read_text() and str(page) in done.stdout


@pytest.mark.slow
def test_a_campaign_of_ones_own_is_recorded_and_played(
    finished: Finished, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "SECONDS", 3.0)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(finished.home))
    monkeypatch.setenv("SOME_API_KEY", "sk-planted-0123456789")
    ledger, file = Ledger.open("one"), tmp_path / "one.json.gz"
    record(ledger, file)
    text = gzip.decompress(file.read_bytes()).decode()
    assert ledger.campaign.judge_key not in text and str(finished.home) not in text
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))

    with terminal(100) as (console, written):
        played = replay.play(file, console)

    assert played.history() == ledger.history() and (played.path / "report.html").is_file()
    assert b"training" in b"".join(written) or b"judging" in b"".join(written)
