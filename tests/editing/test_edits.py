"""Code edits: applied wholly or not at all, only where that is allowed, and only to text that Python would take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import environments
from environments import Environment
from tasks.editing.checks import fixed_seeds, missing_calls, parse
from tasks.editing.edits import EditFailed, apply_edit
from tests.support.toy import folder_of, quadratic

PROGRAM = "".join(f"line = {number}\n" for number in range(1, 13))
GOOD = """\
--- a/train.py
+++ b/train.py
@@ -2,3 +2,3 @@
 line = 2
-line = 3
+LINE = 3
 line = 4
"""
OUTSIDE = ("../escaped.py", "lib/../../escaped.py", ".git/config", "lib/.GIT/config", "/tmp/escaped.py")
EDITABLE = ("train.py", "net.py", "lib/net.py", "notes.txt", *OUTSIDE)
"""An edit never leaves its workspace, not even where an environment lists what is outside."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with train.py and notes.txt, which may be edited, and data.py, which may not."""
    files = {"train.py": PROGRAM, "notes.txt": "notes\n", "data.py": "data\n"}
    return folder_of(tmp_path / "trial/workspace", files)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environments.load(quadratic(tmp_path_factory.mktemp("environment") / "quad"))


def edit(place: Path, problem: Environment, diff: str, **fields: tuple[str, ...]) -> None:
    apply_edit(place, diff, problem.model_copy(update={"editable": EDITABLE, **fields}))


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file and link with its mode, and what is read there."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): (path.lstat().st_mode, path.read_bytes()) for path in files}


def refusal(place: Path, problem: Environment, diff: str, **fields: tuple[str, ...]) -> str:
    """What an edit is refused with, which leaves everything as it was."""
    before = contents(place.parents[1])
    with pytest.raises(EditFailed) as failed:
        edit(place, problem, diff, **fields)
    assert contents(place.parents[1]) == before
    return str(failed.value)


def git_diff(old: str, new: str, *head: str, body: str = "") -> str:
    """A diff as git writes it."""
    return "\n".join([f"diff --git a/{old} b/{new}", *head, body])


def new_file(name: str, mode: str = "100644", content: str = "x") -> str:
    body = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,1 @@\n+{content}\n"
    return git_diff(name, name, f"new file mode {mode}", body=body)


def test_a_good_edit_is_applied_and_changes_nothing_else(place: Path, problem: Environment) -> None:
    (place / "train.py").chmod(0o755)
    before = contents(place)
    edit(place, problem, git_diff("train.py", "train.py", body=GOOD) + new_file("lib/net.py", content="net"))
    assert (place / "lib/net.py").read_text() == "net\n"
    (place / "lib/net.py").unlink()
    mode, text = before[Path("train.py")]
    assert contents(place) == {**before, Path("train.py"): (mode, text.replace(b"line = 3\n", b"LINE = 3\n"))}


GONE = "--- a/train.py\n+++ /dev/null\n@@ -1,12 +0,0 @@\n" + PROGRAM.replace("line", "-line")
BINARY = "GIT binary patch\nliteral 3\nKcmZQzU|?hb0RR91\n\n"
RENAME = git_diff("data.py", "net.py", "similarity index 100%", "rename from data.py", "rename to net.py")
QUOTED = GOOD.replace("a/train.py", '"a/\\056\\056/train.py"').replace("b/train.py", '"b/\\056\\056/train.py"')


@pytest.mark.parametrize(
    ("what", "diff", "why"),
    [
        ("a quoted way out", QUOTED, "the edit does not apply"),
        ("a link", new_file("net.py", "120000", "/etc/passwd"), "the edit has 'create mode 120000 net.py'"),
        ("a rename to it", RENAME, "data.py: No such file"),
        ("its removal", GONE, "touches or removes 'train.py'"),
        ("bytes", git_diff("train.py", "train.py", "index 123..456 100644", body=BINARY), "the edit "),
        ("a NUL", GOOD.replace("LINE", "\0"), "the edit leaves a NUL in 'train.py'"),
        ("other lines", GOOD.replace("= 3", "= 33"), "the edit does not apply"),
        ("one that is there already", new_file("train.py"), "train.py: already exists"),
        *((f"a file {name}", new_file(name), "the edit ") for name in OUTSIDE),
    ],
)  # fmt: skip
def test_an_edit_of_anything_else_fails_and_changes_nothing(
    place: Path, problem: Environment, what: str, diff: str, why: str
) -> None:
    assert why in refusal(place, problem, diff), what


def test_an_edit_does_not_follow_a_link(place: Path, problem: Environment, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/net.py").write_text(PROGRAM)
    (place / "lib").symlink_to(tmp_path / "mine")
    (place / "net.py").symlink_to(tmp_path / "mine/net.py")
    for name in ("lib/net.py", "net.py"):
        diff = GOOD.replace("train.py", name)
        assert f"{name!r}, which a link leads to" in refusal(place, problem, diff, editable=(name,))


def test_an_edit_is_applied_wholly_or_not_at_all(place: Path, problem: Environment) -> None:
    late = "@@ -9,3 +9,3 @@\n line = 9\n-line = 99\n+LINE = 99\n line = 11\n"
    assert "does not apply" in refusal(place, problem, GOOD + late)
    assert "net.py:1 is not Python" in refusal(
        place, problem, git_diff("train.py", "train.py", body=GOOD) + new_file("net.py", content="x = (")
    )


def test_no_repository_around_the_campaign_or_above_us_is_what_is_patched(
    place: Path, problem: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "other"):
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        (folder / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    edit(place, problem, GOOD)
    assert "LINE = 3" in (place / "train.py").read_text()
    assert [(folder / "train.py").read_text() for folder in (tmp_path, tmp_path / "other")] == [PROGRAM] * 2


# Checks of an edited program: the calls that it must make, and the seeds that it must not fix.


@pytest.mark.parametrize(
    ("source", "is_met"),
    [
        ("self.optimizer.step()", True),
        ("self.optimizer[0].step()", True),
        ("if False:\n    optimizer.step()", True),
        ("# optimizer.step()\n'optimizer.step()'\nstep = optimizer.step", False),
        ("my_optimizer.step()\noptimizer.step_all()\noptimizer.step.now()", False),
    ],
)
def test_a_call_counts_wherever_it_stands_and_a_name_without_its_call_does_not(source: str, is_met: bool) -> None:
    assert missing_calls({"train.py": source}, ["optimizer.step"]) == ([] if is_met else ["optimizer.step"])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1\nif x\n", "train.py:2 is not Python: expected ':': 'if x'"),
        ("# coding: utf-7\nx = 1\n", "train.py:1 claims to be in utf-7"),
        ("x = " + "-" * 100_000 + "1", "train.py is nested too deeply"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_python_would_not_take_is_told_with_its_place(source: str, why: str) -> None:
    with pytest.raises(EditFailed) as wrong:
        parse("train.py", source)
    assert why in str(wrong.value)


@pytest.mark.parametrize(
    ("line", "is_fixed"),
    [
        ("torch.manual_seed(0)", True),
        ("seed: int = 3", True),
        ("seed: int", False),
        ("env.reset(seed=3)", True),
        ("seed = 3", True),
        ("config['seed'] = 3", True),
        ("config = {**config, 'seed': 3}", True),
        ("rng = np.random.default_rng(config['seed'] + 1)", False),
        ("seed = config['seed']", False),
        ("# torch.manual_seed(0)", False),
        ("x = 1\nnp.random.seed(7)", False),  # one that was there already may stay and move
    ],
)
def test_a_seed_that_is_fixed_is_found_with_its_line(line: str, is_fixed: bool) -> None:
    found = fixed_seeds("train.py", "import torch\nnp.random.seed(7)\n", f"import torch\n{line}\n")
    assert [site.split(": ")[0] for site in found] == ["train.py:2"] * is_fixed
