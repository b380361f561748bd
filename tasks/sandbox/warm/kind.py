"""The kind of a program: what the process that it is forked from needs to know before any trial is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile


@dataclass(frozen=True)
class ImportsAhead:
    """What is imported before a program is known. Installed packages only: nothing of a campaign."""

    modules: tuple[str, ...] = ()
    """`module`, or `module:name` for what a package loads only when it is asked for. One that is not installed is left
    out."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of `os.environ` that a package reads while it is imported; they are gone when the program begins."""

    def __bool__(self) -> bool:
        return bool(self.modules)


FLAGS = ("-P", "-I", "-B")
"""Those of the interpreter that a template may have; one with others starts its programs cold."""


@dataclass(frozen=True)
class Kind:
    """Programs of one kind are forked from the same template, whatever their trial and their sandbox."""

    ahead: ImportsAhead
    flags: tuple[str, ...] = ()
    """Some of FLAGS."""
    pipes: bool = False
    """Whether its standard input and output are pipes to the engine."""


def kind_of(command: Sequence[str], ahead: ImportsAhead, *, pipes: bool = False) -> Kind | None:
    """The kind of a program; None for one that is started cold: nothing is imported ahead for it, or it is no Python
    script of this interpreter."""
    name, *line = command
    flags = tuple(takewhile(FLAGS.__contains__, line))
    first = line[len(flags)] if len(line) > len(flags) else ""
    is_script = first == "-c" or (first.endswith(".py") and not first.startswith("-"))
    return Kind(ahead, flags, pipes) if ahead and name in ("python", "python3") and is_script else None
