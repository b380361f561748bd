"""The place of your objective: put the function that your study optimised here, with the modules that it imports.

A study's storage holds parameters and values, and no code. Files that this one imports go beside it, and into `program`
of environment.toml.
"""

from __future__ import annotations

from typing import Any


def objective(trial: Any) -> float:
    """Of PARAMETERS."""
    raise SystemExit("objective.py is still the placeholder of `nightshift env import`: put your objective there")
