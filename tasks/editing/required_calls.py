"""Calls that an edited program must still contain, such as `optimizer.step`.

A check for honest mistakes: it finds an edit that drops the learning step. It does not follow control flow, so a call
in dead code counts. Against deception stand the sandbox, the judge and the control run of the untrained program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from tasks.editing.python_source import NotPython, dotted, parse


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
