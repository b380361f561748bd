"""The rules of the house: how much there is of it, who may import whom, and what its versions are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks", "blocks", "environments")
SOURCE_LINES = 31_145
"""Only ever lowered."""


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py")]


def test_the_import_layers_hold() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_circle_of_imports_between_files() -> None:
    """Those inside functions count; those for type checkers alone do not."""
    modules = {".".join(p.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__"): p for p in sources()}
    graph = {name: imports(ast.parse(path.read_text()), modules.keys()) - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def imports(tree: ast.AST, modules: Set[str]) -> set[str]:
    """The modules of ours that a file imports; of a package, the module that the name stands for where it is one."""
    found = set[str]()
    for node in outside_of_type_checking(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & modules or {node.module}
    return found & modules


def outside_of_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from outside_of_type_checking(child)


def test_the_source_has_no_more_lines_than_before() -> None:
    assert sum(len(path.read_text().splitlines()) for path in sources()) <= SOURCE_LINES


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", (CHECKOUT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def requirement(text: str) -> tuple[str, frozenset[str]]:
    """The name and the version bounds of a requirement."""
    name, bounds = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?(.*)", text.replace(" ", "")).groups()  # type: ignore[union-attr]
    return name.lower(), frozenset(bounds.split(","))


def test_the_lock_is_that_of_the_declared_dependencies_from_the_public_index_alone() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lock = (CHECKOUT / "uv.lock").read_text()
    (locked,) = [package for package in tomllib.loads(lock)["package"] if package["name"] == project["name"]]
    assert locked["version"] == project["version"]
    assert {requirement(text) for text in declared} == {
        requirement(f"{one['name']}{one['specifier']}") for one in locked["metadata"]["requires-dist"]
    }, "pyproject.toml was changed: `uv lock`"
    assert set(re.findall(r"https?://[^/\"]*", lock)) == {"https://pypi.org", "https://files.pythonhosted.org"}
