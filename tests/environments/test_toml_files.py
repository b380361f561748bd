"""Files that are not TOML: the error shows the line, and what was meant where that is plain."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.plugins import Refused
from environments.toml_files import read_toml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("metric = accuracy", ': metric = accuracy: a text stands in quotes: metric = "accuracy"'),
        ('title = "x"\ndirection = maximize # up', 'direction = "maximize"'),
        ("network = True", ": TOML writes network = true"),
        ('train_cmd = "python train.py', ': train_cmd = "python train.py'),
        ('metric = "a"\nmetric = "b"', "overwrite"),
        ("[space.lr\nlow = 1", ": [space.lr"),
        ("=", ": ="),
    ],
)
def test_the_line_that_is_wrong_is_shown(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "environment.toml"
    path.write_text(text + "\n")
    with pytest.raises(Refused) as refused:
        read_toml(path)
    assert str(refused.value).startswith(f"{path}: not TOML: ") and told in str(refused.value)


def test_a_file_of_bytes_and_a_line_without_end_are_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "environment.toml"
    for data in (b"\xff\xfe", b"a = " + b"x" * 10**6):
        path.write_bytes(data)
        with pytest.raises(Refused, match="not TOML") as refused:
            read_toml(path)
        assert len(str(refused.value)) < 1000
