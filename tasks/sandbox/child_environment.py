"""What a program is handed at its start: its variables, and the file that its command line names."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tasks.system.orphans import MARKER

PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""Variables of the engine that a program may see. Everything else, keys above all, stays here."""


class NotAProgram(Exception):
    """What the command line names is not there, or cannot be executed: the fault of whoever wrote the line."""


def child_environment(home: str, marker: str) -> dict[str, str]:
    """All that a program sees of the environment: an allow-list, with this interpreter first on PATH."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": home,
        "TMPDIR": home,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "SPT_NOENV": "1",  # or setproctitle overwrites what the marker is found in
        MARKER: marker,
    }


def find_program(name: str, cwd: Path, path: str) -> str:
    """The file to start: `python` is this interpreter, whatever else is on PATH; a file in `cwd` may go without ./.

    Raises:
        NotAProgram: there is none of that name.
    """
    if name in ("python", "python3"):
        return sys.executable
    found = shutil.which(name, path=path) or (str(cwd / name) if (cwd / name).is_file() else None)
    if found is None:
        raise NotAProgram(f"no program {name!r} in {cwd} or on {path}")
    if not os.access(found, os.X_OK):
        raise NotAProgram(f"cannot execute {name!r}: Permission denied")
    return found
