"""Places that a user names and that cannot be written are refused with the option, the reason and a remedy."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.arguments import writing
from flows.cli.problems.env_import import import_environment
from flows.cli.problems.verbs import env_new
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
@pytest.mark.parametrize("place", ["/proc/x", "file/below", "file/below/deep", "x" * 300])
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


def test_a_full_disk_has_another_remedy_and_other_faults_are_not_said_to_be_of_the_place(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"--to .*no space left.*: make room there"), writing(tmp_path / "a", "--to"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(Refused, match=r"--to .*Permission denied"), writing(tmp_path / "a", "--to"):
        raise shutil.Error([("from", "to", "[Errno 13] Permission denied: 'to'")])
    for name in (".a.7.half-made/x", "a/b/c", "a"):
        with pytest.raises(Refused), writing(tmp_path / "a", "--to"):
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / name))
    for other in (tmp_path / "original/train.py", tmp_path / "ab", "/etc/shadow"):
        with pytest.raises(PermissionError), writing(tmp_path / "a", "--to"):
            raise PermissionError(errno.EACCES, "Permission denied", str(other))
