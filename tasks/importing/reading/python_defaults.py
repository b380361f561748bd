"""Defaults of a Python program's options, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

SWITCHES = {"store_true": False, "store_false": True}
"""Defaults of argparse's switches, by their action."""


def defaults(text: str) -> dict[str, Any]:
    """Defaults of argparse options, and settings that `init(config={...})` states, by name."""
    found: dict[str, Any] = {}
    names = _assigned(text)
    for call in _calls(text):
        words = {word.arg: names.get(ast.unparse(word.value), word.value) for word in call.keywords if word.arg}
        if call.func.attr == "add_argument":  # type: ignore[attr-defined]
            flags = [flag for flag in map(_literal, call.args) if isinstance(flag, str)]
            long = [flag for flag in flags if flag.startswith("--")] or flags
            value = _literal(words["default"]) if "default" in words else None
            if value is None and "action" in words:
                value = SWITCHES.get(str(_literal(words["action"])))
            if long:
                found |= {long[0].lstrip("-").replace("-", "_"): value}
        elif call.func.attr == "set_defaults":  # type: ignore[attr-defined]
            found |= {name: _literal(value) for name, value in words.items()}
        elif call.func.attr == "init" and "config" in words:  # type: ignore[attr-defined]
            found |= {name: _literal(names.get(ast.unparse(value), value)) for name, value in _items(words["config"])}
    return {name: value for name, value in found.items() if value is not None}


def _nodes(text: str) -> list[ast.AST]:
    """Every node of a program; none where it does not parse."""
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []


def _calls(text: str) -> Iterator[ast.Call]:
    """Calls of the form `owner.name(...)`."""
    return (node for node in _nodes(text) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))


def _assigned(text: str) -> Mapping[str, ast.expr]:
    """What each plain name is set to, the last time."""
    sets = (node for node in _nodes(text) if isinstance(node, ast.Assign))
    return {target.id: one.value for one in sets for target in one.targets if isinstance(target, ast.Name)}


def _items(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """The entries of `{...}` or `dict(...)`."""
    if isinstance(node, ast.Dict):
        pairs = [(_literal(key), value) for key, value in zip(node.keys, node.values, strict=True) if key]
        return [(name, value) for name, value in pairs if isinstance(name, str)]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        return [(word.arg, word.value) for word in node.keywords if word.arg]
    return []


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
