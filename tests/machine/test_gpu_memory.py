"""The memory of GPUs while a program runs, through the seam that NVML stands behind: no GPU and no driver is needed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

import environments
from tasks import train
from tasks.machine import gpu_memory
from tasks.machine.gpu_memory import Reader, Sampler, nvml
from tasks.store.workspace import TRIAL, TrialDir
from tasks.system.slot import NOWHERE, Slot
from tasks.tracking.client import CampaignRecord
from tasks.tracking.trial_run import trial_scalars
from tasks.trial import Proposal, Trial
from tests.support.histories import tried
from tests.support.toy import FIT, SANDBOX, quadratic

PAIR = ("GPU-bbbb", "GPU-aaaa")
GIB = 2**30


class Driver:
    """A machine of two GPUs, of which each look sees the next of some amounts; after the last it is asked in vain."""

    def __init__(self, *amounts: tuple[int, int]) -> None:
        self.left, self.seen = list(amounts), Event()
        self.asked: tuple[str, ...] = ()

    def find(self, uuids: Sequence[str]) -> Reader:
        self.asked = tuple(uuids)
        return self.read

    def read(self) -> tuple[int, ...]:
        if not self.left:
            self.seen.set()
            raise OSError("NVML: GPU is lost")
        return self.left.pop(0)


def test_the_most_of_each_gpu_is_kept_in_the_slots_order() -> None:
    driver = Driver((1, 20), (3, 10), (2, 15))
    with Sampler(PAIR, driver.find, seconds=0) as sampler:
        assert driver.seen.wait(60)
    assert sampler.peaks == (3, 20)
    assert driver.asked == PAIR


def test_a_driver_that_hangs_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "END_SECONDS", 0.0)
    answer, asked = Event(), Event()

    def read() -> tuple[int, ...]:
        asked.set()
        answer.wait(60)
        return (1, 1)

    with Sampler(PAIR, lambda _: read) as sampler:
        assert asked.wait(60)
    assert sampler.peaks is None
    answer.set()


def test_without_the_package_or_without_gpus_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert nvml(PAIR) is None
    with Sampler(PAIR) as absent, Sampler(()) as none:
        pass
    assert absent.peaks is none.peaks is None


def library(known: Sequence[str], fails: bool = False) -> SimpleNamespace:
    """What `pynvml` is to us: GPUs by UUID, and bytes in use."""

    class NVMLError(Exception):
        pass

    def handle(uuid: str) -> int:
        if uuid not in known:
            raise NVMLError("Not Found")
        return known.index(uuid)

    def init() -> None:
        if fails:
            raise NVMLError("Driver Not Loaded")

    def memory(handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 * GIB, used=(handle + 1) * GIB)

    return SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=init, nvmlDeviceGetHandleByUUID=handle, nvmlDeviceGetMemoryInfo=memory
    )


def test_nvml_is_asked_by_uuid_since_numbers_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(["GPU-aaaa", "GPU-bbbb"]))
    read = nvml(PAIR)
    assert read is not None and read() == (2 * GIB, GIB)
    assert nvml(("GPU-cccc",)) is None
    monkeypatch.setitem(sys.modules, "pynvml", library(PAIR, fails=True))
    assert nvml(PAIR) is None


def test_a_run_tells_what_the_gpus_of_its_slot_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver((GIB, 2 * GIB), (5 * GIB, GIB))
    monkeypatch.setattr(train, "Sampler", lambda uuids: Sampler(uuids, driver.find, seconds=0))
    environment = environments.load(quadratic(tmp_path / "env", fit="import time\ntime.sleep(0.3)\n" + FIT))
    for name, slot, peaks in [("gpus", Slot("gpu-1-0", PAIR), (5 * GIB, 2 * GIB)), ("cpu", NOWHERE, None)]:
        place = TrialDir(tmp_path / name)
        run = train.run_program(
            "test/gpu", environment, SANDBOX, quadratic(tmp_path / "program"), place, Proposal({"x": 1.0}), seed=7,
            slot=slot,
        )  # fmt: skip
        assert (run.status, run.gpu_memory) == ("finished", peaks)


def with_peaks(*peaks: tuple[int, ...] | None) -> Trial:
    """A trial with a training run for each of these."""
    trial = tried((), *(10.0 + n for n in range(len(peaks))))
    runs = zip(trial.runs, peaks, strict=True)
    return dataclasses.replace(trial, runs=tuple(dataclasses.replace(run, gpu_memory=peak) for run, peak in runs))


def test_mlflow_is_told_the_most_of_each_gpu_over_the_runs_of_a_trial() -> None:
    campaign = CampaignRecord("night", "id", "gsm8k", "pass@1", True, None, 1_000_000_000, {})
    points = trial_scalars(campaign, with_peaks((3 * GIB, GIB), None, (2 * GIB, 4 * GIB)))
    found = {point.key: point.value for point in points if point.key.startswith("memory/gpu")}
    assert found == {"memory/gpu0_peak_gb": 3.0, "memory/gpu1_peak_gb": 4.0}
    assert not [p for p in trial_scalars(campaign, with_peaks(None)) if p.key.startswith("memory/gpu")]


def test_a_trial_of_before_is_read_as_one_that_was_not_measured() -> None:
    trial = with_peaks((GIB, GIB))
    assert TRIAL.validate_json(TRIAL.dump_json(trial)) == trial
    document = TRIAL.dump_python(trial, mode="json")
    del document["runs"][0]["gpu_memory"]
    assert TRIAL.validate_python(document) == with_peaks(None)
