"""Folders of the home directory that scripts read: a trial has a home of its own, so they must be listed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from tasks.importing import _repository as repository

HUGGING_FACE = frozenset({"kernels", "transformers", "datasets", "huggingface_hub"})
"""Modules that read the cache of the Hugging Face hub."""


def caches(folder: Path, names: Iterable[str]) -> list[Path]:
    """Folders below the home directory that the files name, and the hub's cache where they use it."""
    trees = [repository.parsed(folder / name) for name in names]
    found = {place for tree in trees for node in ast.walk(tree) if (place := _place(node)) and place != Path.home()}
    modules = {name.partition(".")[0] for tree in trees for name in _modules(tree)}
    hub = Path.home() / ".cache/huggingface"
    if modules & HUGGING_FACE and hub.is_dir():
        found.add(hub)
    return sorted(place for place in found if not any(other in place.parents for other in found))


def _modules(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _place(node: ast.AST) -> Path | None:
    """The path that an expression such as `os.path.join(os.path.expanduser("~"), "data")` makes below the home."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        base = _place(node.left)
        return base / node.right.value if base and _is_text(node.right) else base  # type: ignore[attr-defined]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name, args = node.func.attr, node.args
    if name == "home" and ast.unparse(node.func.value).endswith("Path"):
        return Path.home()
    if name == "expanduser" and args and _is_text(args[0]) and args[0].value.startswith("~/"):  # type: ignore[attr-defined]
        return Path.home() / args[0].value[2:]  # type: ignore[attr-defined]
    if name == "expanduser" and args and _is_text(args[0]) and args[0].value == "~":  # type: ignore[attr-defined]
        return Path.home()
    if name == "join" and args and (base := _place(args[0])):
        for part in args[1:]:
            if not _is_text(part):
                return base
            base /= part.value  # type: ignore[attr-defined]
        return base
    return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
