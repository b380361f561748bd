"""Removing what a program left: any tree at all, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

from tasks.system import file_trees


def test_a_tree_is_removed_with_closed_folders_and_links_and_not_what_those_lead_to(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir(mode=0o500)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "file").chmod(0o400)
    (tree / "closed/inner").mkdir(parents=True)
    (tree / "closed/inner/file").touch(0)
    for name, target in {"a": kept, "closed/b": tmp_path / "file", "closed/c": tmp_path, "d": Path("nowhere")}.items():
        (tree / name).symlink_to(target)
    for folder in (tree / "closed/inner", tree / "closed", tree):
        folder.chmod(0)
    file_trees.remove(tree)
    assert not tree.exists() and (tmp_path / "file").read_text() == "mine"
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "file", kept)] == [0o400, 0o500]
