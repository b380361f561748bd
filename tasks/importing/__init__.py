"""Importing: another tool's problem as an environment of ours. One importer per tool, one file each.

An importer says whether it recognises a path, and converts it into the files of an environment's folder. It reads the
original and runs nothing of it; whoever asked writes the folder. To add one, put a file like this into the package:

    class Makefiles(Importer):
        \"\"\"A folder with a Makefile whose target `train` trains.\"\"\"

        def recognise(self, place: str) -> Recognised:
            file = Path(place) / "Makefile"
            return Recognised(file.is_file(), f"{file} is {'there' if file.is_file() else 'missing'}")

        def convert(self, place: str) -> Imported:
            return Imported(name="made", origin="a Makefile", files={FILE: environment_toml({...})})
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from environments import earlier_trials, plugins
from environments.earlier_trials import EarlierTrial as EarlierTrial  # for importers
from environments.plugins import Refused

PACKAGE = "tasks.importing"
HISTORY = earlier_trials.FILE


@dataclass(frozen=True)
class Recognised:
    """Whether a place is of an importer's kind, and why."""

    fits: bool
    reason: str
    """The fact that decided: the file and key that is there, or missing."""


@dataclass(frozen=True)
class Term:
    """A word of the original: what it is called there, and what it became here, or why it could not be carried."""

    theirs: str
    ours: str


@dataclass(frozen=True)
class Imported:
    """An environment made from the original, and an account of the conversion."""

    name: str
    """Name of the new folder, unless another is asked for."""
    origin: str
    """What was recognised, in words: `a folder like karpathy/autoresearch`."""
    files: Mapping[str, str | Path]
    """By place in the new folder: a text, or a file of the original to copy."""
    carried: tuple[Term, ...] = ()
    left: tuple[Term, ...] = ()
    """What could not be carried; `ours` says why."""
    warnings: tuple[str, ...] = ()
    history: tuple[EarlierTrial, ...] = ()
    """Written to `HISTORY`, a line per trial, where there are any."""
    options: tuple[str, ...] = field(default=())
    """Options of `nightshift run` that fit: `("--proposer", "random")`."""


class Importer(ABC):
    """A tool whose problems can be imported. Its docstring says what it reads, in a line."""

    @abstractmethod
    def recognise(self, place: str) -> Recognised:
        """Whether `place` (a folder, a file or a URL) is of this kind. Fast, and without running anything of it."""

    @abstractmethod
    def convert(self, place: str) -> Imported:
        """The environment. Only asked where `recognise` fits.

        Raises:
            Refused: it is of this kind and cannot be converted; fact, value and remedy.
        """


def importers() -> dict[str, Importer]:
    """The importers, by name."""
    return {name: plugins.load(PACKAGE, name, Importer)() for name in plugins.names(PACKAGE)}  # type: ignore[type-abstract]


def imported(place: str, source: str = "") -> tuple[str, Imported]:
    """The importer that recognises `place`, by name, and what it makes of it.

    Args:
        place: A folder, a file or a URL.
        source: The importer to take where several fit; empty: the only one.

    Raises:
        Refused: nothing is there; no importer or several recognise it, with each one's reason; or it cannot be
            converted.
    """
    try:
        return _imported(place, source)
    except OSError as fault:
        name = fault.filename or place
        raise Refused(f"{name} cannot be read ({fault.strerror}): give a copy that you may read") from fault


def _imported(place: str, source: str) -> tuple[str, Imported]:
    known = importers()
    if re.match(r"(https?|git|ssh)://|git@", place):
        raise Refused(f"{place} is an address, and nothing is downloaded: git clone it, and import what lies there")
    if "://" not in place and not any(Path(each).exists() for each in (place, place.partition("#")[0])):
        raise Refused(f"there is no {place}: give a file, a folder or the URL of a storage")
    if source:
        plugins.require(source, known, "source")
        known = {source: known[source]}
    looked = {name: known[name].recognise(place) for name in known}
    fitting = [name for name, found in looked.items() if found.fits]
    if not fitting:
        raise Refused(f"{place} is not recognised:\n{_reasons(looked, looked)}\nSee docs/coming-from.md.")
    if len(fitting) > 1:
        raise Refused(
            f"{place} can be read in several ways: choose one with --source NAME:\n{_reasons(looked, fitting)}"
        )
    return fitting[0], known[fitting[0]].convert(place)


def _reasons(looked: Mapping[str, Recognised], names: Iterable[str]) -> str:
    return "\n".join(f"  {name}: {looked[name].reason}" for name in names)


def environment_toml(keys: Mapping[str, Any], comment: str = "") -> str:
    """The text of an environment.toml: plain keys first, then a table for each section and parameter."""
    document = tomlkit.document()
    for line in comment.splitlines():
        document.add(tomlkit.comment(line))
    plain = {key: value for key, value in keys.items() if not isinstance(value, Mapping)}
    for key, value in plain.items():
        document.add(key, tomlkit.item(value))
    for key, value in keys.items():
        if key not in plain:
            document.add(tomlkit.nl())
            document.add(key, tomlkit.item(dict(value)))
    return tomlkit.dumps(document)
