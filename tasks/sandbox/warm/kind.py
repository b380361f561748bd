"""The kind of a program: what its sandbox and its interpreter need to know before its trial is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from environments.limits import Limits
from tasks.sandbox.confinement import Level, VisiblePaths


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


@dataclass(frozen=True)
class Kind:
    """Two programs of one kind differ in their trial, their command line and their variables only."""

    level: Level
    flags: tuple[str, ...]
    """Those of the interpreter."""
    ahead: ImportsAhead
    shared: VisiblePaths
    """What it is given besides the folders of its trial."""
    own: tuple[tuple[str, bool], ...]
    """The folders of its trial, by name, and whether it may write there."""
    limits: Limits
    pipes: bool
    counted: bool

    def view(self, folder: Path) -> VisiblePaths:
        """The view of a program whose trial is in `folder`."""
        own = {may: tuple(folder / name for name, writable in self.own if writable is may) for may in (False, True)}
        shared = self.shared
        return replace(shared, readable=(*own[False], *shared.readable), writable=(*own[True], *shared.writable))


def kind_of(
    command: Sequence[str],
    ahead: ImportsAhead,
    *,
    trial: Path,
    level: Level,
    view: VisiblePaths,
    limits: Limits,
    pipes: bool = False,
    counted: bool = False,
) -> Kind | None:
    """The kind of a program of the trial in that folder; None for one that is started cold: nothing is imported ahead
    for it, or it is no Python script of this interpreter."""
    name, *line = command
    flags = ("-P",) if line[:1] == ["-P"] else ()
    first = line[len(flags)] if len(line) > len(flags) else ""
    is_script = first == "-c" or (first.endswith(".py") and not first.startswith("-"))
    if not ahead or name not in ("python", "python3") or not is_script:
        return None
    given = [(path, False) for path in view.readable] + [(path, True) for path in view.writable]
    own = tuple((path.name, writable) for path, writable in given if path.parent == trial)
    shared = replace(
        view,
        readable=tuple(path for path in view.readable if path.parent != trial),
        writable=tuple(path for path in view.writable if path.parent != trial),
    )
    return Kind(level, flags, ahead, shared, own, limits, pipes, counted)
