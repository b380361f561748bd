"""Folders of the home directory that scripts read: a trial has a home of its own, so they must be listed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from pathlib import Path

HUGGING_FACE = frozenset({"kernels", "transformers", "datasets", "huggingface_hub"})
"""Modules that read the cache of the Hugging Face hub."""


def data_folders(trees: Iterable[ast.Module]) -> list[Path]:
    """Folders below the home directory that programs name."""
    nodes = (node for tree in trees for node in ast.walk(tree))
    found = {place for node in nodes if (place := _place(node)) and place != Path.home()}
    return sorted(place for place in found if not any(other in place.parents for other in found))


def hub_cache(trees: Iterable[ast.Module]) -> Path | None:
    """The cache of the Hugging Face hub, where programs use it. The token lies beside it and stays out of reach."""
    if not any(name.partition(".")[0] in HUGGING_FACE for tree in trees for name in _modules(tree)):
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").absolute()


def _modules(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _place(node: ast.AST) -> Path | None:
    """The path that an expression such as `os.path.join(os.path.expanduser("~"), "data")` makes below the home."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _joined(_place(node.left), [node.right])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name, args = node.func.attr, node.args
    if name == "home" and ast.unparse(node.func.value).endswith("Path"):
        return Path.home()
    if name == "expanduser" and args:
        home, _, below = (_text(args[0]) or "").partition("/")
        return Path.home() / below if home == "~" else None
    return _joined(_place(args[0]), args[1:]) if name == "join" and args else None


def _joined(base: Path | None, parts: Iterable[ast.expr]) -> Path | None:
    """A path with further parts, up to the first that is no plain text."""
    for part in parts:
        text = _text(part)
        if base is None or text is None or text.startswith("/"):
            return base
        base /= text
    return base


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
