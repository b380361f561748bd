"""Options that a script declares as a dataclass and reads by `tyro.cli`: names and defaults, without running it."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from tasks.importing import _repository as repository
from tasks.importing._repository import Literal


@dataclass(frozen=True)
class ScriptOptions:
    """The dataclass that a script gives to `tyro.cli`."""

    name: str
    """Of the class."""
    values: dict[str, Literal]
    """Options whose default is a number, a switch or a text."""
    others: tuple[str, ...]
    """Options with another default, such as None or a list."""
    required: tuple[str, ...]
    """Options without a default."""


def script_options(tree: ast.Module) -> ScriptOptions | None:
    """The options of a script; None if it gives no dataclass of its own to `tyro.cli`."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    given = (call.args[0] for call in calls if ast.unparse(call.func) in ("tyro.cli", "cli"))
    name = next((one.id for one in given if isinstance(one, ast.Name) and one.id in classes), "")
    if not name or not _is_dataclass(classes[name]):
        return None
    fields = _fields(classes[name], classes)
    found = {field: None if value is None else _value(value, kind) for field, (value, kind) in fields.items()}
    return ScriptOptions(
        name,
        {field: value for field, value in found.items() if value is not None},
        tuple(field for field, value in found.items() if value is None and fields[field][0] is not None),
        tuple(field for field, (value, _) in fields.items() if value is None),
    )


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _fields(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, tuple[ast.expr | None, str]]:
    """Each field's default and type as written, those of its bases first."""
    fields: dict[str, tuple[ast.expr | None, str]] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            fields |= _fields(classes[base.id], {name: one for name, one in classes.items() if name != node.name})
    for line in node.body:
        kind = ast.unparse(line.annotation) if isinstance(line, ast.AnnAssign) else ""
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and "ClassVar" not in kind:
            fields[line.target.id] = line.value, kind
    return fields


def _value(node: ast.expr, kind: str) -> Literal | None:
    """A default as a value; a number as whole or real as the field's type says."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("field"):
        default = next((word.value for word in node.keywords if word.arg == "default"), None)
        return None if default is None else _value(default, kind)
    called = ast.unparse(node.func) if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else ""
    if called in ("int", "float") and isinstance(node, ast.Call):  # int(1e6)
        return _value(node.args[0], called)
    value = repository.literal(node)
    if isinstance(value, bool | str) or value is None:
        return value
    if kind == "float":
        return float(value)
    return int(value) if kind == "int" and math.isfinite(value) and value == int(value) else value


def scalars(tree: ast.Module) -> list[str]:
    """Names that `add_scalar(NAME, ...)` is called with, in their order."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_scalar")
    names = (node.value for node in named if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return list(dict.fromkeys(names))
