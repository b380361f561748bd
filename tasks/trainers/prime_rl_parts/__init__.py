"""The parts of prime_rl.py: a copy of this folder stands beside train.py in a workspace, and goes by the same name.

As a trainer's they import nothing of ours, and each other by this name alone.
"""

from __future__ import annotations


class Failed(Exception):
    """There will be no model; the message is the reason, and `retry` says that it is the machine's fault."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class Cancelled(Exception):
    """Whoever started this program no longer wants its result."""
