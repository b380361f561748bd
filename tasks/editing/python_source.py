"""Reading a program's Python files: their text, their syntax trees, dotted names."""

from __future__ import annotations

import ast
import threading
import warnings
from pathlib import Path

import environments

_WARNING_FILTERS = threading.Lock()
"""Warning filters are global to the process, so only one thread may change them at a time."""


class NotPython(ValueError):
    """A file that Python would not compile; the message names the file, the reason and the place."""


def sources(folder: Path) -> dict[str, str]:
    """The Python files of a program, by their paths in it."""
    python = [path for path in environments.files(folder) if path.suffix == ".py"]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace") for path in python}


def parse(name: str, source: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        NotPython: it does not compile.
    """
    try:
        with _WARNING_FILTERS, warnings.catch_warnings(action="ignore"):
            compile(source, name, "exec", dont_inherit=True)
            return ast.parse(source, name)
    except SyntaxError as wrong:
        place = f":{wrong.lineno}" if wrong.lineno else ""
        line = f": {wrong.text.strip()[:80]!r}" if wrong.text else ""
        raise NotPython(f"{name}{place}: {wrong.msg}{line}") from wrong
    except (RecursionError, MemoryError) as wrong:
        raise NotPython(f"{name}: nested too deeply to be parsed") from wrong
    except ValueError as wrong:  # a NUL, before Python 3.12
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
