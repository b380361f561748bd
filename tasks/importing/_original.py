"""Another tool's files, read and copied, never run; what Python files of it state: constants, options, imports."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from environments import NOT_FROZEN
from environments.plugins import Refused
from tasks.importing import Term

REPOSITORY = "repository"
"""Folder of the original's files in the new environment."""
LARGEST_BYTES = 32 * 2**20
PASSED_OVER = frozenset({*NOT_FROZEN, "wandb", "mlruns", "node_modules", "venv"})
UP = 3
"""Folders from a file's own upwards in which the files that it names are looked for, or modules."""
NOT_COPIED = (
    f"not copied: a link out of the folder, or more than {LARGEST_BYTES // 2**20} MiB: what the program needs of it "
    "goes under readable, by the original's path"
)
Literal = bool | int | float | str
ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call, ast.Name, ast.Load)
KINDS = {"int": int, "float": float}
SWITCHES = {"store_true": False, "store_false": True}
"""What argparse's switches are where they are not given, by their action."""
T = TypeVar("T")


def read_text(path: Path) -> str:
    """A file as text, without the mark that some editors put first."""
    return path.read_text("utf-8-sig", "replace")


class Table:
    """A configuration of another tool, which knows what of it was read: the rest is not carried."""

    def __init__(self, content: dict[str, Any], path: Path) -> None:
        self.content, self.path = content, path
        self._read: set[str] = set()

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value of a dotted key; None where there is none. Refused if it is of another kind (`object`: any)."""
        value: Any = self.content
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        self._read.add(key)
        value = float(value) if kind is float and type(value) is int else value
        if value is not None and kind not in (object, type(value)):
            raise Refused(f"{self.path}: {key}: must be of the type {kind.__name__}, got {value!r}")
        return value  # type: ignore[no-any-return]

    def unread(self) -> list[str]:
        """The dotted keys that nobody has asked for, of those below a key that was read none."""
        above = tuple(f"{key}." for key in self._read)
        return [key for key, _ in flat(self.content) if not f"{key}.".startswith(above)]


def flat(table: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables. An empty table is a value, and so is one whose keys are no words."""
    for name, value in table.items():
        if isinstance(value, dict) and value and all(re.fullmatch(r"\w+", str(inner)) for inner in value):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def yaml_table(path: Path, *required: str, inside: str = "") -> Table | str:
    """A YAML file, or that of this name inside a folder, with these keys at its top; or why it is none. Tags that make
    objects are not obeyed.
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    path = path / inside if path.is_dir() else path
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return "no YAML file"
    try:
        content = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:  # such as a month that there is not
        return f"{path} is not YAML: {' '.join(str(wrong).split())}"
    missing = [key for key in required if key not in content] if isinstance(content, dict) else ["table"]
    return f"{path.name} has no {', no '.join(missing)} at its top" if missing else Table(content, path)


def folder_with(names: Iterable[str], below: Path) -> Path:
    """The nearest folder above a file that has all of these in it: from there the original tool was started. Refused if
    there is none: names that lead out of it would have strange files copied.
    """
    wanted = [*names]
    for folder in list(below.resolve().parents)[:UP]:
        if all((folder / name).exists() and (folder / name).resolve().is_relative_to(folder) for name in wanted):
            return folder
    raise Refused(f"{below}: none of the {UP} folders above it has {' and '.join(wanted)} in it: correct the names")


def repository_files(folder: Path) -> tuple[dict[str, str | Path], list[Term]]:
    """The files that a program may read, by place in the new environment, and those that are left out."""
    files: dict[str, str | Path] = {}
    left: list[str] = []
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if PASSED_OVER & {*name.parts} or any(part.startswith(".") for part in name.parts):
            continue
        if any((folder / above / "pyvenv.cfg").is_file() for above in name.parents if above.parts):
            continue  # a virtual environment, whatever its name
        is_link = path.is_dir() and path.is_symlink()  # into which nobody goes
        is_large = path.is_file() and path.stat().st_size > LARGEST_BYTES
        if is_link or is_large or not path.resolve().is_relative_to(root):
            left.append(str(name))
        elif path.is_file():
            files[f"{REPOSITORY}/{name.as_posix()}"] = path
    return files, [Term(", ".join(left), NOT_COPIED)] if left else []


def parsed(path: Path) -> ast.Module:
    """A Python file's syntax tree. Refused if it is not Python of this version."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError) as wrong:
        raise Refused(f"{path} is not Python {sys.version_info[0]}.{sys.version_info[1]}: {wrong}") from wrong


def script(place: str) -> ast.Module | str:
    """The syntax tree of a lone script, or why a place is none. Refused as in `parsed`."""
    path = Path(place)
    return parsed(path) if path.suffix == ".py" and path.is_file() else "no file .py"


def literal(node: ast.expr | None, kind: str = "") -> Literal | None:
    """A literal, or arithmetic such as `int(1e6)`, as a value; None if it is anything else. (kind: of a number)"""
    if node is None or not all(isinstance(part, ARITHMETIC) for part in ast.walk(node)):
        return None
    powers = [part.right for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow)]
    if not all(re.fullmatch(r"-?\d{1,2}(\.\d+)?", ast.unparse(exponent)) for exponent in powers):
        return None  # which may take for ever
    with suppress(ArithmeticError, TypeError, ValueError, NameError, MemoryError):
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": KINDS})  # which know no other name
        is_other = kind in KINDS and type(value) in KINDS.values()
        return KINDS[kind](value) if is_other else value if isinstance(value, Literal) else None
    return None


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
    stated: dict[str, Literal | None]
    """Their defaults, if these are numbers, switches or texts; None: another one, such as a list, or none."""
    flags: set[str]
    """Those of argparse that not any value can be given as `--name=value`: switches, choices, other forms."""

    @property
    def values(self) -> dict[str, Literal]:
        return {name: value for name, value in self.stated.items() if value is not None}


def options(tree: ast.Module) -> Options:
    """The options of a script: a dataclass of its own that `tyro.cli` reads, or argparse's."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    given = [ast.unparse(call.args[0]) for call in calls(tree, "cli") if call.args]
    name = next((one for one in given if one in classes), "")
    if not name:
        return _argparse_options(tree)
    bases = [classes[each] for each in map(ast.unparse, classes[name].bases) if each in classes]
    lines = [line for each in (*bases, classes[name]) for line in each.body]
    fields = [line for line in lines if isinstance(line, ast.AnnAssign)]
    stated = {ast.unparse(line.target): literal(line.value, ast.unparse(line.annotation)) for line in fields}
    return Options(name, stated, set())


def _argparse_options(tree: ast.Module) -> Options:
    named, stated, flagged = assigned(tree), dict[str, Literal | None](), set[str]()
    later = {word.arg: word.value for call in calls(tree, "set_defaults") for word in call.keywords}
    for call in calls(tree, "add_argument"):
        words = {word.arg: word.value for word in call.keywords}
        flags = [flag for flag in map(literal, call.args) if isinstance(flag, str)]
        name = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "").lstrip("-")
        default = later.get(name.replace("-", "_"), words.get("default"))
        value = default and named.get(ast.unparse(default), default)
        stated[name] = literal(value, ast.unparse(words["type"]) if "type" in words else "")
        if {"action", "choices"} & {*words} or not any(flag.startswith("--") for flag in flags):
            flagged.add(name)
        if "action" in words:
            stated[name] = SWITCHES.get(str(literal(words["action"]))) if default is None else stated[name]
    return Options("", stated, flagged)


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


def with_modules(script: Path) -> dict[str, Path]:
    """A lone script and the files of its repository that it imports, by place; a package with all of its Python.

    They lie beside it, or in a folder above: there only modules count that are not installed, as `~/torch` is none.
    """
    every = {script.name: script}
    own, *above = script.resolve().parents[:UP]
    waiting = [script]
    for file in waiting:  # it grows
        try:
            names = imports(parsed(file))
        except Refused:  # one of a package that the script may never load
            continue
        for name in sorted(names - {script.stem, "__main__"} - sys.stdlib_module_names):
            for folder in [own] if find_spec(name) else [own, *above]:
                module = folder / f"{name}.py"
                files = [module] if module.is_file() else sorted((folder / name).rglob("*.py"))
                if files and not script.resolve().is_relative_to(folder / name):  # a project called as its package
                    new = {each.relative_to(folder).as_posix(): each for each in files}
                    waiting += [each for place, each in new.items() if place not in every]
                    every |= new
                    break
    return every
