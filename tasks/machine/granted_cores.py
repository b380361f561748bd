"""How many cores of this machine a slot grants to the programs of an environment."""

from __future__ import annotations

from environments import Environment


def granted_cores(environment: Environment) -> int:
    """One core each."""
    return 1
