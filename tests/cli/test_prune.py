"""Prune: what is large goes, what says what happened stays, and a campaign goes on as if nothing had."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.machine import free, prune
from flows.engine.certifying import store
from flows.status import document
from tasks.record import reconcile, record
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.tracking import sync
from tasks.tracking.trial_run import trial_key
from tasks.trial import History
from tests.support.histories import certified, tried
from tests.support.ledgers import created
from tests.support.toy import GREEDY, nightshift, quadratic, status

BLOCK = 64 * 1024
"""Bytes of each file that a run leaves."""


def fill(path: Path) -> None:
    """What a run leaves in its directory, and a kill besides."""
    place = TrialDir(path)
    for file in (place.out / "deep/model.bin", place.workspace / "train.py", place.judged / "copy.bin"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * BLOCK)
    for file, text in ((place.progress, '{"ready": true}\n'), (place.config, "{}"), (place.result, "{}")):
        file.write_text(text)
    (path / "log.txt.tmp").mkdir()
    (path / "log.txt.tmp/scratch").write_bytes(b"x" * BLOCK)
    place.log.write_text("said\n")


def night(ledger: Ledger, sent: bool = True) -> History:
    """A baseline, three that were kept one after another, and one that was not; all with what they left."""
    history = reconcile(ledger)
    for value in (1.0, 2.0, 3.0, 4.0, 0.0):
        trial = tried(history, value, reruns=((4, 0.1),) if value == 0.0 else ())
        fill(ledger.place(trial.number).path)
        history = record(ledger, history, trial)
    runs = {trial_key(ledger, trial): "a" * 32 for trial in history if sent}
    (ledger.path / sync.FILE).write_text(json.dumps({"store": "mlflow.db", "runs": runs, "state": "stopped"}))
    return history


def large(path: Path) -> bool:
    """Whether a run's directory holds what a checkpoint or a program is."""
    return any(file.is_file() and file.stat().st_size >= BLOCK for file in path.rglob("*"))


def test_the_champion_and_the_baseline_stay_and_of_others_what_tells_of_them(ledger: Ledger) -> None:
    night(ledger)
    before, would = document(ledger), free(ledger, dry=True)
    assert all(large(ledger.place(number).path) for number in range(5))
    done = free(ledger, dry=False)
    assert done == would
    freed, kept, unsent = done
    assert (kept, unsent) == ([0, 3], []) and freed >= 3 * 4 * BLOCK
    assert [large(ledger.place(number).path) for number in range(5)] == [True, False, False, True, False]
    place = ledger.place(1)
    left = {path.relative_to(place.path).as_posix() for path in place.path.rglob("*") if path.is_file()}
    assert left >= {"out/progress.jsonl", "workspace/config.json", "judged/result.json", "log.txt", "diff.patch"}
    assert place.trial.is_file() and document(ledger) == before
    assert reconcile(ledger) == ledger.history() and len(ledger.history()) == 5
    assert free(ledger, dry=False)[0] == 0, "there is nothing left to free"


def test_what_passed_a_certificate_stays_and_the_runs_that_proved_it_go(ledger: Ledger) -> None:
    night(ledger)
    folder = ledger.path / "certificates"
    passed = certified(2, (9.0, 9.1, 9.2, 9.3), (1.0, 1.1, 1.2, 1.3))
    assert passed.passed
    store(ledger, passed)
    fill(folder / "1-0002-champion-1")
    fill(folder / "2-0003-champion-1")
    assert free(ledger, dry=False)[1] == [0, 2, 3]
    assert not large(folder / "1-0002-champion-1")
    assert large(folder / "2-0003-champion-1"), "a look that is under way is not touched"

    store(ledger, certified(2, (9.0, 9.1), (1.0, 1.1), on="lander[1]"))
    for run in ("1-on-lander[1]-0002-baseline-1", "1-on-lander[1]-2-0002-champion-1"):
        fill(folder / run)
    free(ledger, dry=False)
    assert not large(folder / "1-on-lander[1]-0002-baseline-1")
    assert large(folder / "1-on-lander[1]-2-0002-champion-1"), "it is another environment's, lander[1]-2"


def test_what_is_not_decided_and_what_runs_is_not_touched_and_no_link_is_followed(
    ledger: Ledger, tmp_path: Path
) -> None:
    night(ledger)
    names = ("0005", "0004.2", "0004-again-1")
    for name in names:
        fill(ledger.trials / name)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis").write_bytes(b"x" * BLOCK)
    place = ledger.place(1)
    (place.out / "link").symlink_to(tmp_path / "mine")
    place.judged.rename(place.path / "aside")
    place.judged.symlink_to(tmp_path / "mine")
    with campaign_lock.hold(ledger), pytest.raises(Refused, match="is already running"):
        free(ledger, dry=False)
    free(ledger, dry=False)
    assert [large(ledger.trials / name) for name in names] == [True, True, False]
    assert (tmp_path / "mine/thesis").is_file() and not place.judged.is_symlink()
    assert not os.path.lexists(place.out / "link")


def test_what_mlflow_has_not_taken_stays(ledger: Ledger) -> None:
    night(ledger, sent=False)
    assert free(ledger, dry=False)[1:] == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert all(large(ledger.place(number).path) for number in range(5))


def test_every_campaign_that_can_be_read_and_is_not_running_is_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = created(tmp_path, "one"), created(tmp_path, "two")
    night(one), night(two)
    with campaign_lock.hold(two):
        assert prune(dry_run=True) == 0
        told = capsys.readouterr()
    assert "would free" in told.out and "of one;" in told.out and "two: left alone, it is running" in told.err
    one.place(1).trial.write_text("{")
    assert prune() == 1
    told = capsys.readouterr()
    assert "freed" in told.out and "of two;" in told.out and "of one;" not in told.out
    assert "one: left alone: " in told.err and "trial.json" in told.err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pruned_campaign_goes_on(tmp_path: Path, server: str) -> None:
    environment = quadratic(tmp_path / "quad")
    asked = ("--name", "c", "--proposer", "random_search", "--tracking", "off", "--seed", "1", *GREEDY)
    assert nightshift("run", str(environment), "--trials", "3", *asked, server=server).returncode == 0
    before = status("c")["trials"]
    done = nightshift("prune", "c")
    assert done.returncode == 0 and done.stdout.startswith("freed "), done.stderr
    further = nightshift("resume", "c", "--trials", "5", server=server)
    assert further.returncode == 0, further.stdout + further.stderr
    found = status("c")
    assert found["trials"][:4] == before and len(found["trials"]) == 6
