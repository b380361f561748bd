"""What Python files state, read without running them: constants, options with their defaults, imports."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from environments.plugins import Refused
from tasks.importing import _original

Literal = bool | int | float | str
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip
HIGHEST_POWER = 64
"""Of a larger one the digits may fill the memory."""
SWITCHES = {"store_true": False, "store_false": True}
"""What argparse's switches are where they are not given, by their action."""
UP = 2
"""Folders above a script's own in which modules are looked for that are not installed."""


def parsed(path: Path) -> ast.Module:
    """A Python file's syntax tree. Refused if it is not Python of this version."""
    try:
        return ast.parse(_original.read_text(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as wrong:
        raise Refused(f"{path} is not Python {sys.version_info[0]}.{sys.version_info[1]}: {wrong}") from wrong


def script(place: str) -> ast.Module | str:
    """The syntax tree of a lone script, or why a place is none."""
    path = Path(place)
    if path.suffix != ".py" or not path.is_file():
        return "a folder: name the script in it" if path.is_dir() else "no file .py"
    try:
        return parsed(path)
    except Refused as unreadable:
        return str(unreadable)


def literal(node: ast.expr | None) -> Literal | None:
    """A literal, or arithmetic of literals, as a value; None if it is anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, Literal):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float") and len(node.args) == 1:
        return _as_kind(literal(node.args[0]), ast.unparse(node.func))  # int(1e6)
    if not isinstance(node, ast.BinOp) or type(node.op) not in OPERATORS:
        return None
    left, right = literal(node.left), literal(node.right)
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if isinstance(node.op, ast.Pow) and max(abs(left), abs(right)) > HIGHEST_POWER:
        return None
    with suppress(ArithmeticError):
        result: Any = OPERATORS[type(node.op)](left, right)
        return result if isinstance(result, int | float) else None
    return None


def _as_kind(value: Literal | None, kind: str) -> Literal | None:
    """A number as whole or real as its type says."""
    if kind == "float" and type(value) is int:
        return float(value)
    return int(value) if kind == "int" and isinstance(value, float) and value.is_integer() else value


def constants(tree: ast.Module) -> dict[str, Literal]:
    """Upper-case names that the file assigns once at its top level, with a literal value or arithmetic of such."""
    nodes = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = [ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]) for node in nodes]
    values = {name: literal(node.value) for name, node in zip(names, nodes, strict=True) if names.count(name) == 1}
    return {name: value for name, value in values.items() if name.isupper() and value is not None}


class Options(NamedTuple):
    """The options of a script, by name as on its command line."""

    dataclass: str
    """The class that it gives to `tyro.cli`; empty: argparse has them."""
    values: dict[str, Literal]
    """Those whose default is a number, a switch or a text."""
    others: list[str]
    """Those with another default, such as None or a list, or without one."""
    flags: set[str]
    """Switches of argparse that take no value."""


def options(tree: ast.Module) -> Options:
    """The options of a script: a dataclass of its own that `tyro.cli` reads, or argparse's and `init(config={...})`."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    given = [ast.unparse(call.args[0]) for call in calls(tree, "cli") if call.args]
    name = next((one for one in given if one in classes), "")
    if not name:
        return _argparse_options(tree)
    fields = [line for line in classes[name].body if isinstance(line, ast.AnnAssign)]
    stated = {ast.unparse(line.target): _as_kind(literal(line.value), ast.unparse(line.annotation)) for line in fields}
    return _parted(name, stated, set())


def _parted(dataclass: str, stated: Mapping[str, Literal | None], flags: set[str]) -> Options:
    values = {name: value for name, value in stated.items() if value is not None}
    return Options(dataclass, values, [name for name in stated if name not in values], flags)


def _argparse_options(tree: ast.Module) -> Options:
    named, stated, switches = assigned(tree), dict[str, Literal | None](), set[str]()
    for call in calls(tree, "add_argument"):
        words = {word.arg: named.get(ast.unparse(word.value), word.value) for word in call.keywords if word.arg}
        flags = [flag for flag in map(literal, call.args) if isinstance(flag, str)]
        name = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "").lstrip("-")
        value = literal(words.get("default"))
        if "action" in words:
            switches.add(name)
            value = SWITCHES.get(str(literal(words["action"]))) if value is None else value
        stated[name] = _as_kind(value, ast.unparse(words["type"]) if "type" in words else "")
    return _parted("", stated, switches)


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of `name(...)` or `owner.name(...)`; without names all."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (not names or ast.unparse(node.func).rpartition(".")[2] in names):
            yield node


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """What names are assigned, anywhere; the last where there are several."""
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    return {name.id: node.value for node in assignments for name in node.targets if isinstance(name, ast.Name)}


def entries(table: ast.expr | None) -> dict[str, ast.expr]:
    """The entries of `{"name": value}` or `dict(name=value)`; none of anything else."""
    if isinstance(table, ast.Dict):
        return {str(literal(key)): value for key, value in zip(table.keys, table.values, strict=True) if key}
    if isinstance(table, ast.Call) and ast.unparse(table.func) == "dict":
        return {word.arg: word.value for word in table.keywords if word.arg}
    return {}


def imports(tree: ast.Module) -> set[str]:
    """The first parts of the modules that a file imports, at its top or later."""
    nodes = [*ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def named_files(tree: ast.Module, folder: Path) -> dict[str, Path]:
    """The files below a folder that a text of the program names."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    likely = sorted(text for text in texts if re.fullmatch(r"(?!/)[\w./-]{1,200}\.\w+", text) and ".." not in text)
    return {text.removeprefix("./"): folder / text for text in likely if (folder / text).is_file()}


def local_modules(script: Path) -> dict[str, Path]:
    """The files of its repository that a lone script imports, by place beside it; a package with all of its Python.

    They lie beside it, or in a folder above: there only modules count that are not installed, as `~/torch` is none.
    """
    every: dict[str, Path] = {}
    own, *above = script.resolve().parents[: UP + 1]
    waiting = [script]
    for file in waiting:  # it grows
        try:
            names = imports(parsed(file))
        except Refused:  # one of a package that the script may never load
            continue
        for name in sorted(names - {script.stem} - sys.stdlib_module_names):
            for folder in [own] if find_spec(name) else [own, *above]:
                module = folder / f"{name}.py"
                files = [module] if module.is_file() else sorted((folder / name).rglob("*.py"))
                if files and not script.resolve().is_relative_to(folder / name):  # a project called as its package
                    new = {each.relative_to(folder).as_posix(): each for each in files}
                    waiting += [each for place, each in new.items() if place not in every]
                    every |= new
                    break
    return every
