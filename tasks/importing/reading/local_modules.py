"""The modules of a repository that a lone script imports, found beside it or in a folder above."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tasks.importing import _repository as repository

UP = 2
"""Folders above the script's own in which modules are looked for that are not installed."""
UNREAD = frozenset({"__pycache__", ".git", ".venv", "node_modules"})


OURS = frozenset({"blocks", "environments", "flows", "tasks"})
"""Packages that are installed here alone: a repository that imports one of these names has its own."""


@dataclass
class LocalModules:
    """What a script imports from its repository, and what it needs besides."""

    files: dict[str, Path] = field(default_factory=dict)
    """By place beside the script; a package with all of its Python files."""
    installed: set[str] = field(default_factory=set)
    """Top-level modules that it, or one of these files that is imported with it, imports from elsewhere."""


def local_modules(script: Path, tree: ast.Module) -> LocalModules:
    """Follow the imports of a script through the files of its repository."""
    found, waiting, seen = LocalModules(), [tree], set[Path]()
    for name in _imported(ast.walk(tree)):  # those within functions too
        if name.partition(".")[0] != script.stem and (root := _root(script, name)):
            found.files |= _files(root, name)
    while waiting:
        for name in _imported(waiting.pop().body):
            if name.partition(".")[0] == script.stem:
                continue
            root = _root(script, name)
            if root is None:
                found.installed.add(name.partition(".")[0])
                continue
            found.files |= _files(root, name)
            if (file := _file(root, name)) and file not in seen:
                seen.add(file)
                waiting.append(repository.parsed(file))
    found.installed -= set(sys.stdlib_module_names)
    return found


def _imported(nodes: Iterable[ast.AST]) -> list[str]:
    """Dotted names of modules; of `from a import b` also `a.b`, which may be one."""
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _root(script: Path, name: str) -> Path | None:
    """The folder that has a module. Above the script's own only one that is not installed: `~/torch` is no module."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    own, *above = [script.resolve().parent, *script.resolve().parents[1 : UP + 1]]
    if _has(own, top):
        return own
    is_installed = top not in OURS and find_spec(top) is not None
    return None if is_installed else next((folder for folder in above if _has(folder, top)), None)


def _has(folder: Path, top: str) -> bool:
    """Whether a module's file is there, or a folder with modules, which needs no `__init__.py`."""
    return (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py"))


def _file(root: Path, name: str) -> Path | None:
    path = root.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _files(root: Path, name: str) -> dict[str, Path]:
    """A module's file, or every Python file of its package, by place below the folder that has it."""
    top = name.partition(".")[0]
    if (package := root / top).is_dir():
        every = (path for path in sorted(package.rglob("*.py")) if not UNREAD & {*path.relative_to(root).parts})
        own = (path for path in every if path.is_file() and path.resolve().is_relative_to(root.resolve()))
        return {path.relative_to(root).as_posix(): path for path in own}
    return {f"{top}.py": root / f"{top}.py"}
