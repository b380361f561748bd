"""The wheel: what is in it, that it runs outside of a checkout, and that its names take nobody's place silently."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support.installed import CHECKOUT, Installed, install, source, wheel

IMPORT = "import flows, tasks, blocks"
PACKAGES = ("flows", "tasks", "environments", "blocks")


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
        catalogues = {name: wheel.read(f"flows/server/{name}") for name in ("prefect.yaml", "gpu.prefect.yaml")}
        scripts = next(wheel.read(name) for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert held == stated
    assert catalogues == {name: (CHECKOUT / "flows/server" / name).read_bytes() for name in catalogues}
    assert b"nightshift = flows.cli:main" in scripts


def test_an_installed_nightshift_has_its_skill_for_agents(installed: Installed, tmp_path: Path) -> None:
    done = installed.nightshift("skill", "install", "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    ours = (CHECKOUT / "skills/nightshift/SKILL.md").read_text()
    assert (tmp_path / "nightshift/SKILL.md").read_text().startswith(ours)


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
