"""Reading YAML that another tool's users wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import _repository as repository

MOST_BYTES, MOST_VALUES = 2**20, 10_000


def read(path: Path) -> object:
    """The content of a YAML file; tags that make objects are not obeyed.

    Raises:
        Refused: it is not YAML, too large for a configuration, or cannot be read.
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    text = repository.read_text(path, MOST_BYTES)
    try:
        content: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        raise Refused(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
    if _count(content) > MOST_VALUES:
        raise Refused(f"{path} holds more than {MOST_VALUES} values, repeated ones counted: it is no configuration")
    return content


def _count(content: object) -> int:
    """The number of values, up to a little more than allowed: an alias may repeat a value, or hold itself."""
    waiting, count = [content], 0
    while waiting and count <= MOST_VALUES:
        value, count = waiting.pop(), count + 1
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return count


def leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a nested table with their values; a list and an empty table are values."""
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{name}.")
        else:
            yield name, value
