"""The edits whose speed a benchmark measures: each fits the program, and trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ppo_edits import EDITS
from benchmarks.ppo_throughput import Layout, bundled
from tasks import trainers

PPO = (Path(trainers.__path__[0]) / "ppo.py").read_text()


def test_every_edit_of_the_benchmark_fits_the_program_and_changes_it() -> None:
    texts = [edited(PPO) for edited in EDITS.values()]
    assert len(set(texts)) == len(EDITS) > 10
    for text in texts:
        compile(text, "train.py", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_every_edit_of_the_benchmark_trains_on_two_cores(name: str) -> None:
    steps, took = bundled("Pendulum-v1", 1.0, 1, Layout(8, cores=2), EDITS[name])
    assert steps >= 1024
    assert took > 0
