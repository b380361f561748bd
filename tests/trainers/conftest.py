"""Trainers that run in the process of a test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _like_a_program_of_its_own() -> Iterator[None]:
    """With one thread of torch, as programs set for themselves; signal handlers and variables are put back."""
    before, variables = signal.getsignal(signal.SIGTERM), dict(os.environ)
    os.environ["OMP_NUM_THREADS"] = "1"  # where torch is imported later
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    yield
    signal.signal(signal.SIGTERM, before)
    os.environ.clear()
    os.environ.update(variables)
