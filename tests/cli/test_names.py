"""The doctor's check of the names of our packages: who else has a module of such a name."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from flows.cli.doctor.names import names, sharing


def test_modules_of_our_names_in_the_current_folder_are_told_by_what_they_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tasks.py", "blocks/mine.py", "environments/notes.txt", "flows/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    check = names()
    assert check.state == "note" and check.remedy
    assert check.details["first"] == [str(tmp_path / "flows/__init__.py"), str(tmp_path / "tasks.py")]
    assert check.details["hidden"] == [str(tmp_path / "blocks")]


def test_another_nightshift_on_the_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flows/cli").mkdir(parents=True)
    (tmp_path / "flows/cli/app.py").touch()
    (tmp_path / "tasks.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    check = names()
    assert check.state == "note" and str(tmp_path) in check.fact
    assert (check.details["others"], check.details["first"]) == ([str(tmp_path)], [])


def test_a_distribution_with_files_in_our_packages_is_named(tmp_path: Path) -> None:
    for name, record in (("other", "tasks/__init__.py,,\n"), ("fine", "fine/tasks/__init__.py,,\nmytasks.py,,\n")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(record)
    assert sharing(importlib.metadata.distributions(path=[str(tmp_path)])) == {"other": ["tasks"]}
