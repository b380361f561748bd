"""The memory of GPUs while a program runs, through the module that NVML stands behind: no GPU and no driver is needed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import environments
from tasks import train
from tasks.machine.gpu_memory import GpuMemory
from tasks.store.workspace import TRIAL, TrialDir
from tasks.system.slot import NOWHERE, Slot
from tasks.tracking.trial_run import trial_points
from tasks.trial import Proposal, Trial
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.toy import FIT, SANDBOX, quadratic

PAIR = ("GPU-bbbb", "GPU-aaaa")
GIB = 2**30


def library(*amounts: tuple[int, int], fails: bool = False) -> SimpleNamespace:
    """What `pynvml` is to us: two GPUs by UUID, and bytes in use at each look; after the last they are lost."""
    left = {"GPU-aaaa": [a for a, _ in amounts], "GPU-bbbb": [b for _, b in amounts]}

    class NVMLError(Exception):
        pass

    def handle(uuid: str) -> str:
        if uuid not in left:
            raise NVMLError("Not Found")
        return uuid

    def init() -> None:
        if fails:
            raise NVMLError("Driver Not Loaded")

    def memory(uuid: str) -> SimpleNamespace:
        if not left[uuid]:
            raise NVMLError("GPU is lost")
        return SimpleNamespace(total=80 * GIB, used=left[uuid].pop(0))

    return SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=init, nvmlDeviceGetHandleByUUID=handle, nvmlDeviceGetMemoryInfo=memory
    )


def test_the_most_of_each_gpu_is_kept_in_the_slots_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library((20, 1), (10, 3), (15, 2)))
    memory = GpuMemory(PAIR)
    assert [memory.now() for _ in range(4)] == [(1, 20), (3, 10), (2, 15), ()]
    assert memory.peaks == (3, 20)


@pytest.mark.parametrize("module", [None, library(fails=True), library()])
def test_without_the_package_a_driver_or_gpus_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, module: SimpleNamespace | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)  # None: as if it were not installed
    for uuids in (PAIR, ("GPU-cccc",), ()):
        memory = GpuMemory(uuids)
        assert memory.now() == () and memory.peaks is None


def test_a_run_tells_what_the_gpus_of_its_slot_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library((2 * GIB, GIB), (GIB, 5 * GIB)))
    program = quadratic(tmp_path / "env", fit="import time\ntime.sleep(1.5)\n" + FIT)
    for name, slot, peaks in [("gpus", Slot("gpu-1-0", PAIR), (5 * GIB, 2 * GIB)), ("cpu", NOWHERE, None)]:
        place = TrialDir(tmp_path / name)
        run = train.run_program(
            "test/gpu", environments.load(program), SANDBOX, program, place, Proposal({"x": 1.0}), seed=7, slot=slot
        )  # fmt: skip
        assert (run.status, run.gpu_memory) == ("finished", peaks)


def with_peaks(*peaks: tuple[int, ...] | None) -> Trial:
    """A trial with a training run for each of these."""
    trial = tried((), *(10.0 + n for n in range(len(peaks))))
    runs = zip(trial.runs, peaks, strict=True)
    return dataclasses.replace(trial, runs=tuple(dataclasses.replace(run, gpu_memory=peak) for run, peak in runs))


def test_mlflow_is_told_the_most_of_each_gpu_over_the_runs_of_a_trial(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    points = trial_points(ledger, with_peaks((3 * GIB, GIB), None, (2 * GIB, 4 * GIB)))
    found = {point.key: point.value for point in points if point.key.startswith("memory/gpu")}
    assert found == {"memory/gpu0_peak_gb": 3.0, "memory/gpu1_peak_gb": 4.0}
    assert not [p for p in trial_points(ledger, with_peaks(None)) if p.key.startswith("memory/gpu")]


def test_a_trial_of_before_is_read_as_one_that_was_not_measured() -> None:
    trial = with_peaks((GIB, GIB))
    assert TRIAL.validate_json(TRIAL.dump_json(trial)) == trial
    document = TRIAL.dump_python(trial, mode="json")
    del document["runs"][0]["gpu_memory"]
    assert TRIAL.validate_python(document) == with_peaks(None)
