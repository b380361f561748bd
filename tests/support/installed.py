"""Nightshift as a wheel, built from this tree, and an environment that has it and not the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
BUILD = "import setuptools.build_meta as build; build.build_wheel('dist')"
STRAY = ("tests/__init__.py", "tests/test_stray.py", "benchmarks/__init__.py", "docs/conf.py", "runs/night-1/log.txt")
"""What lies beside the packages in a checkout, and is no part of a wheel."""


def source(folder: Path) -> Path:
    """A copy of what a wheel is built from, with strangers beside it: the build leaves files where it runs."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        top = name.partition("/")[0]
        if top not in ("tests", "docs", "benchmarks") and (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name, follow_symlinks=False)
    for name in STRAY:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def wheel(folder: Path) -> Path:
    """The wheel of such a copy, built by the setuptools that is installed: nothing is downloaded."""
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "dist").glob("*.whl")
    return made


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and a folder and a user's home that are empty."""

    prefix: Path
    cwd: Path
    home: Path

    @property
    def packages(self) -> Path:
        return self.prefix / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)

    @property
    def python(self) -> Path:
        return self.prefix / "bin/python"

    def environment(self, **more: str) -> dict[str, str]:
        """Of a user who has set nothing."""
        ours = ("NIGHTSHIFT_", "PREFECT_", "MLFLOW_", "XDG_", "PYTHON", "VIRTUAL_ENV")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = f"{self.prefix}/bin:{os.environ['PATH']}"
        return {**plain, "HOME": str(self.home), "PATH": path, **more}

    def run(self, *command: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command as that user."""
        return subprocess.run(
            command, cwd=cwd or self.cwd, env=self.environment(**more), capture_output=True, text=True, timeout=400
        )

    def nightshift(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.python), "-P", "-m", "flows.cli", *arguments, **more)


def install(built: Path, place: Path) -> Installed:
    """The wheel in an environment of its own, below `place`.

    Our dependencies are those of the environment that runs the tests, which a line of a .pth file adds to the path. That
    environment's own .pth files, and with them the checkout, are not read.
    """
    prefix = place / "environment"
    venv.create(prefix, with_pip=False, symlinks=True)
    installed = Installed(prefix, place / "empty folder", place / "user")
    for folder in (installed.cwd, installed.home):
        folder.mkdir()
    (installed.packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(installed.python), "install", "--no-deps", "--no-index"]
    done = subprocess.run([*pip, str(built)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return installed
