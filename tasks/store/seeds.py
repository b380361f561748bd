"""Seeds: every random draw is derived from the campaign's seed, the trial and the purpose.

So a resumed campaign draws the same ones. A program knows its training seed, from which a 31-bit campaign seed can be
found by brute force; the judge's draws are derived from the campaign's secret key instead.
"""

from __future__ import annotations

import hashlib
from typing import Literal

Purpose = Literal["propose", "train", "search", "control", "confirm", "report", "order", "recording"]
"""A proposer sees scores of `search` units, pass or fail of `confirm` units, nothing of `report` units.
`order`: of a certificate's runs; `recording`: the episode that people see.
"""

JUDGED = ("search", "control", "confirm", "report", "recording")
"""Purposes whose seeds draw the judge's units."""


def derive(seed: int | str, purpose: Purpose, number: int, attempt: int, part: str = "") -> int:
    """The seed for one purpose: below 2**31, which every library accepts; a judge's below 2**63, not to be guessed."""
    named = f"{seed}/{purpose}/{number}/{attempt}" + (f"/{part}" if part else "")
    digest = hashlib.sha256(named.encode()).digest()
    return int.from_bytes(digest[:8]) % (2**63 if purpose in JUDGED else 2**31)
