"""A program's environment variables, and the file that its command line names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tasks.system.orphans import ENGINE, MARKER, this_engine

PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""The engine's variables that a program may see. All others, keys above all, are withheld."""


class NotAProgram(Exception):
    """The command line names a file that is missing or not executable."""


def passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def child_environment(home: str, marker: str, python: Path) -> dict[str, str]:
    """All environment variables of a program, with its interpreter first on PATH."""
    return passed_on() | {
        "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": home,
        "TMPDIR": home,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        "SPT_NOENV": "1",  # or setproctitle overwrites the environment, and the marker with it
        MARKER: marker,
        ENGINE: this_engine(),
    }


def find_program(name: str, cwd: Path, path: str, python: Path) -> str:
    """The file to start: `python` is always its interpreter, and a file in `cwd` needs no `./`. Raises NotAProgram."""
    if name in ("python", "python3"):
        return str(python)
    found = shutil.which(name, path=path) or (str(cwd / name) if (cwd / name).is_file() else None)
    if found is None:
        remedy = "a command begins without a shell, whose words and variables take sh -c '...' or `env` before it"
        raise NotAProgram(f"no program {name!r} in {cwd} or on {path}: {remedy}")
    if not os.access(found, os.X_OK):
        raise NotAProgram(f"cannot execute {name!r}: Permission denied")
    return found
