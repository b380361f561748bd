"""Another tool's files: read and copied, never run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from environments import NOT_FROZEN
from environments.plugins import Refused
from tasks.importing import Term

REPOSITORY = "repository"
"""Folder of the original's files in the new environment."""
LARGEST_BYTES = 32 * 2**20
PASSED_OVER = frozenset({*NOT_FROZEN, "wandb", "node_modules", "venv"})
UP = 4
"""Folders above a configuration in which the files that it names are looked for."""
NOT_COPIED = (
    f"not copied: a link out of the folder, or more than {LARGEST_BYTES // 2**20} MiB: what the program needs of it "
    "goes under readable, by the original's path"
)
T = TypeVar("T")


def read_text(path: Path) -> str:
    """A file as text. Refused if it is not one."""
    try:
        return path.read_text("utf-8-sig")  # as Python and YAML do, without the mark that some editors put first
    except UnicodeDecodeError as wrong:
        raise Refused(f"{path} is not written in UTF-8 ({wrong.reason} at byte {wrong.start})") from wrong


class Table:
    """A configuration of another tool, which knows what of it was read: the rest is not carried."""

    def __init__(self, content: dict[str, Any], path: Path) -> None:
        self.content, self.path = content, path
        self._read: set[str] = set()

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value of a dotted key; None where there is none. Refused if it is of another kind (`object`: any)."""
        value: Any = self.content
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        self._read.add(key)
        value = float(value) if kind is float and type(value) is int else value
        if value is not None and kind not in (object, type(value)):
            raise Refused(f"{self.path}: {key}: must be of the type {kind.__name__}, got {value!r}")
        return value  # type: ignore[no-any-return]

    def unread(self) -> list[str]:
        """The dotted keys that nobody has asked for, of those below a key that was read none."""
        above = tuple(f"{key}." for key in self._read)
        return [key for key, _ in flat(self.content) if not f"{key}.".startswith(above)]


def flat(table: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables. An empty table is a value, and so is one whose keys are no words."""
    for name, value in table.items():
        if isinstance(value, dict) and value and all(re.fullmatch(r"\w+", str(inner)) for inner in value):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def yaml_table(path: Path, *required: str) -> Table | str:
    """A YAML file with these keys at its top, or why it is none. Tags that make objects are not obeyed."""
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return "no YAML file"
    try:
        content = yaml.safe_load(read_text(path))
    except yaml.YAMLError as wrong:
        return f"{path} is not YAML: {' '.join(str(wrong).split())}"
    missing = [key for key in required if key not in content] if isinstance(content, dict) else ["table"]
    return f"{path.name} has no {', no '.join(missing)} at its top" if missing else Table(content, path)


def folder_with(names: Iterable[str], below: Path) -> Path:
    """The nearest folder above a file that has all of these: from there the original tool was started.

    Raises:
        Refused: there is none, or a name leads out of it, so that strange files would be copied.
    """
    wanted = [*names]
    for name in wanted:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise Refused(f"{below}: {name!r} leads elsewhere: state it from the folder that the original starts in")
    for folder in list(below.resolve().parents)[:UP]:
        if all((folder / name).exists() for name in wanted):
            return folder
    raise Refused(f"{below}: none of the {UP} folders above it has {' and '.join(wanted)}: correct the names")


def repository_files(folder: Path) -> tuple[dict[str, str | Path], list[Term]]:
    """The files that a program may read, by place in the new environment, and those that are left out."""
    files: dict[str, str | Path] = {}
    left: list[str] = []
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if PASSED_OVER & {*name.parts} or any(part.startswith(".") for part in name.parts):
            continue
        if not path.resolve().is_relative_to(root) or (path.is_file() and path.stat().st_size > LARGEST_BYTES):
            left.append(str(name))
        elif path.is_file():
            files[f"{REPOSITORY}/{name.as_posix()}"] = path
    return files, [Term(", ".join(left), NOT_COPIED)] if left else []
