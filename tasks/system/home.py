"""The home directory, which holds the campaigns, and the folder that the four packages lie in."""

from __future__ import annotations

import os
from pathlib import Path

CODE = Path(__file__).parents[2]
"""A checkout, or the `site-packages` that a wheel is installed in."""
REMEDY = "set NIGHTSHIFT_HOME to a writable folder"


def home_path() -> Path:
    """NIGHTSHIFT_HOME, else `runs/` in the checkout, else `nightshift` in the XDG data folder. Nothing is created."""
    if stated := os.environ.get("NIGHTSHIFT_HOME"):
        return Path(stated).expanduser().absolute()
    if is_checkout():
        return CODE / "runs"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # By the XDG specification a relative path is invalid, and ignored.
    return (data if data.is_absolute() else Path("~/.local/share").expanduser()) / "nightshift"


def home() -> Path:
    """The home directory, created with mode 0700 if it is missing; Refused if it cannot be."""
    path = home_path()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        from environments.plugins import Refused  # takes long to load, and is hardly ever needed

        raise Refused(f"the home {path} cannot be created ({fault.strerror}): {REMEDY}") from fault
    return path


def is_checkout() -> bool:
    """Whether the packages lie in a checkout, else they are installed."""
    return (CODE / "prefect.yaml").is_file()
