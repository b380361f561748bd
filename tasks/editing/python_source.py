"""Reading Python: syntax trees, dotted names, and what a program means."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize


class NotPython(ValueError):
    """A file that Python would not compile; the message names the file, the reason and the place."""


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
