"""Nights with prime-rl's stand-in: whatever goes wrong has its own reason, and nothing of it is left running.

No prime-rl, no vLLM and no GPU is here: `stand_in` has programs of the same shape, and the trainer is the real one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from tasks.evaluate import judge_run
from tasks.machine.slots import slots_of
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation, working
from tasks.store.workspace import TrialDir, baseline_files
from tasks.system import orphans
from tasks.system.slot import NOWHERE, VISIBLE, Slot
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.fake_prime_rl import Faults, goes_wrong, quality_of
from tests.support.nvml import nvml
from tests.support.prime_rl_problem import laid
from tests.support.processes import naming
from tests.support.toy import GREEDY, SANDBOX, start, status

WORKING: list[Level] = working()
WITH_SOCKETS: Level = "bwrap" if "bwrap" in WORKING else "none"
"""The strongest level here at which prime-rl's processes can talk to each other."""


def prepared(tmp_path: Path, folder: Path, **overrides: Any) -> Environment:
    """The environment, with what its recipe makes."""
    made = tmp_path / "prepared"
    if not made.exists():
        made.mkdir()
        subprocess.run([sys.executable, folder / "prepare.py", made], check=True)
    return environments.load(folder, overrides).model_copy(update={"prepared": made})


def train(
    tmp_path: Path, environment: Environment, level: Level = WITH_SOCKETS, slot: Slot = NOWHERE, **params: float
) -> Run:
    """A training run as a campaign has it, as trial 7."""
    program = tmp_path / "program"
    for source, name in baseline_files(environment):
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_bytes(source.read_bytes())
    place, proposal = TrialDir(tmp_path / "trials/0007"), Proposal(environment.complete(params))
    marker, isolation = f"test/{tmp_path.name}", Isolation(level)
    return run_program(marker, environment, isolation, program, place, proposal, seed=7, slot=slot)


def test_a_training_by_the_stand_in_is_a_model_that_is_judged(tmp_path: Path) -> None:
    folder, _ = laid(tmp_path, Faults())
    environment = prepared(tmp_path, folder)
    run = train(tmp_path, environment, learning_rate=3e-5)
    assert (run.status, run.error, run.steps) == ("finished", None, 6)
    assert run.reported is not None and run.curve, "the reward is followed"
    place = TrialDir(tmp_path / "trials/0007")
    assert (place.out / "model/tokenizer.json").is_file()
    assert quality_of(place.out / "model/model.safetensors") > 0.5, "0.03 a step above 0.4"
    score = judge_run("test/judge", environment, SANDBOX, place, run, seed=8)
    assert score.error is None and score.value is not None and score.value > 0.4
    assert naming(tmp_path) == []


@pytest.mark.slow
def test_in_a_slot_of_two_gpus_the_first_serves_and_the_second_trains(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = laid(tmp_path)
    nvml(monkeypatch, ["GPU-aaaa", "GPU-bbbb"])
    monkeypatch.delenv(VISIBLE, raising=False)
    environment = prepared(tmp_path, folder, device="cuda", gpus=2)
    with slots_of(environment, home).hold() as slot:
        assert slot.name == "gpu-0-1" and len(slot.gpus) == 2
        run = train(tmp_path, environment, slot=slot)
    assert (run.status, run.error) == ("finished", None)
    said = (tmp_path / "trials/0007/out/prime_rl/rl.log").read_text()
    assert "inference on GPU(s) 0" in said and "trainer on GPU(s) 1" in said


FAULTS = {2: "out of memory", 3: "nan", 4: "stalls", 5: "GPU taken", 6: "hangs at start", 7: "refused"}
"""What goes wrong in the night, by trial."""
REASONS = {
    2: "out of GPU memory: ", 3: "diverged: the loss of step 3 is no finite number", 4: "stalled: ",
    6: "did not start: no answer", 7: "refused: ",
}  # fmt: skip
"""How the reasons begin of those that crash for it; the machine's faults are put right (5)."""


def mended(home: Path, checkout: Path, faults: Faults, trials: tuple[int, ...]) -> threading.Thread:
    """Somebody who puts a fault of the machine right as soon as a trial has failed for it."""

    def watch() -> None:
        now = faults
        for number in trials:
            told = home / f"night/trials/{number:04d}/out/progress.jsonl"
            while not (told.is_file() and '"retry": true' in told.read_text()):
                time.sleep(0.1)
            now = replace(now, trials={key: mode for key, mode in now.trials.items() if key != number})
            goes_wrong(checkout, now)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def found(home: Path, name: str) -> dict[int, dict[str, Any]]:
    """The trials of a campaign as its ledger has them, by number."""
    files = sorted((home / name / "trials").glob("[0-9][0-9][0-9][0-9]/trial.json"))
    return {trial["number"]: trial for trial in (json.loads(path.read_text()) for path in files)}


def night(folder: Path, name: str, server: str, trials: int, **more: str) -> subprocess.Popen[str]:
    options = ["--trials", str(trials), "--proposer", "random_search", "--cancel", "none", "--tracking", "off"]
    options += GREEDY
    return start("run", str(folder), "--name", name, "--trust", *options, server=server, **more)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_night_with_every_fault_ends_with_every_reason_right(tmp_path: Path, home: Path, server: str) -> None:
    faults = Faults(trials=FAULTS)
    folder, checkout = laid(tmp_path, faults, start=40, stall=8)
    watch = mended(home, checkout, faults, (5,))
    with night(folder, "night", server, 9) as process:
        said, _ = process.communicate()
    assert process.returncode == 0, said
    watch.join(10)
    assert not watch.is_alive(), "the faults of the machine were met, and tried again"

    trials = found(home, "night")
    assert list(trials) == list(range(10))
    reasons = {number: trial["runs"][0]["error"] or "" for number, trial in trials.items()}
    crashed = {number for number, trial in trials.items() if trial["verdict"]["kind"] == "crash"}
    assert crashed == set(REASONS), reasons
    said = {number: reasons[number].removeprefix("said: ") for number in REASONS}
    wrong = {number: words for number, words in said.items() if not words.startswith(REASONS[number])}
    assert not wrong
    assert "after step 3" in reasons[4] and "CUDA out of memory" in reasons[2]
    scores = {number: trial["score"]["value"] for number, trial in trials.items() if number not in crashed}
    assert max(scores.values()) > scores[0] + 0.02, "there is something to find"
    assert naming(tmp_path) == [] and orphans.marked(status("night")["campaign_id"]) == []
