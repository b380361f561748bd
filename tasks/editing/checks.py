"""Reading an edited program's Python, as plain functions of texts, for tasks/sandbox/reader.py to run.

The checks are for honest mistakes: a call in dead code counts as one, and a fixed seed has to be written in one place.
Against deception stand the sandbox, the judge and the control run of the untrained program.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence

from tasks.editing import patches
from tasks.sandbox.reader import EditFailed

SEEDS = frozenset({
    "seed", "random_seed", "random_state", "rng_seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all",
    "set_seed", "set_random_seed", "default_rng", "PRNGKey", "Random", "RandomState", "SeedSequence",
})  # fmt: skip
"""Calls, by the last part of their name, whose first argument is a seed, and names of what holds one."""


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
    for name, source in python.items():
        parse(name, source)
    missing = missing_calls({**program, **python}, required)
    fixed = [site for name, source in python.items() for site in fixed_seeds(name, files.get(name, ""), source)]
    if missing:
        calls = ", ".join(f"{name}()" for name in missing)
        raise EditFailed(f"the edited program never calls {calls}, which {environment} requires: keep the call")
    if fixed:
        raise EditFailed(f"the edit fixes a seed, {fixed[0]}; use the one in config.json")
    return after


def missing_calls(files: Mapping[str, str], required: Sequence[str]) -> list[str]:
    """The required calls that no file of the program contains, in their order.

    `optimizer.step` is met by `optimizer.step()` and `self.optimizer.step()`, not by `my_optimizer.step()`.
    Files that are not Python contain none.
    """
    calls: set[str] = set()
    for name, source in files.items() if required else ():
        try:
            tree = parse(name, source)
        except EditFailed:
            continue
        calls |= {f".{_dotted(node.func)}" for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [name for name in required if not any(call.endswith(f".{name}") for call in calls)]


def _dotted(node: ast.AST) -> str:
    """The names of `a.b[0].c` as a.b.c; of an attribute of another expression, as in `(x + y).c`, only c."""
    parts = list[str]()
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    return ".".join(reversed([*parts, node.id] if isinstance(node, ast.Name) else parts))


def fixed_seeds(name: str, before: str, after: str) -> list[str]:
    """Places of a file that set a seed to a constant and were not there before; each run of a trial gets its own."""
    try:
        old = {text for _, text in _fixed(name, before.encode(errors="surrogateescape").decode(errors="replace"))}
    except EditFailed:
        old = set()
    return [f"{name}:{line}: {text}" for line, text in _fixed(name, after) if text not in old]


def _fixed(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Lines and sources of calls, keyword arguments, assignments and dictionaries with a constant for a seed."""
    for node in ast.walk(parse(name, source)):
        given = list[tuple[str, ast.AST]]()
        match node:
            case ast.Call():
                given = [(word.arg or "", word.value) for word in node.keywords]
                given += [(_name(node.func), first) for first in node.args[:1]]
            case ast.Assign():
                given = [(_name(target), node.value) for target in node.targets]
            case ast.AnnAssign():
                given = [(_name(node.target), node.value or node)]
            case ast.Dict():
                given = [(_name(key), value) for key, value in zip(node.keys, node.values, strict=True)]
        constant = {what for what, value in given if isinstance(value, ast.Constant) and value.value is not None}
        if SEEDS & {*constant, *map(str.lower, constant)}:
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]


def _name(target: ast.AST | None) -> str:
    """The last name of a function, a variable or an attribute, or the key of an item."""
    key = target.slice if isinstance(target, ast.Subscript) else target
    if isinstance(key, ast.Constant):
        return str(key.value)
    return ast.unparse(key).rpartition(".")[2] if key else ""


def parse(name: str, source: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        EditFailed: it does not compile, or claims an encoding in which Python would read another program than people.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
        compile(source, name, "exec", dont_inherit=True)
        tree = ast.parse(source, name)
    except SyntaxError as wrong:
        line = f": {wrong.text.strip()[:80]!r}" if wrong.text else ""
        raise EditFailed(f"{name}:{wrong.lineno or 1} is not Python: {wrong.msg}{line}") from wrong
    except (RecursionError, MemoryError) as wrong:
        raise EditFailed(f"{name} is nested too deeply to be parsed") from wrong
    except ValueError as wrong:  # a NUL, before Python 3.12, or half a character
        raise EditFailed(f"{name} is not Python: {wrong}") from wrong
    if encoding not in ("utf-8", "utf-8-sig"):
        raise EditFailed(f"{name}:1 claims to be in {encoding}, where a program's files are in utf-8")
    return tree


def meaning_of(source: str) -> str:
    """A digest of a Python file without comments and formatting. Raises EditFailed: it does not compile."""
    return hashlib.sha256(ast.dump(parse("", source)).encode(errors="surrogatepass")).hexdigest()
