"""The modules of a repository that a lone script imports, found beside it or in a folder above."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tasks.importing import _repository as repository

UP = 2
"""Folders above the script's own in which modules are looked for that are not installed."""
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
    found, waiting, seen = LocalModules(), [(name, True) for name in _at_top(tree)], set[Path]()
    waiting += [(name, False) for node in ast.walk(tree) for name in repository.imported(node)]
    while waiting:
        dotted, at_once = waiting.pop(0)
        name = dotted.partition(".")[0]
        if name in sys.stdlib_module_names or name == script.stem:
            continue
        folder = _folder(script, name)
        if folder is None:  # one within a function may never be needed
            found.installed |= {name} if at_once else set()
            continue
        package, entry = folder / name, folder.joinpath(*dotted.split("."))
        files = package.rglob("*.py") if package.is_dir() else [package.with_suffix(".py")]
        own = [file for file in sorted(files) if file.resolve().is_relative_to(folder.resolve())]
        found.files |= {file.relative_to(folder).as_posix(): file for file in own}
        read = {package / "__init__.py", entry / "__init__.py", entry.with_suffix(".py")} & {*own} - seen
        waiting += [(each, True) for file in sorted(read) for each in _at_top(repository.parsed(file))]
        seen |= read
    return found


def _at_top(tree: ast.Module) -> list[str]:
    return [name for node in tree.body for name in repository.imported(node)]


def _folder(script: Path, name: str) -> Path | None:
    """The folder that has a module. Above the script's own only one that is not installed: `~/torch` is no module."""
    own, *above = [script.resolve().parent, *script.resolve().parents[1 : UP + 1]]
    is_installed = name not in OURS and find_spec(name) is not None
    folders = [own] if is_installed else [own, *above]
    has = (each for each in folders if (each / f"{name}.py").is_file() or any((each / name).glob("*.py")))
    return next(has, None)
