"""What a Python program says of itself without being run: defaults of its options, metrics that it logs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any


def defaults(text: str) -> dict[str, Any]:
    """Defaults of argparse options, and settings that `init(config={...})` states, by name."""
    found: dict[str, Any] = {}
    tables = _tables(text)
    for call in _calls(text):
        named = {word.arg: word.value for word in call.keywords if word.arg}
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if called == "add_argument" and "default" in named:
            flags = [_literal(argument) for argument in call.args]
            long = [flag for flag in flags if isinstance(flag, str) and flag.startswith("--")] or flags
            value = _literal(named["default"])
            if long and isinstance(long[0], str) and value is not None:
                found[long[0].lstrip("-").replace("-", "_")] = value
        elif called == "init" and "config" in named:
            stated = named["config"]
            found |= _table(tables.get(stated.id, stated) if isinstance(stated, ast.Name) else stated)
    return found


def logged(text: str) -> list[str]:
    """Names that `log({...})` or `log(dict(...))` is called with, in their order."""
    names: dict[str, None] = {}
    for call in _calls(text):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "log" and call.args:
            names |= dict.fromkeys(_keys(call.args[0]))
    return list(names)


def _nodes(text: str) -> list[ast.AST]:
    """Every node of a program; none where it does not parse."""
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []


def _calls(text: str) -> Iterator[ast.Call]:
    return (node for node in _nodes(text) if isinstance(node, ast.Call))


def _tables(text: str) -> dict[str, ast.expr]:
    """What each plain name is set to, the last time."""
    sets = (node for node in _nodes(text) if isinstance(node, ast.Assign))
    return {target.id: one.value for one in sets for target in one.targets if isinstance(target, ast.Name)}


def _keys(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Dict):
        values = (_literal(key) for key in node.keys if key is not None)
        return [value for value in values if isinstance(value, str)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [word.arg for word in node.keywords if word.arg]
    return []


def _table(node: ast.expr) -> dict[str, Any]:
    if isinstance(node, ast.Dict):
        pairs = [(_literal(key), _literal(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
        return {name: value for name, value in pairs if isinstance(name, str) and value is not None}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        words = {word.arg: _literal(word.value) for word in node.keywords if word.arg}
        return {name: value for name, value in words.items() if value is not None}
    return {}


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
