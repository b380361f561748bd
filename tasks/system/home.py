"""The home directory, which holds the campaigns, and the checkout."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def home_path() -> Path:
    """NIGHTSHIFT_HOME, else `runs/` in the checkout. Nothing is created."""
    stated = os.environ.get("NIGHTSHIFT_HOME")
    return Path(stated).expanduser().absolute() if stated else CHECKOUT / "runs"


def home() -> Path:
    """The home directory, created with mode 0700 if it is missing."""
    path = home_path()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
