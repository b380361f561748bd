"""Removing what a program left: any tree at all, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

from tasks.system import file_trees


def test_links_inside_a_tree_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "file").chmod(0o400)
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for name, target in {"a": kept, "sub/b": tmp_path / "file", "sub/c": tmp_path, "d": Path("nowhere")}.items():
        (tree / name).symlink_to(target)
    file_trees.remove(tree)
    assert not tree.exists() and (tmp_path / "file").read_text() == "mine"
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "file", kept)] == [0o400, 0o500]


def test_folders_that_nobody_may_enter_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "closed/inner").mkdir(parents=True)
    (tree / "closed/inner/file").touch(0)
    for folder in (tree / "closed/inner", tree / "closed", tree):
        folder.chmod(0)
    file_trees.remove(tree)
    assert not tree.exists()
