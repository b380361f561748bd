"""The rules of the house: how much there is of it, who may import whom, and what its versions are."""

from __future__ import annotations

import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks", "blocks", "environments")
SOURCE_LINES = 29_626
"""The house does not grow again."""


def test_no_circle_of_imports_between_files() -> None:
    """Those inside functions count; those for type checkers alone do not."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_the_source_has_no_more_lines_than_before() -> None:
    sources = [path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py")]
    assert sum(len(path.read_text().splitlines()) for path in sources) <= SOURCE_LINES


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", (CHECKOUT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_lock_is_that_of_the_declared_dependencies_from_the_public_index_alone() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lock = (CHECKOUT / "uv.lock").read_text()
    (locked,) = [package for package in tomllib.loads(lock)["package"] if package["name"] == project["name"]]
    assert locked["version"] == project["version"]
    assert {(one.name.lower(), one.specifier) for one in map(Requirement, declared)} == {
        (one["name"], SpecifierSet(one["specifier"])) for one in locked["metadata"]["requires-dist"]
    }, "pyproject.toml was changed: `uv lock`"
    assert set(re.findall(r"https?://[^/\"]*", lock)) == {"https://pypi.org", "https://files.pythonhosted.org"}
