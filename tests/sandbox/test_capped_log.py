"""A program's log keeps its beginning and its end, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.sandbox.capped_log import LINE_CHARACTERS, LOG_KEPT_HEAD, LOG_KEPT_TAIL, CappedLog

KEY = b"sk-canary-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY.decode())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_secret_is_neither_in_the_file_nor_in_the_tail_however_it_is_printed(tmp_path: Path, size: int) -> None:
    log, printed = CappedLog(tmp_path / "log.txt"), b"key: " + KEY + b"\nkey again: " + KEY + KEY[:9]
    for at in range(0, len(printed), size):
        log.write(printed[at : at + size])
    log.close()
    expected = "key: [secret OPENAI_API_KEY]\nkey again: [secret OPENAI_API_KEY]sk-canary"
    assert (tmp_path / "log.txt").read_text() == log.tail(9) == expected


@pytest.mark.slow
def test_of_a_long_log_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log.txt")
    line = b"%07d a line of a program\n"
    for number in range(100_000):
        log.write(line % number)
    log.close()
    text = (tmp_path / "log.txt").read_bytes()
    note = b"\n[... %d bytes left out ...]\n" % (100_000 * len(line % 0) - LOG_KEPT_HEAD - LOG_KEPT_TAIL)
    assert len(text) == LOG_KEPT_HEAD + LOG_KEPT_TAIL + len(note) and text[LOG_KEPT_HEAD:].startswith(note)
    assert text.startswith(line % 0) and text.endswith(line % 99_999)


def test_a_tail_is_safe_to_print_and_short(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log.txt")
    log.write(b"\x1b]0;title\x07\x1b[2Jone\r\x1b[Atwo\n" + b"y" * 1000 + b"\nKeyError: '\xff\xe2\x80\xae'\n")
    log.close()
    assert log.tail(9).splitlines() == [
        "one",
        "two",
        "y" * LINE_CHARACTERS + " [500 more characters]",
        "KeyError: '\N{REPLACEMENT CHARACTER}<U+202E>'",
    ]
