"""The variables of this process, read while other threads change some: a login at MLflow comes and goes with each
record (tasks/tracking/connection.py).
"""

from __future__ import annotations

import os


def variables() -> dict[str, str]:
    """A copy of `os.environ`, whose own copy raises KeyError where a variable goes meanwhile."""
    found = {name: os.environ.get(name) for name in tuple(os.environ)}
    return {name: value for name, value in found.items() if value is not None}
