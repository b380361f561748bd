"""The Python that programs are started with: Nightshift's own, or one of the user's (`python` in environment.toml).

What it needs is read from its files; it is not run for that.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from environments.plugins import Refused
from tasks.system.home import CODE, home_path
from tasks.system.secret_places import secret_place

PARTS = (
    "bin", "conda-meta", "etc", "include", "lib", "lib32", "lib64", "libexec", "share", "ssl", "pyvenv.cfg",
)  # fmt: skip
"""Parts of a prefix that a program may read: a virtual environment's folder may hold other things."""
MAPPING = re.compile(r"^MAPPING\b[^=]*= *(\{.*\})", re.MULTILINE)
"""Where setuptools' import hook of an editable package has its folders."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and where its packages are."""

    executable: Path
    prefixes: tuple[Path, ...]
    """Its own, and that of the Python that its virtual environment was made from."""

    @property
    def parts(self) -> list[Path]:
        """What a program of it has to read, besides what lies below /usr."""
        return _parts(self.prefixes)

    @property
    def editable(self) -> tuple[Path, ...]:
        """Folders of packages that are installed in editable mode, as far as programs may read them.

        Nightshift's own code and home are not given to anybody, nor places with keys.
        """
        return tuple(path for path in _editable(self.prefixes) if not hidden_because(path))

    def editable_folder(self, module: str) -> Path | None:
        """The folder in which one of its editable packages has a module; None if none has it."""
        for folder in _editable(self.prefixes):
            if folder.name == module or (folder / module).is_dir() or (folder / f"{module}.py").is_file():
                return folder
        return None


OWN = Interpreter(
    Path(sys.executable), tuple(map(Path, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)))
)


def interpreter_of(python: str) -> Interpreter:
    """The interpreter that `python` of environment.toml names: a virtual environment, a prefix or an executable.

    Raises:
        Refused: there is none.
    """
    if not python:
        return OWN
    path = Path(python).expanduser()
    if not path.is_absolute():
        raise Refused(f"python = {python!r}: give an absolute path, since an environment is copied when it is frozen")
    executable = path / "bin/python" if path.is_dir() else path
    if not executable.is_file():
        raise Refused(f"python = {python!r}: there is no {executable}: name a virtual environment or an interpreter")
    prefix = executable.parent.parent
    home = re.search(r"^home\s*=\s*(.+?)\s*$", _text(prefix / "pyvenv.cfg"), re.MULTILINE)
    base = Path(home[1]).parent if home else executable.resolve().parent.parent
    return Interpreter(executable, tuple(dict.fromkeys((prefix, base))))


def hidden_because(path: Path) -> str:
    """Why programs may not read a folder of an editable package; empty if they may."""
    real = path.resolve()
    for place, what in ((CODE.resolve(), "Nightshift's own code"), (home_path().resolve(), "the home of campaigns")):
        if place.is_relative_to(real) or real.is_relative_to(place):
            return f"one of it and {what} contains the other"
    secret = secret_place(real)
    return f"it shows {secret}, where keys are kept" if secret else ""


@cache
def _parts(prefixes: tuple[Path, ...]) -> list[Path]:
    each = dict.fromkeys(path for prefix in prefixes for path in (prefix, prefix.resolve()))
    parts = [prefix / part for prefix in each for part in PARTS]
    return [part for part in parts if part.exists() and not part.is_relative_to("/usr")]


@cache
def _editable(prefixes: tuple[Path, ...]) -> tuple[Path, ...]:
    """Folders that the .pth files and import hooks of its packages name."""
    found: dict[Path, None] = {}
    for packages in [path for prefix in prefixes for path in prefix.glob("lib/python3*/site-packages")]:
        for file in sorted(packages.glob("*.pth")):
            found |= dict.fromkeys(Path(line) for line in _text(file).splitlines() if line.startswith("/"))
        for file in sorted(packages.glob("__editable__*.py")):
            found |= dict.fromkeys(_mapped(file))
    return tuple(path for path in found if path.exists())


def _mapped(hook: Path) -> Iterator[Path]:
    if mapping := MAPPING.search(_text(hook)):
        yield from map(Path, ast.literal_eval(mapping[1]).values())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
