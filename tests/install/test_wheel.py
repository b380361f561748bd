"""The wheel: what is in it, that its names take nobody's place silently, and the whole way of somebody who installs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

# Nightshift as a wheel, built from this tree, and an environment that has it and not the checkout.

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

    def environment(self) -> dict[str, str]:
        """Of a user who has set nothing."""
        ours = ("NIGHTSHIFT_", "PREFECT_", "MLFLOW_", "XDG_", "PYTHON", "VIRTUAL_ENV")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = f"{self.prefix}/bin:{os.environ['PATH']}"
        return {**plain, "HOME": str(self.home), "PATH": path}

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as that user."""
        return subprocess.run(
            command, cwd=cwd or self.cwd, env=self.environment(), capture_output=True, text=True, timeout=400
        )

    def nightshift(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.python), "-P", "-m", "flows.cli", *arguments)


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


IMPORT = "import flows, tasks, blocks"
PACKAGES = ("flows", "tasks", "environments", "blocks")
LINKED = ("flows/server/prefect.yaml", "flows/server/gpu.prefect.yaml", "flows/cli/skill/SKILL.md")
"""Links in a checkout, and files in a wheel."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(tree: Path) -> Path:
    return wheel(tree)


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built, tmp_path_factory.mktemp("installed with spaces"))


def test_the_wheel_holds_every_file_of_the_four_packages_and_nothing_else(tree: Path, built: Path) -> None:
    files = (path for package in PACKAGES for path in (tree / package).rglob("*") if path.is_file())
    stated = {path.relative_to(tree).as_posix() for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(built) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        linked = {name: wheel.read(name) for name in LINKED}
        scripts = next(wheel.read(name) for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert held == stated
    assert linked == {name: (CHECKOUT / name).read_bytes() for name in LINKED}
    assert b"nightshift = flows.cli:main" in scripts


@pytest.mark.parametrize("theirs", ["tasks.py", "blocks/__init__.py"])
def test_beside_a_users_own_module_of_such_a_name_it_runs_and_a_mixture_is_refused(
    installed: Installed, tmp_path: Path, theirs: str
) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("raise SystemExit('the wrong module')\n")
    alone = installed.run(str(installed.python), "-P", "-c", IMPORT, cwd=tmp_path)
    mixed = installed.run(str(installed.python), "-c", IMPORT, cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert mixed.returncode == 1 and "two projects are mixed" in mixed.stderr
    assert str(tmp_path) in mixed.stderr and str(installed.packages) in mixed.stderr


# The whole way of somebody who installs it: a campaign in an empty folder.


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_is_run_and_reported(installed: Installed) -> None:
    data = installed.home / ".local/share/nightshift"
    options = ["--name", "night", "--trials", "4", "--rule", "greedy", "--tracking", "off"]
    done = installed.run("nightshift", "run", "showcase", *options)
    assert done.returncode == 0, done.stderr
    finished = json.loads(installed.nightshift("status", "night", "--json").stdout)
    assert finished["state"] == "finished"
    assert [row["trial"] for row in finished["trials"]] == [0, 1, 2, 3, 4]
    assert installed.nightshift("report", "night").returncode == 0
    assert (data / "night/report.html").is_file()
    checks = {each["name"]: each for each in json.loads(installed.nightshift("doctor", "--json").stdout)["checks"]}
    assert str(data) in checks["home"]["fact"] and list(installed.cwd.iterdir()) == []
