"""TOML that cannot be read is refused with its file, and with what the parser says."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import toml_file
from environments.plugins import Refused


def test_a_file_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(Refused, match=f"{path}: (No such file|Is a directory)"):
            toml_file.read(path)


@pytest.mark.parametrize(
    "text",
    [b"first = 1\nmetric = loss", b"a = \xff", b"a = \x1b[2Jx", b"a = 1" + b"x" * 100_000, b"x = " + b"[" * 5000],
)
def test_what_is_not_toml_is_refused_in_a_plain_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "environment.toml"
    path.write_bytes(text)
    with pytest.raises(Refused, match=f"{path}: not TOML: ") as refused:
        toml_file.read(path)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 500
