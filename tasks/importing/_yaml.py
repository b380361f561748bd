"""Reading YAML that another tool's users wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import _repository as repository


def read(path: Path) -> object:
    """The content of a YAML file; tags that make objects are not obeyed.

    Raises:
        Refused: it is not YAML, or cannot be read.
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    try:
        return yaml.safe_load(repository.read_text(path))
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        raise Refused(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong


def leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a nested table with their values; a list and an empty table are values."""
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{name}.")
        else:
            yield name, value
