"""Programs that are written into an imported environment, from the folder `programs`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "programs"


def program(name: str) -> str:
    """The text of one of them."""
    return (FOLDER / name).read_text("utf-8")
