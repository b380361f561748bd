"""Importing: another tool's problem as an environment of ours. One importer per tool, one file each.

An importer is a function `read`: it maps what is of its kind to the files of an environment's folder, says of any other
place why it is not of its kind, and refuses what is and cannot be converted. It reads the original and runs nothing of
it; whoever asked writes the folder. To add one, put a file like this into the package:

    def read(place: str) -> Imported | str:
        \"\"\"A folder with a Makefile whose target `train` trains.\"\"\"
        if not (Path(place) / "Makefile").is_file():
            return "no Makefile in it"
        origin = "a Makefile"
        return Imported(name="made", origin=origin, files={FILE: environment_toml({...}, origin)})
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import tomlkit

from environments import plugins
from environments.plugins import Refused

PACKAGE = "tasks.importing"


@dataclass(frozen=True)
class Term:
    """A word of the original, and why it could not be carried, or what it became here."""

    theirs: str
    ours: str


RESULTS = Term("results.tsv", "its trials are not carried: docs/coming-from.md says how to bring them")
"""The notes of karpathy/autoresearch and what is like it."""


@dataclass(frozen=True)
class Imported:
    """An environment made from the original, and an account of the conversion."""

    name: str
    """Name of the new folder, unless another is asked for."""
    origin: str
    """What was recognised, in words: `a folder like karpathy/autoresearch`."""
    files: Mapping[str, str | Path]
    """By place in the new folder: a text, or a file of the original to copy."""
    left: tuple[Term, ...] = ()
    """What could not be carried, or became something else than one expects."""
    warnings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of `nightshift run` that fit: `("--proposer", "random")`."""


def imported(place: str) -> Imported:
    """What the importer of a folder, file or URL makes of it.

    Raises:
        Refused: nothing is there, no importer fits, or it cannot be converted.
        OSError: It cannot be read.
    """
    if "://" not in place and not any(Path(each).exists() for each in (place, place.partition("#")[0])):
        raise Refused(f"there is no {place}: give a file, a folder or the URL of a storage")
    reasons = []
    for name in plugins.names(PACKAGE):
        read: Imported | str = import_module(f"{PACKAGE}.{name}").read(place)
        if isinstance(read, Imported):
            return replace(read, left=(*read.left, RESULTS)) if Path(place, RESULTS.theirs).is_file() else read
        reasons.append(f"  {name}: {read}")
    raise Refused("\n".join([f"{place} is not recognised:", *reasons, "See docs/coming-from.md."]))


def environment_toml(keys: Mapping[str, Any], origin: str) -> str:
    """The text of an environment.toml: plain keys first, then a table for each section and parameter; None: no key."""
    ordered = sorted(keys.items(), key=lambda item: isinstance(item[1], Mapping))
    text = tomlkit.dumps({key: value for key, value in ordered if value is not None})
    return f"# Imported by `nightshift env import` from {origin}; imported.md has the account.\n\n{text}"
