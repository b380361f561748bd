"""Seeds: every random draw of a campaign comes from one seed, the trial and what the draw is for.

A trial's seeds therefore do not depend on what ran before it, so a resumed campaign draws the same ones; and the
purposes keep training, judging and proposing apart. A program knows its training seed, from which one of 31 bits is
found by trying them all: what judges draw comes from the campaign's secret key instead.
"""

from __future__ import annotations

import hashlib
from typing import Literal

Purpose = Literal["propose", "train", "search", "control", "spare", "confirm", "report", "order"]
"""`search`, `confirm` and `report` units are never the same: a proposer sees scores of the first, of the second whether
they held up, and of the third nothing. `spare`: which cancellations are spared; `order`: of a certificate's runs."""

JUDGED = ("search", "control", "confirm", "report")
"""Purposes whose seeds draw what a judge asks."""


def derive(seed: int | str, purpose: Purpose, number: int, attempt: int, part: str = "") -> int:
    """A seed for one purpose in one attempt at one trial, or in a part of that.

    Below 2**31, which every library takes; a judge's below 2**63, so that nobody finds the episodes by trying them all.
    """
    named = f"{seed}/{purpose}/{number}/{attempt}" + (f"/{part}" if part else "")
    digest = hashlib.sha256(named.encode()).digest()
    return int.from_bytes(digest[:8]) % (2**63 if purpose in JUDGED else 2**31)
