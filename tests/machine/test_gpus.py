"""GPUs as the driver shows them: which are visible, and how much of their memory was in use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

import environments
from tasks import train
from tasks.machine.gpus import Gpu, find, visible
from tasks.machine.slots import NOWHERE, Slot
from tasks.store.workspace import TrialDir
from tasks.trial import Proposal
from tests.support.nvml import nvml
from tests.support.toy import FIT, SANDBOX, quadratic

PAIR = ("GPU-bbbb", "GPU-aaaa")
FOUR = [Gpu(index, f"GPU-{letter * 4}", "NVIDIA H200") for index, letter in enumerate("abcd")]
GIB = 2**30


@pytest.mark.parametrize(
    ("stated", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"]),
        ("3, 0", ["GPU-dddd", "GPU-aaaa"]),
        ("1,9,2", ["GPU-bbbb"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("GPU-c", ["GPU-cccc"]),
        ("MIG-7,0", ["MIG-7", "GPU-aaaa"]),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(stated: str | None, uuids: list[str]) -> None:
    assert [gpu.uuid for gpu in visible(FOUR, stated)] == uuids


def test_a_gpu_that_fails_leaves_the_others_and_one_without_memory_of_its_own_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def memory(uuid: str) -> SimpleNamespace:
        if uuid == "GPU-aaaa":
            raise pynvml.NVMLError_GpuIsLost
        raise pynvml.NVMLError_NotSupported

    nvml(monkeypatch, ["GPU-aaaa", "GPU-bbbb"], memory=memory)
    (gpu,), (fault,) = find()
    assert gpu == Gpu(1, "GPU-bbbb", "NVIDIA H200") and fault.startswith("GPU 0: ")


def test_a_run_tells_what_the_gpus_of_its_slot_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"GPU-aaaa": [2 * GIB, GIB], "GPU-bbbb": [GIB, 5 * GIB]}

    def memory(uuid: str) -> SimpleNamespace:
        if not looks[uuid]:
            raise pynvml.NVMLError_GpuIsLost
        return SimpleNamespace(total=80 * GIB, used=looks[uuid].pop(0))

    nvml(monkeypatch, PAIR, memory=memory)
    program = quadratic(tmp_path / "env", fit="import time\ntime.sleep(1.5)\n" + FIT)
    for name, slot, peaks in [("gpus", Slot("gpu-1-0", PAIR), (5 * GIB, 2 * GIB)), ("cpu", NOWHERE, ())]:
        place = TrialDir(tmp_path / name)
        run = train.run_program(
            "test/gpu", environments.load(program), SANDBOX, program, place, Proposal({"x": 1.0}), seed=7, slot=slot
        )  # fmt: skip
        used = [sample.gpu_memory for sample in run.resources if sample.gpu_memory]
        assert (run.status, tuple(map(max, zip(*used, strict=True)))) == ("finished", peaks)
