"""Pieces of markdown that hold any text safely."""

from __future__ import annotations

from collections.abc import Sequence


def in_markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A table; the first row is the heading."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def code(value: object) -> str:
    """Any value as code; a bar would end a table cell, and a backtick the code, so both are replaced."""
    line = " ".join(str(value).split()).replace("`", "'").replace("|", "/")
    return f"`{line}`"
