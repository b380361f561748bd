"""Files: lines that a kill cut short, and trees that are removed."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tasks.system import file_trees
from tasks.system.files import append_line, read_lines, write_atomic


def test_a_line_that_a_kill_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"n": 0}\n3\n\xff\xfe\n{"n": 1')
    assert read_lines(path) == [{"n": 0}]
    append_line(path, '{"n": 2}')
    assert read_lines(path) == [{"n": 0}, {"n": 2}]


def test_a_file_that_does_not_fit_leaves_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_atomic(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=str(path)):
            write_atomic(path, "new" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]


# Removing what a program left: any tree at all, and nothing beside it.


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
