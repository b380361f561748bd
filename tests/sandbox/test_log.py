"""A program's log keeps no secret, and its end is safe to print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.sandbox.program import LINE_CHARACTERS, ScrubbedLog

KEY = b"sk-canary-0123456789"


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_secret_is_neither_in_the_file_nor_in_the_tail_however_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY.decode())
    log, printed = ScrubbedLog(tmp_path / "log.txt"), b"key: " + KEY + b"\nkey again: " + KEY + KEY[:9]
    for at in range(0, len(printed), size):
        log.write(printed[at : at + size])
    log.close()
    expected = "key: [secret OPENAI_API_KEY]\nkey again: [secret OPENAI_API_KEY]sk-canary"
    assert (tmp_path / "log.txt").read_text() == "\n".join(log.tail()) == expected


def test_a_tail_is_safe_to_print_and_short(tmp_path: Path) -> None:
    log = ScrubbedLog(tmp_path / "log.txt")
    log.write(b"\x1b]0;title\x07\x1b[2Jone\r\x1b[Atwo\n" + b"y" * 1000 + b"\nKeyError: '\xff\xe2\x80\xae'\n")
    log.close()
    long = "y" * LINE_CHARACTERS + " [500 more characters]"
    assert log.tail() == ["one", "two", long, "KeyError: '\N{REPLACEMENT CHARACTER}<U+202E>'"]
