"""Reading an edited program's Python, as plain functions of texts, for tasks/sandbox/reader.py to run.

The checks are for honest mistakes: a call in dead code counts as one, and a fixed seed has to be written in one place.
Against deception stand the sandbox, the judge and the control run of the untrained program.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tasks.editing import patches
from tasks.editing.patches import EditFailed

SEEDERS = frozenset({
    "seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all", "set_seed", "set_random_seed",
    "default_rng", "PRNGKey", "Random", "RandomState", "SeedSequence",
})  # fmt: skip
"""Calls, by the last part of their name, whose first argument is a seed."""
SEEDS = frozenset({"seed", "random_seed", "random_state", "rng_seed"})
"""Keyword arguments, variables, attributes and keys that hold a seed."""


class NotPython(ValueError):
    """A file that Python would not compile; the message names the file, the reason and the place."""


def edited_program(
    files: Mapping[str, str],
    diff: str,
    editable: Sequence[str],
    program: Mapping[str, str],
    required: Sequence[str],
    environment: str,
) -> dict[str, str]:
    """The files that a diff changes, with their new texts, as `patches.patched` makes them, checked.

    Args:
        files: The editable files that there are.
        program: All Python files of the program, if there are required calls.
        environment: Its name, for a reason.
    """
    made = patches.patched(files, diff, editable)
    after = {name: text for name, text in made.items() if files.get(name) != text}
    python = {name: text for name, text in after.items() if name.endswith(".py")}
    try:
        for name, source in python.items():
            parse(name, source)
        missing = missing_calls({**program, **python}, required)
        fixed = [site for name, source in python.items() for site in fixed_seeds(name, files.get(name, ""), source)]
    except NotPython as wrong:
        raise EditFailed(f"the edited program is not Python: {wrong}") from wrong
    except RecursionError as deep:
        raise EditFailed("the edited program is nested too deeply to be followed") from deep
    if missing:
        calls = ", ".join(f"{name}()" for name in missing)
        raise EditFailed(f"the edited program never calls {calls}, which {environment} requires: keep the call")
    if fixed:
        raise EditFailed(f"the edit fixes a seed, {fixed[0]}; use the one in config.json")
    return after


def missing_calls(files: Mapping[str, str], required: Iterable[str]) -> list[str]:
    """The required calls that no file of the program contains, in their order.

    `optimizer.step` is met by `optimizer.step()` and `self.optimizer.step()`, not by `my_optimizer.step()`.
    Files that are not Python contain none.
    """
    required = tuple(required)
    calls: set[str] = set()
    for name, source in files.items() if required else ():
        try:
            tree = parse(name, source)
        except NotPython:
            continue
        calls |= {f".{dotted(node.func)}" for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [name for name in required if not any(call.endswith(f".{name}") for call in calls)]


def fixed_seeds(name: str, before: str, after: str) -> list[str]:
    """Places of a file that fix a seed and were not there before; each run of a trial has to get its own.

    `seed + 1` and `default_rng(config["seed"])` pass; `manual_seed(0)` and `config["seed"] = 7` do not.
    """
    try:
        old = {text for _, text in _fixed(name, before.encode(errors="surrogateescape").decode(errors="replace"))}
    except NotPython:
        old = set()
    return [f"{name}:{line}: {text}" for line, text in _fixed(name, after) if text not in old]


def _fixed(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Lines and sources of the calls, assignments and dictionaries that take a seed from constants alone."""
    for node in ast.walk(parse(name, source)):
        if isinstance(node, ast.expr | ast.stmt) and any(map(_is_constant, _seeds(node))):
            yield node.lineno, ast.unparse(node)


def _seeds(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call():
            yield from (keyword.value for keyword in node.keywords if keyword.arg in SEEDS)
            if dotted(node.func).rpartition(".")[2] in SEEDERS:
                yield from node.args[:1]
        case ast.Assign() if any(map(_holds_seed, node.targets)):
            yield node.value
        case ast.Dict():
            yield from (value for key, value in zip(node.keys, node.values, strict=True) if _is_key(key))


def _holds_seed(target: ast.AST) -> bool:
    """Whether a variable, an attribute or a key has a seed's name."""
    if isinstance(target, ast.Subscript):
        return _is_key(target.slice)
    return dotted(target).rpartition(".")[2].lower() in SEEDS


def _is_key(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in SEEDS


def _is_constant(seed: ast.AST) -> bool:
    """Whether an expression is a number or a text, or made of such without anything that may vary."""
    parts = list(ast.walk(seed))
    varies = any(isinstance(part, ast.Name | ast.Call | ast.Lambda) for part in parts)
    return not varies and any(isinstance(part, ast.Constant) and part.value is not None for part in parts)


def parse(name: str, source: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        NotPython: it does not compile, or claims an encoding in which Python would read another program than people.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
        if encoding not in ("utf-8", "utf-8-sig"):
            raise NotPython(f"{name}:1: it claims to be in {encoding}, where a program's files are in utf-8")
        compile(source, name, "exec", dont_inherit=True)
        return ast.parse(source, name)
    except NotPython:
        raise
    except SyntaxError as wrong:
        place = f":{wrong.lineno}" if wrong.lineno else ""
        line = f": {wrong.text.strip()[:80]!r}" if wrong.text else ""
        raise NotPython(f"{name}{place}: {wrong.msg}{line}") from wrong
    except (RecursionError, MemoryError) as wrong:
        raise NotPython(f"{name}: nested too deeply to be parsed") from wrong
    except ValueError as wrong:  # a NUL, before Python 3.12, or half a character
        raise NotPython(f"{name}: {wrong}") from wrong


def dotted(node: ast.AST) -> str:
    """The names of `a.b[0].c` as a.b.c; of an attribute of another expression, `(x + y).c`, only c."""
    parts = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def meaning_of(source: str) -> str:
    """A digest of a file without comments, formatting, docstrings and other statements that do nothing.

    Raises:
        NotPython: it does not compile.
    """
    tree = parse("", source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, field, None), list):
                setattr(node, field, [statement for statement in body if not _does_nothing(statement)])
    return hashlib.sha256(ast.dump(tree).encode(errors="surrogatepass")).hexdigest()


def _does_nothing(statement: ast.AST) -> bool:
    """Whether it is a docstring, a text in place of a comment, `...` or `pass`."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)
