"""Pieces of markdown that hold whatever is in them."""

from __future__ import annotations

from collections.abc import Sequence


def in_markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A table, of a heading and rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def code(value: object) -> str:
    """Any value as it is; a bar would end a cell, and a backtick the code."""
    line = " ".join(str(value).split()).replace("`", "'").replace("|", "/")
    return f"`{line}`"
