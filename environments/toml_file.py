"""Reading TOML that a person wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from environments.plugins import Refused


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises Refused: it cannot be read, or is not TOML."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as wrong:
        raise Refused(f"{path}: {wrong.strerror}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise Refused(f"{path}: not TOML: {wrong}") from wrong
