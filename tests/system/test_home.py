"""The home: which folder it is, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.system import home as module
from tasks.system.home import CODE, home, home_path, install_extra

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NIGHTSHIFT_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))


@pytest.fixture
def installed(unset: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the packages lay in `site-packages`."""
    monkeypatch.setattr(module, "CODE", tmp_path)


@pytest.mark.usefixtures("unset")
def test_the_variable_comes_first_and_then_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert CODE == CHECKOUT and home_path() == CHECKOUT / "runs"
    monkeypatch.setenv("NIGHTSHIFT_HOME", "~/nights")
    assert home_path() == tmp_path / "me/nights"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTSHIFT_HOME", "nights")
    assert home_path() == tmp_path / "nights"


@pytest.mark.usefixtures("installed")
def test_installed_it_is_in_the_xdg_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert home_path() == tmp_path / "me/.local/share/nightshift"
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert home_path() == tmp_path / "me/.local/share/nightshift", "the specification has relative ones ignored"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data/nightshift"
    assert (tmp_path / "data/nightshift").stat().st_mode & 0o777 == 0o700
    assert "whl[ppo]" in install_extra("ppo")


def test_a_home_that_cannot_be_made_is_refused_with_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "file/runs"))
    with pytest.raises(Refused, match=r"file/runs.*Not a directory.*NIGHTSHIFT_HOME"):
        home()
