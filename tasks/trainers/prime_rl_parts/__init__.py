"""The parts of prime_rl.py: a copy of this folder lies beside train.py in a workspace, under the same name.

They import none of our packages, and each other by this name alone.
"""

from __future__ import annotations


class Failed(Exception):
    """There will be no model; the message is the reason.

    `retry`: it is the machine's fault. `unsure`: or that of the settings, if it comes again and again.
    """

    def __init__(self, reason: str, retry: bool = False, unsure: bool = False) -> None:
        super().__init__(reason)
        self.retry, self.unsure = retry, unsure


class Cancelled(Exception):
    """The result is no longer wanted."""
