"""The layout of the source: no circle of imports, and catalogues that name flows."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks", "blocks", "environments")
PROGRAMS = "tasks/trainers"
"""Trainers and their parts are copied into a workspace and import nothing of ours."""


@functools.cache
def sources() -> tuple[Path, ...]:
    """Every source file, below the checkout; programs of the bundled environments are not modules."""
    found = (path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py"))
    return tuple(sorted(path.relative_to(CHECKOUT) for path in found if not is_of_a_problem(path.parent)))


@functools.cache
def is_of_a_problem(folder: Path) -> bool:
    return (folder / "environment.toml").is_file() or (folder != CHECKOUT and is_of_a_problem(folder.parent))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((CHECKOUT / path).read_text())


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in sources()}


def test_no_circle_of_imports_between_files() -> None:
    """Those inside functions count; those for type checkers alone do not."""
    graph = {name: set(imports(path)) - {name} for name, path in modules().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports; of a package, the module that the name stands for where it is one."""
    for node in outside_of_type_checking(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in (inner if inner in modules() else node.module,) if name in modules())


def outside_of_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from outside_of_type_checking(child)


@pytest.mark.parametrize("catalogue", ["prefect.yaml", "docker/gpu.prefect.yaml"])
def test_each_entrypoint_of_a_catalogue_is_a_flow(catalogue: str) -> None:
    from prefect import Flow

    deployments = yaml.safe_load((CHECKOUT / catalogue).read_text())["deployments"]
    assert deployments
    for deployment in deployments:
        module, _, name = re.sub(r"\.py:", ".", deployment["entrypoint"]).replace("/", ".").rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), Flow), deployment["entrypoint"]
