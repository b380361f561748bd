"""Reading Python: syntax trees and dotted names."""

from __future__ import annotations

import ast
import hashlib
import threading
import warnings

_WARNING_FILTERS = threading.Lock()
"""Warning filters are global to the process, so only one thread may change them at a time."""


class NotPython(ValueError):
    """A file that Python would not compile; the message names the file, the reason and the place."""


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


def meaning_of(source: str) -> str:
    """A digest of a file without comments, docstrings and formatting.

    Raises:
        NotPython: it does not compile.
    """
    return hashlib.sha256(_dumped(parse("", source)).encode(errors="surrogatepass")).hexdigest()


def _dumped(tree: ast.AST) -> str:
    """A tree as text, node before children; statements that do nothing are left out. Twice as fast as ast.dump."""
    words: list[str] = []
    left: list[object] = [tree]
    while left:
        thing = left.pop()
        if isinstance(thing, ast.AST):
            words.append(type(thing).__name__)
            left += [getattr(thing, name, None) for name in thing._fields]
        elif isinstance(thing, list):
            kept = [part for part in thing if not _does_nothing(part)]
            words.append(f"[{len(kept)}")
            left += kept
        else:
            words.append(hex(thing) if type(thing) is int else repr(thing))  # repr refuses 5000 digits
    return "\n".join(words)


def _does_nothing(part: object) -> bool:
    """Whether it is a docstring, a text in place of a comment, `...` or `pass`."""
    is_constant = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    return is_constant or isinstance(part, ast.Pass)
