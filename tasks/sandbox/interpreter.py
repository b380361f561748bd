"""The Python that programs are started with: Nightshift's own, or one of the user's (`python` in environment.toml).

What it needs is read from its files; it is not run for that.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from environments import FILE
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
        each = dict.fromkeys(path for prefix in self.prefixes for path in (prefix, prefix.resolve()))
        parts = [prefix / part for prefix in each for part in PARTS]
        return [part for part in parts if part.exists() and not part.is_relative_to("/usr")]

    @property
    def editable(self) -> tuple[Path, ...]:
        """The packages that are installed in editable mode, not what lies beside them, as far as programs may read
        them: not our own code and home, places with keys, or a package with an environment and its judge in it.
        """
        return _editable(self.prefixes, home_path())

    def listed(self, packages: Collection[Path]) -> list[Path]:
        """The folders that Python must list to find these packages, as far as programs may know the names in them."""
        folders = dict.fromkeys(path.parent for path in self.editable if path in packages)
        return [folder for folder in folders if not _is_ours_or_secret(folder)]


OWN = Interpreter(
    Path(sys.executable), tuple(map(Path, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)))
)


def interpreter_of(python: str) -> Interpreter:
    """The interpreter that `python` of environment.toml names: a virtual environment, a prefix or an executable.

    Raises Refused: there is none.
    """
    if not python:
        return OWN
    path = Path(python).expanduser()
    executable = path / "bin/python" if path.is_dir() else path
    if not path.is_absolute() or not executable.is_file():
        raise Refused(f"python = {python!r}: give the absolute path of a virtual environment or an interpreter")
    prefix = executable.parent.parent
    home = re.search(r"^home\s*=\s*(.+?)\s*$", _text(prefix / "pyvenv.cfg"), re.MULTILINE)
    base = Path(home[1]).parent if home else executable.resolve().parent.parent
    return Interpreter(executable, tuple(dict.fromkeys((prefix, base))))


def is_hidden(path: Path) -> bool:
    """Whether programs may not read a folder of an editable package."""
    return _is_ours_or_secret(path) or any(path.resolve().rglob(FILE))


def _is_ours_or_secret(path: Path) -> bool:
    real = path.resolve()
    ours = (CODE.resolve(), home_path().resolve())
    return bool(secret_place(real)) or any(each.is_relative_to(real) or real.is_relative_to(each) for each in ours)


@cache
def _editable(prefixes: tuple[Path, ...], home: Path) -> tuple[Path, ...]:
    """Those that are found by the .pth files and import hooks of its installed packages, as far as none hides them.

    It looks into every folder of them, and is asked at each start of a program. (home: ours, which is hidden)
    """
    packages: dict[Path, None] = {}
    for site in [path for prefix in prefixes for path in prefix.glob("lib/python3*/site-packages")]:
        for file in sorted(site.glob("*.pth")):
            projects = [Path(line) for line in _text(file).splitlines() if line.startswith("/")]
            packages |= dict.fromkeys(init.parent for each in projects for init in sorted(each.glob("*/__init__.py")))
        for file in sorted(site.glob("__editable__*.py")):
            if mapping := MAPPING.search(_text(file)):
                packages |= dict.fromkeys(map(Path, ast.literal_eval(mapping[1]).values()))
    found = (path if path.exists() else path.with_suffix(".py") for path in packages)
    return tuple(path for path in found if path.exists() and not is_hidden(path))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
