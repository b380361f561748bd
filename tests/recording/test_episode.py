"""The episode of champion and baseline: what is drawn, and that a fault gets no further than its reason."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from flows.export.folder import export
from flows.report import page
from flows.report.facts import Facts
from flows.report.page import record_episode as record
from flows.status import CampaignEnd
from tasks.recording import episode
from tasks.store.ledger import Ledger
from tasks.system.orphans import marked
from tests.support.champions import cart
from tests.support.processes import wait_for
from tests.support.toy import SANDBOX

WORK = ".recording-"


def html(ledger: Ledger) -> str:
    return page.html(Facts.of(ledger, CampaignEnd("finished", "2 trials done")))


def test_baseline_and_champion_play_one_episode_side_by_side(tmp_path: Path, home: Path) -> None:
    ledger = cart(tmp_path)

    record(ledger, SANDBOX.level)

    made = episode.load(ledger.path)
    assert made is not None and not made["reason"], made
    first, second = made["episodes"]
    assert (first["name"], second["name"]) == ("baseline", "champion") and first["total"] < second["total"]
    assert second["total"] == second["steps"] and not second["cut"]
    with Image.open(ledger.path / "episode.gif") as picture:
        assert picture.n_frames > 5 and picture.width <= 610  # type: ignore[attr-defined]
        begin = np.asarray(picture.convert("RGB"))
    half = begin.shape[1] // 2
    assert np.array_equal(begin[40:, : half - 2], begin[40:, half + 2 :]), "both begin alike"
    assert not list(ledger.path.glob(f"{WORK}*"))

    taken = export(ledger, tmp_path / "taken")
    assert (taken / "episode.gif").read_bytes() == (ledger.path / "episode.gif").read_bytes()
    assert "](episode.gif)" in (taken / "README.md").read_text()

    shown = html(ledger)
    assert "data:image/gif;base64," in shown

    stamp = (ledger.path / "episode.json").stat().st_mtime_ns
    record(ledger, SANDBOX.level)
    assert (ledger.path / "episode.json").stat().st_mtime_ns == stamp, "it was there"
    shutil.rmtree(ledger.place(1).out)  # as `prune` does
    record(ledger, SANDBOX.level)
    assert (ledger.path / "episode.json").stat().st_mtime_ns == stamp and html(ledger) == shown


KILLED = """
import sys
from tasks.recording.episode import record
from tasks.store.ledger import Ledger
ledger = Ledger.open("night")
record(ledger, ledger.history()[1], sys.argv[1])
"""


def test_a_kill_while_it_records_leaves_no_process_and_no_half_file_and_a_fault_becomes_the_reason(
    tmp_path: Path, home: Path
) -> None:
    ledger = cart(tmp_path, "time.sleep(600)")
    engine = subprocess.Popen([sys.executable, "-c", KILLED, SANDBOX.level], cwd=Path(__file__).parents[2])
    name = f"{ledger.campaign.campaign_id}/recording"
    wait_for(lambda: [*ledger.path.glob(f"{WORK}*/baseline/judge.txt")])
    engine.send_signal(signal.SIGKILL)
    engine.wait()

    wait_for(lambda: not marked(name))
    assert not list(ledger.path.glob("episode.*"))

    (ledger.place(0).out / "policy.json").write_bytes(b"not what was judged")
    record(ledger, SANDBOX.level)
    assert not list(ledger.path.glob(f"{WORK}*")) and not list(ledger.path.glob("*.gif"))
    made = episode.load(ledger.path)
    assert made is not None and made["reason"].startswith("the baseline, trials/0000: out/ has changed")
    shown = html(ledger)
    assert "No episode was recorded" in shown and "What failed" in shown
