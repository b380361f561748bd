"""Reading YAML that another tool's users wrote."""

from __future__ import annotations

from pathlib import Path

from environments.plugins import Refused
from tasks.importing import _repository as repository

MOST_BYTES = 2**20


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
    return content
