"""A trial's directory: laid out fresh, edited wholly or not at all, and only where an edit is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from toy import FIT, QUADRATIC, quadratic

import environments
from tasks import workspace
from tasks.trial import Proposal
from tasks.workspace import EditFailed, TrialDir, apply_edit

PROGRAM = "".join(f"line {number}\n" for number in range(1, 13))
GOOD = """\
--- a/train.py
+++ b/train.py
@@ -2,3 +2,3 @@
 line 2
-line 3
+LINE 3
 line 4
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with train.py, which may be edited, and data.py, which may not."""
    folder = tmp_path / "trial/workspace"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "data.py").write_text("data\n")
    (folder / "train.py").chmod(0o644)
    return folder


def edit(place: Path, diff: str, editable: tuple[str, ...] = ("train.py", "net.py", "lib/net.py")) -> None:
    apply_edit(place, diff, editable)


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_a_good_edit_is_applied(place: Path) -> None:
    edit(place, GOOD)
    assert contents(place) == {"train.py": PROGRAM.replace("line 3\n", "LINE 3\n"), "data.py": "data\n"}


@pytest.mark.parametrize(
    ("what", "diff"),
    [
        ("no newline at its end", GOOD.rstrip("\n")),
        ("wrong counts in the hunk's head", GOOD.replace("@@ -2,3 +2,3 @@", "@@ -2,9 +2,4 @@")),
        ("lines that have moved", GOOD.replace("@@ -2,3 +2,3 @@", "@@ -7,3 +7,3 @@")),
        ("the head of a git diff", "diff --git a/train.py b/train.py\nindex 123..456 100644\n" + GOOD),
        ("a sentence before it", "Here is the change:\n\n" + GOOD),
    ],
)
def test_an_edit_is_applied_although_it_has(place: Path, what: str, diff: str) -> None:
    edit(place, diff)
    assert "LINE 3\n" in (place / "train.py").read_text(), what


def test_an_edit_may_be_to_a_file_without_a_newline_at_its_end(place: Path) -> None:
    (place / "train.py").write_text("one\ntwo")
    edit(
        place,
        "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+three\n",
    )
    assert (place / "train.py").read_text() == "one\nthree\n"


def test_an_edit_may_add_a_file_that_is_editable(place: Path) -> None:
    edit(place, "--- /dev/null\n+++ b/lib/net.py\n@@ -0,0 +1,1 @@\n+net\n")
    assert (place / "lib/net.py").read_text() == "net\n"


def git_diff(old: str, new: str, *head: str, body: str = "") -> str:
    """A diff as git writes it."""
    return "\n".join([f"diff --git a/{old} b/{new}", *head, body])


def new_file(name: str, mode: str = "100644", content: str = "x") -> str:
    body = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,1 @@\n+{content}\n"
    return git_diff(name, name, f"new file mode {mode}", body=body)


def moved(how: str, old: str, new: str) -> str:
    return git_diff(old, new, "similarity index 100%", f"{how} from {old}", f"{how} to {new}")


GONE = "--- a/train.py\n+++ /dev/null\n@@ -1,12 +0,0 @@\n" + PROGRAM.replace("line", "-line")
DELETION = git_diff("train.py", "train.py", "deleted file mode 100644", body=GONE)
PASSWD = GOOD.replace("a/train.py", "/etc/passwd").replace("b/train.py", "/etc/passwd")


@pytest.mark.parametrize(
    ("what", "diff", "why"),
    [
        ("another file", GOOD.replace("train.py", "data.py"), "touches 'data.py'; editable: train.py, net.py, lib/net.py"),
        ("two files", GOOD + new_file("config.json"), "the edit touches 'config.json'; editable: "),
        ("a new file beside it", new_file("sitecustomize.py"), "the edit touches 'sitecustomize.py'"),
        ("the one above", new_file("../../trial.json"), "the edit touches '../../trial.json'"),
        ("one through itself", new_file("lib/../data.py"), "the edit touches 'lib/../data.py'"),
        ("an absolute path", PASSWD, "the edit "),
        ("git's own", new_file(".git/hooks/post-checkout"), "the edit touches '.git/hooks/post-checkout'"),
        ("a link", new_file("net.py", "120000", "/etc/passwd"), "the edit has 'create mode 120000 net.py'"),
        ("a link in its place", DELETION + new_file("train.py", "120000", "/etc/passwd"), "the edit "),
        ("a module", new_file("net.py", "160000", "Subproject commit " + "0" * 40), "the edit "),
        ("a rename to it", moved("rename", "data.py", "net.py"), "the edit has 'rename data.py => net.py (100%)'"),
        ("a rename from it", moved("rename", "train.py", "new.py"), "the edit touches 'new.py'"),
        ("a copy of another", moved("copy", "data.py", "net.py"), "the edit has 'copy data.py => net.py (100%)'"),
        ("other lines", GOOD.replace("line 3", "line 33"), "the edit does not apply: patch failed: train.py:2"),
        ("a file that is missing", GOOD.replace("train.py", "net.py"), "net.py: No such file or directory"),
        ("one that is there already", new_file("train.py"), "the edit does not apply: train.py: already exists"),
        ("nothing", "\n", "the edit does not apply: No valid patches in input"),
        ("prose", "Lower the learning rate.\n", "the edit does not apply: No valid patches in input"),
        ("its mode alone", git_diff("data.py", "data.py", "old mode 100644", "new mode 100755"), "the edit touches 'data.py'"),
        ("half a hunk", GOOD[: GOOD.index("+LINE")], "the edit does not apply: "),
    ],
)  # fmt: skip
def test_an_edit_of_anything_else_fails_and_changes_nothing(
    place: Path, what: str, diff: str, why: str
) -> None:
    before = contents(place.parents[1])
    with pytest.raises(EditFailed) as failed:
        edit(place, diff)
    assert why in str(failed.value), what
    assert contents(place.parents[1]) == before
    assert not any(path.is_symlink() for path in place.iterdir())


@pytest.mark.parametrize("name", ["../escaped.py", "lib/../../escaped.py", ".git/config", "/tmp/escaped.py"])
def test_an_edit_never_leaves_its_workspace_not_even_where_an_environment_lists_it(
    place: Path, name: str
) -> None:
    before = contents(place.parents[1])
    with pytest.raises(EditFailed, match=f"the edit (does not apply: invalid path '{name}'|touches)"):
        edit(place, new_file(name), editable=(name,))
    assert contents(place.parents[1]) == before


def test_an_edit_is_applied_wholly_or_not_at_all(place: Path) -> None:
    late = "@@ -9,3 +9,3 @@\n line 9\n-line 99\n+LINE 99\n line 11\n"
    with pytest.raises(EditFailed, match=r"patch failed: train.py:9"):
        edit(place, GOOD + late)
    assert (place / "train.py").read_text() == PROGRAM


def test_a_repository_around_the_campaign_is_not_what_is_patched(place: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "train.py").write_text(PROGRAM)
    edit(place, GOOD)
    assert "LINE 3" in (place / "train.py").read_text()
    assert (tmp_path / "train.py").read_text() == PROGRAM


def test_a_repository_that_a_hook_above_us_speaks_of_is_not_what_is_patched(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)
    (other / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    edit(place, GOOD)
    assert "LINE 3" in (place / "train.py").read_text()
    assert (other / "train.py").read_text() == PROGRAM


def test_the_users_configuration_of_git_does_not_decide_whether_an_edit_applies(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text("[apply]\n\twhitespace = error\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    edit(place, GOOD.replace("+LINE 3", "+LINE 3 "))
    assert "LINE 3 \n" in (place / "train.py").read_text()


def test_a_file_with_an_odd_name_can_be_edited(place: Path) -> None:
    name = 'my "net" é.py'
    (place / name).write_text(PROGRAM)
    quoted = '"a/my \\"net\\" \\303\\251.py"'
    diff = GOOD.replace("a/train.py", quoted).replace("b/train.py", quoted.replace('"a/', '"b/'))
    edit(place, diff, editable=(name,))
    assert "LINE 3" in (place / name).read_text()


def prepared(tmp_path: Path, edit: str | None = None, program: str = FIT) -> TrialDir:
    """A trial that is ready to run in the quadratic environment."""
    environment = environments.load(quadratic(tmp_path / "quad", fit=program))
    frozen = tmp_path / "program"
    (frozen / "lib").mkdir(parents=True, exist_ok=True)
    (frozen / "fit.py").write_text(program)
    (frozen / "lib/net.py").write_text("net\n")
    place = TrialDir(tmp_path / "trials/0003")
    workspace.prepare(place, frozen, environment, Proposal({"x": 1.5}, edit), seed=11)
    return place


def test_a_prepared_workspace_holds_the_program_and_its_configuration(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    assert sorted(contents(place.workspace)) == ["config.json", "fit.py", "lib/net.py"]
    assert list(place.out.iterdir()) == []
    assert json.loads(place.config.read_text()) == {
        "params": {"x": 1.5},
        "seed": 11,
        "budget_seconds": 5.0,
        "budget_steps": 0,
        "device": "auto",
        "out": str(place.out),
        "resume": None,
        "init": None,
        "problem": {},
    }


def test_a_prepared_workspace_has_the_edit_applied_and_the_frozen_program_has_not(tmp_path: Path) -> None:
    edit = "--- a/fit.py\n+++ b/fit.py\n@@ -1,1 +1,2 @@\n+import math\n import argparse, json, pathlib\n"
    place = prepared(tmp_path, edit)
    assert (place.workspace / "fit.py").read_text() == "import math\n" + FIT
    assert (tmp_path / "program/fit.py").read_text() == FIT


def test_what_an_interrupted_life_left_is_wiped(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    (place.workspace / "fit.py").write_text("half written")
    (place.workspace / "cache").mkdir()
    (place.workspace / "cache/x").touch()
    (place.out / "model.json").write_text("old")
    (place.out / "progress.jsonl").write_text('{"ready": true}\n')
    place.judge_log.write_text("old")
    place.result.write_text('{"score": 0}')
    prepared(tmp_path)
    assert sorted(contents(place.path)) == [
        "workspace/config.json",
        "workspace/fit.py",
        "workspace/lib/net.py",
    ]
    assert (place.workspace / "fit.py").read_text() == FIT


@pytest.mark.parametrize("name", ["out", "workspace", "result.json"])
def test_a_link_that_a_program_put_in_the_place_of_its_own_is_wiped_and_not_followed(
    tmp_path: Path, name: str
) -> None:
    place = prepared(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    (place.path / name).rename(place.path / "away") if (place.path / name).exists() else None
    (place.path / name).symlink_to(mine)
    prepared(tmp_path)
    assert not (place.path / name).is_symlink()
    assert contents(mine) == {"thesis.tex": "years of work"}


def test_a_directory_that_a_program_locked_is_wiped(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    locked = place.out / "a/b"
    locked.mkdir(parents=True)
    (locked / "weights").touch()
    for directory in (locked, locked.parent, place.out):
        directory.chmod(0o000)
    prepared(tmp_path)
    assert list(place.out.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/file.json"
    workspace.write(path, "first")
    inode = path.stat().st_ino
    workspace.write(path, "second é\n")
    assert path.read_bytes() == "second é\n".encode()
    assert path.stat().st_ino != inode, "replaced, never written in place"
    assert [child.name for child in path.parent.iterdir()] == ["file.json"], "nothing is left beside it"


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    workspace.write(path, "first")
    with pytest.raises(UnicodeEncodeError):
        workspace.write(path, "second \udce9")
    assert path.read_text() == "first"


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Somebody writes two long texts in turn; every read finds one of them whole."""
    path, texts = tmp_path / "file", ("a" * 300_000, "b" * 300_000)
    workspace.write(path, texts[0])

    def write_in_turn() -> None:
        for number in range(100):
            workspace.write(path, texts[number % 2])

    writer = threading.Thread(target=write_in_turn)
    writer.start()
    while writer.is_alive():
        assert path.read_text() in texts
    writer.join()


def test_the_environment_of_git_has_nothing_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/somewhere/.git")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "meld")
    seen = workspace.git_environment()
    assert "GIT_DIR" not in seen and "GIT_EXTERNAL_DIFF" not in seen
    assert seen["PATH"] == os.environ["PATH"]


def test_an_edit_of_an_environment_that_lists_no_editable_file_fails(tmp_path: Path, place: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace('editable = ["fit.py"]', "editable = []"))
    with pytest.raises(EditFailed, match=r"the edit touches 'train.py'"):
        edit(place, GOOD, environments.load(folder).editable)
