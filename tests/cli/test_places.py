"""Places that a user names and that cannot be written are refused with the option, the reason and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.env_import import import_environment
from flows.cli.problems import env_new
from flows.cli.taking import export
from tests.importing.test_prime_rl import OLD
from tests.support.ledgers import created, stored

Command = Callable[[Path, Path], object]


def new(folder: Path, to: Path) -> object:
    return env_new(to)


def imported(folder: Path, to: Path) -> object:
    (folder / "theirs").mkdir()
    (folder / "theirs/train.toml").write_text(OLD)
    return import_environment(str(folder / "theirs"), to, "")


def exported(folder: Path, to: Path) -> object:
    ledger = created(folder)
    stored(ledger, 3.0, 2.0)
    return export(ledger.campaign.name, to=to)


@pytest.mark.parametrize("command", [new, imported, exported])
@pytest.mark.parametrize("place", ["/proc/x", "file/below"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, place: str
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "runs"))
    (tmp_path / "file").write_text("theirs")
    to = tmp_path / place
    with pytest.raises(Refused) as refused:
        command(tmp_path, to)
    words = str(refused.value)
    assert words.startswith(("FOLDER ", "--to ")) and str(to) in words and words.count("Errno") == 0
    assert ": it cannot be written (" in words and words.endswith(": name a new place in a folder that you may write")
    assert not [path for path in tmp_path.iterdir() if "half-made" in path.name]
    assert (tmp_path / "file").read_text() == "theirs"
