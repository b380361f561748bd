"""The set-up: its versions are locked, and a failure shows its cause."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
LOCK = CHECKOUT / "uv.lock"


def requirement(text: str) -> tuple[str, frozenset[str]]:
    """The name and the version bounds of a requirement."""
    name, bounds = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?(.*)", text.replace(" ", "")).groups()  # type: ignore[union-attr]
    return name.lower(), frozenset(bounds.split(","))


def test_the_lock_is_that_of_the_declared_dependencies() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    (locked,) = [
        package for package in tomllib.loads(LOCK.read_text())["package"] if package["name"] == project["name"]
    ]

    assert locked["version"] == project["version"]
    assert {requirement(text) for text in declared} == {
        requirement(f"{one['name']}{one['specifier']}") for one in locked["metadata"]["requires-dist"]
    }, "pyproject.toml was changed: `uv lock`"


def test_the_lock_names_the_public_package_index_alone() -> None:
    hosts = set(re.findall(r"https?://[^/\"]*", LOCK.read_text()))

    assert hosts == {"https://pypi.org", "https://files.pythonhosted.org"}


def test_a_set_up_that_fails_lets_the_installer_say_why(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(CHECKOUT / ".ci/setup", tmp_path / ".ci/setup")
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *"-m pip"*) echo "no such package" >&2; exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    tools = tmp_path / "tools"  # without uv, wherever that is
    tools.mkdir()
    for name in ("bash", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))

    done = subprocess.run(
        [str(tmp_path / ".ci/setup"), "ppo"],
        env={"PATH": str(tools), "TORCH_INDEX": "https://example.org"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "no such package" in done.stderr
