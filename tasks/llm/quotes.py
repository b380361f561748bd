"""Quotes of foreign text in a prompt: the output of programs, the words of models and people.

Marked line by line as data (tasks.system.redact.quote), without secrets or hidden characters, and capped.
"""

from __future__ import annotations

from collections.abc import Iterable

from tasks.system.redact import capped, clean, quote

WIDTH = 200
"""Characters of a quoted line."""


def data(text: str, lines: int, width: int = WIDTH) -> str:
    """Foreign text, quoted and capped: the first line, which says most, and the last ones."""
    every = clean(text)
    left_out = len(every) - lines
    if left_out > 0:
        note = f"[{left_out} line{'s' * (left_out != 1)} left out]"
        every = [every[0], note, *every[len(every) - lines + 1 :]]
    return quote("\n".join(every), width, len(every))


def one_line(text: str, most: int) -> str:
    """Foreign text as a single line without hidden characters, of at most `most` characters and a note."""
    return capped(" ".join(" ".join(clean(text)).split()), most)


def listed(lines: Iterable[str]) -> str:
    """Lines of foreign text as one quote; empty without any."""
    kept = [one_line(line, 2 * WIDTH) for line in lines]
    return quote("\n".join(kept), 3 * WIDTH, len(kept)) if kept else ""
