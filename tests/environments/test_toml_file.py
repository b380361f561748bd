"""A mistake in TOML is refused with its line and with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import toml_file
from environments.plugins import Refused


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("metric = loss", "line 2: metric = loss", 'metric = "loss"'),
        ("metric = return/mean # of it", "line 2: metric", 'metric = "return/mean"'),
        ("space.lr = { type = float, low = 1e-4 }", "line 2: space.lr", 'type = "float"'),
        ("program = [train.py]", "line 2: program", 'program = ["train.py"]'),
        ("deterministic = True", "line 2: deterministic", "deterministic = true"),
        ("prepared = None", "line 2: prepared", "leave out prepared"),
        ("range: [0, 1]", "line 2: range", "range = [0, 1]"),
        ('metric "loss"', "line 2: metric", 'metric = "loss"'),
        ("metric", "line 2: metric", "metric = ..."),
        ("metric =", "line 2: metric", "write a value"),
        ("[space.lr", "line 2: [space.lr", "[space.lr]"),
        ('title = "of mine', "line 2: title", "close the quotes"),
        ('path = "C:\\Users"', "line 2: path", "single quotes"),
        ("first = 2", "line 2: first", "twice"),
        ("[a]\n[a]", "line 3: [a]", "twice"),
        ('program = ["train.py"', "line 2: program", "close the list"),
    ],
)
def test_a_mistake_is_quoted_with_what_to_write(tmp_path: Path, text: str, line: str, remedy: str) -> None:
    path = tmp_path / "environment.toml"
    path.write_text(f"first = 1\n{text}\n")
    with pytest.raises(Refused) as refused:
        toml_file.read(path)
    head, quoted, advice = str(refused.value).split("\n  ")
    assert head.startswith(f"{path}: not TOML: ")
    assert quoted.startswith(line) and remedy in advice


def test_a_file_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(Refused, match=f"{path}: (No such file|Is a directory)"):
            toml_file.read(path)


@pytest.mark.parametrize(
    "text", ["a = \x1b[2Jx", "a = 1" + "x" * 100_000, "x = " + "[" * 5000, "a = 1\x0bb = c\nd = e"]
)
def test_a_hostile_file_is_refused_in_a_few_plain_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "environment.toml"
    path.write_text(text)
    with pytest.raises(Refused, match="not TOML: ") as refused:
        toml_file.read(path)
    lines = str(refused.value).split("\n")
    assert len(lines) <= 3 and all(line.isprintable() and len(line) < 500 for line in lines)
