"""Files and folders that a user names and that cannot be read or written are named, with the reason, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.test_prime_rl import OLD
from tests.support.ledgers import created, stored
from tests.support.toy import nightshift


@pytest.mark.parametrize("verb", ["new", "import", "export", "read"])
def test_a_place_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, home: Path, verb: str) -> None:
    (tmp_path / "file").write_text("theirs")
    below = str(tmp_path / "file/below")
    if verb == "import":
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/train.toml").write_text(OLD)
    if verb in ("export", "read"):
        stored(created(tmp_path), 3.0, 2.0)
    arguments = {
        "new": ("env", "new", below),
        "import": ("env", "import", str(tmp_path / "theirs"), "--to", below),
        "export": ("export", "n", "--to", below),
        "read": ("propose", "n", "--diff", below),
    }
    done = nightshift(*arguments[verb])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert str(tmp_path / "file") in done.stderr and ("Not a directory" in done.stderr or "exists" in done.stderr)
    assert (tmp_path / "file").read_text() == "theirs"
