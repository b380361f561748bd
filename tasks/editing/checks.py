"""Checks of an edited program's files, as plain functions of texts, for tasks/sandbox/reading/reader.py to run.

They are for honest mistakes: a call in dead code counts as one, and a seed is fixed only where that is written in one
place. Against deception stand the sandbox, the judge and the control run of the untrained program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tasks.editing import patches
from tasks.editing.patches import EditFailed
from tasks.editing.python_source import NotPython, dotted, parse

SEEDERS = frozenset({
    "seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all", "set_seed", "set_random_seed",
    "default_rng", "PRNGKey", "Random", "RandomState", "SeedSequence",
})  # fmt: skip
"""Calls, by the last part of their name, whose first argument is a seed."""
SEEDS = frozenset({"seed", "random_seed", "random_state", "rng_seed"})
"""Keyword arguments, variables, attributes and keys that hold a seed."""


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

    Raises:
        EditFailed: it does not apply or is not allowed; a file is no Python although its name says so; a call that the
            environment requires is left out; a seed is fixed.
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
