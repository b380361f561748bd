"""The home: which folder it is, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.system import home as module
from tasks.system.home import CODE, home, home_path


def test_the_variable_comes_first_then_the_checkout_and_installed_the_xdg_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("NIGHTSHIFT_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    assert Path(__file__).parents[2] == CODE and home_path() == CODE / "runs"
    monkeypatch.setattr(module, "CODE", tmp_path)  # as if the packages lay in `site-packages`
    for data in ("", "relative"):  # which the specification has ignored
        monkeypatch.setenv("XDG_DATA_HOME", data)
        assert home_path() == tmp_path / "me/.local/share/nightshift"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data/nightshift" and home().stat().st_mode & 0o777 == 0o700
    for stated, found in (("~/nights", tmp_path / "me/nights"), ("nights", tmp_path / "nights")):
        monkeypatch.setenv("NIGHTSHIFT_HOME", stated)
        assert home_path() == found


def test_a_home_that_cannot_be_made_is_refused_with_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "file/runs"))
    with pytest.raises(Refused, match=r"file/runs.*Not a directory.*NIGHTSHIFT_HOME"):
        home()
