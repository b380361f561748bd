"""A person who has granted what an environment needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import environments
from environments.space import Value
from flows.spec import permissions


def trusted(folder: Path, overrides: Mapping[str, Value] | None = None) -> Path:
    """The folder, with everything granted that it needs now."""
    permissions.grant(folder, permissions.needed(environments.load(folder, overrides)))
    return folder
