"""A trial's directory: laid out fresh, and nothing that a program left in it survives or is followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import environments
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.trial import Proposal
from tests.support.toy import quadratic


def prepared(tmp_path: Path, edit: str | None = None) -> TrialDir:
    """A trial that is ready to run in the quadratic environment, whose frozen program nobody may write."""
    environment, frozen = environments.load(quadratic(tmp_path / "quad")), tmp_path / "program"
    if not frozen.exists():
        frozen.mkdir()
        (frozen / "fit.py").write_text("one = 1\n")
        (frozen / "fit.py").chmod(0o444)
    place = TrialDir(tmp_path / "trials/0003")
    workspace.prepare(place, frozen, environment, Proposal({"x": 1.5}, edit), seed=11)
    return place


def test_the_paths_of_a_configuration_follow_a_home_that_was_moved(tmp_path: Path) -> None:
    environment, place = environments.load(quadratic(tmp_path / "quad")), prepared(tmp_path)
    before, digest = json.loads(place.config.read_text()), workspace.program_digest(place)
    place.path.rename(tmp_path / "moved")
    moved = TrialDir(tmp_path / "moved")
    workspace.relocate(moved, environment)
    assert json.loads(moved.config.read_text()) == before | {"out": str(moved.out)}
    assert workspace.program_digest(moved) == digest and moved.config.stat().st_mode & 0o444 == 0o444
    write_atomic(moved.config, "[" * 100_000)
    workspace.relocate(moved, environment)
    assert moved.config.read_text() == "[" * 100_000, "a program that breaks it fails for that"


@pytest.mark.parametrize("name", ["out", "workspace", "judged"])
def test_a_link_that_a_program_put_in_the_place_of_its_own_is_wiped_and_not_followed(tmp_path: Path, name: str) -> None:
    place = prepared(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    (place.path / name).rename(place.path / "away") if (place.path / name).exists() else None
    (place.path / name).symlink_to(mine)
    prepared(tmp_path)
    assert not (place.path / name).is_symlink()
    assert [path.read_text() for path in mine.iterdir()] == ["years of work"]


def test_an_edit_applies_to_a_frozen_program_whose_files_nobody_may_write(tmp_path: Path) -> None:
    """As an ordinary user, too: root would be let through, so what counts is the mode."""
    place = prepared(tmp_path, "--- a/fit.py\n+++ b/fit.py\n@@ -1 +1 @@\n-one = 1\n+one = 2\n")
    assert (place.workspace / "fit.py").read_text() == "one = 2\n"
    assert (place.workspace / "fit.py").stat().st_mode & 0o200
