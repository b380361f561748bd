"""Uses of report questions, recorded beside an environment's prepared files, across campaigns and recipes.

A finite pool of questions wears out: repeated certificates on it find what is lucky there. So the certificates of all
campaigns on a pool share one error rate, ALPHA, for as long as it exists. The j-th use gets ALPHA / (j (j + 1)), which
sum to ALPHA over any number of uses, and a use that passed hands its level on to the next (fallback procedure: Wiens
and Dmitrienko, 2005; Tian and Ramdas, 2021). So a pool on which gains are found lasts, and one on which nothing is
found is worn out after about ten uses.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from environments.recipe import JUDGE
from tasks.system.files import append_line, read_lines

ALPHA = 0.05
"""Probability that a certificate passes without a gain, for all uses of a pool together."""


@dataclass(frozen=True)
class HoldoutUse:
    campaign: str
    """The campaign's id."""
    look: int
    """The campaign's analysis, from 1."""
    time: float
    """Start of the use, in Unix seconds."""
    level: float
    """The highest level at which it may be tested."""
    passed: bool | None = None
    """None while it is not over."""

    @property
    def key(self) -> tuple[str, int]:
        return self.campaign, self.look


def path_of(prepared: Path) -> Path:
    """The account of the prepared questions: by what they are, since another recipe may make the same."""
    questions = (prepared / JUDGE / "report.jsonl").read_bytes()
    return prepared.with_name(f"report-{hashlib.sha256(questions).hexdigest()[:16]}.looks.jsonl")


def uses(prepared: Path) -> tuple[HoldoutUse, ...]:
    """Every use so far, in the order in which they began; a line cut short by a kill is left out."""
    every = [HoldoutUse(**fields) for fields in read_lines(path_of(prepared))]
    return tuple({use.key: use for use in every}.values())  # a later line of the same use has its outcome


def pool_level(earlier: Sequence[HoldoutUse]) -> float:
    """The highest level of the next use after these."""
    number = len(earlier) + 1
    handed_on = earlier[-1].level if earlier and earlier[-1].passed else 0.0
    return ALPHA / (number * (number + 1)) + handed_on


def place_of(prepared: Path, campaign: str, look: int) -> tuple[int, float]:
    """How many uses are before one, and its level: as recorded, or as it would be now."""
    known = uses(prepared)
    at = next((at for at, use in enumerate(known) if use.key == (campaign, look)), len(known))
    return at, known[at].level if at < len(known) else pool_level(known)


def charge(prepared: Path, campaign: str, look: int) -> tuple[int, float]:
    """Record a use, unless it is recorded; its place."""
    with FileLock(path_of(prepared).with_suffix(".lock")):
        before, level = place_of(prepared, campaign, look)
        if before == len(uses(prepared)):
            _note(prepared, HoldoutUse(campaign, look, round(time.time(), 3), level))
        return before, level


def conclude(prepared: Path, campaign: str, look: int, passed: bool) -> None:
    """Record the outcome of a charged use, unless it is recorded."""
    with FileLock(path_of(prepared).with_suffix(".lock")):
        use = next(use for use in uses(prepared) if use.key == (campaign, look))
        if use.passed is None:
            _note(prepared, replace(use, passed=passed))


def _note(prepared: Path, use: HoldoutUse) -> None:
    append_line(path_of(prepared), json.dumps(asdict(use)))
