"""Trials beside the baseline: they fill the slots that it needs no longer, and are decided after it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tasks.store.ledger import Ledger
from tasks.store.seeds import derive
from tasks.system import orphans
from tasks.trial import Trial
from tests.campaign.test_parallel import stored
from tests.support.noisy import DRAW, noisy
from tests.support.toy import nightshift, start, status

SEED, SECONDS = 7, 3.0
WAITS = f"import time\ntime.sleep({SECONDS})\nbonus = 0.0"
SLOW = DRAW.replace("bonus = 0.0", WAITS)
CRASHING = {derive(SEED, "train", 0, 1, part) for part in ("", "run-2", "run-3")}
"""Training seeds of the baseline's first attempt."""
UNLUCKY = DRAW.replace("bonus = 0.0", f"if config['seed'] in {CRASHING}:\n    raise SystemExit('no luck')\n{WAITS}")
TWO = ("--name", "two", "--parallel", "2", "--trials", "3", "--seed", str(SEED), "--tracking", "off")


def seconds_together(one: Trial, run: int, other: Trial) -> float:
    """For how long a trial's run and the first run of another were under way together."""
    first, second = one.runs[run], other.runs[0]
    ends = (first.started + first.wall_seconds, second.started + second.wall_seconds)
    return min(ends) - max(first.started, second.started)


@pytest.mark.slow
def test_the_first_trial_fills_the_slot_that_the_last_run_of_the_baseline_leaves_empty(
    tmp_path: Path, home: Path, server: str
) -> None:
    done = nightshift("run", str(noisy(tmp_path / "noisy", SLOW)), *TWO, server=server)
    assert done.returncode == 0, done.stderr
    baseline, first, *_ = Ledger.open("two").history()
    assert (baseline.number, first.number) == (0, 1), "the baseline is decided first"
    assert seconds_together(baseline, 2, first) > SECONDS / 2
    assert all(seconds_together(baseline, run, first) < SECONDS / 2 for run in (0, 1)), "those need both slots"
    assert (first.proposal.seen, first.proposal.pending) == (0, (0,))
    assert first.proposal.rationale == "Sobol point 1 of 4"
    assert first.verdict.evidence["champion"] == baseline.score.value, "it is compared with the whole baseline"
    assert [trial["trial"] for trial in status("two")["trials"]] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_baseline_that_crashes_ends_what_runs_beside_it_and_loses_nothing(
    tmp_path: Path, home: Path, server: str
) -> None:
    done = nightshift("run", str(noisy(tmp_path / "noisy", UNLUCKY)), *TWO, server=server)
    assert done.returncode != 0 and "the baseline crashed" in done.stdout + done.stderr
    ledger = Ledger.open("two")
    assert [trial.number for trial in ledger.history()] == [0]
    assert orphans.marked(ledger.campaign.campaign_id) == []
    before = {path: text for path, text in stored(home, "two").items() if path.endswith("proposal.json")}
    for verb in (("rerun", "two", "0"), ("resume", "two")):
        done = nightshift(*verb, server=server)
        assert done.returncode == 0, done.stderr
    now = stored(home, "two")
    assert {path: now[path] for path in before} == before, "what was proposed beside it is tried now"
    assert sorted(trial.number for trial in Ledger.open("two").history()) == [0, 1, 2, 3]


@pytest.mark.slow
def test_killed_beside_the_baseline_a_campaign_goes_on_with_the_same_trials(
    tmp_path: Path, home: Path, server: str
) -> None:
    arguments, before = ["run", str(noisy(tmp_path / "noisy", SLOW)), *TWO], dict[str, str]()
    for begun in ("trials/0001/proposal.json", "trials/0001/out/model.json", "trials/0000/trial.json"):
        process = start(*arguments, server=server)
        while process.poll() is None and not (home / "two" / begun).is_file():
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        now = stored(home, "two")
        assert {path: now[path] for path in before} == before
        arguments, before = ["resume", "two"], now
    done = nightshift("resume", "two", server=server)
    assert done.returncode == 0, done.stderr
    now, ledger = stored(home, "two"), Ledger.open("two")
    assert {path: now[path] for path in before} == before
    history = ledger.history()
    assert (history[0].number, history[0].settle) == (0, 0)
    assert sorted(trial.number for trial in history) == [0, 1, 2, 3], "none lost, none doubled"
    (first,) = (trial for trial in history if trial.number == 1)
    assert first.proposal.seen == 0, "the trial that was proposed beside the baseline"
    assert orphans.marked(ledger.campaign.campaign_id) == []
