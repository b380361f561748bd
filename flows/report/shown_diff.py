"""A diff as the page shows it: lines with their styles."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.system.redact import clean

DIFF_LINES = 400
"""Lines of a diff that are shown; the file has all."""


@dataclass(frozen=True)
class DiffLine:
    text: str
    style: str


def diff_lines(diff: str | None) -> tuple[DiffLine, ...]:
    """A unified diff, each line with its class of the style sheet."""
    lines = clean(diff or "")
    styles = (("+++", "file"), ("---", "file"), ("@@", "hunk"), ("+", "added"), ("-", "removed"), ("diff ", "file"))

    def style(line: str) -> str:
        return next((name for start, name in styles if line.startswith(start)), "same")

    shown = [DiffLine(line, style(line)) for line in lines[:DIFF_LINES]]
    rest = len(lines) - len(shown)
    return tuple(shown + ([DiffLine(f"... {rest} more lines", "hunk")] if rest > 0 else []))
