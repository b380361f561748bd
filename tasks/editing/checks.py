"""Checks of an edited program's files, as plain functions of texts, for tasks/sandbox/reading/reader.py to run.

They are for honest mistakes: a call in dead code counts as one. Against deception stand the sandbox, the judge and the
control run of the untrained program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from tasks.editing import fixed_seeds, patches
from tasks.editing.patches import EditFailed
from tasks.editing.python_source import NotPython, dotted, parse


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
    before = {name: _plain(files[name]) for name in after if name in files}
    python = {name: text for name, text in after.items() if name.endswith(".py")}
    try:
        for name, source in python.items():
            parse(name, source)
        missing = missing_calls({**program, **python}, required)
        fixed = fixed_seeds.added({name: before[name] for name in python if name in before}, python)
    except NotPython as wrong:
        raise EditFailed(f"the edited program is not Python: {wrong}") from wrong
    except RecursionError as deep:
        raise EditFailed("the edited program is nested too deeply to be followed") from deep
    if missing:
        calls = ", ".join(f"{name}()" for name in missing)
        raise EditFailed(f"the edited program never calls {calls}, which {environment} requires: keep the call")
    for site in fixed:
        raise EditFailed(f"the edit fixes a seed, {site.file}:{site.line}: {site.text}; use the one in config.json")
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


def _plain(text: str) -> str:
    """A text without the surrogates of bytes that are not UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
