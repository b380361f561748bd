"""The lineage repository: a commit per trial, the same for the same trial, whoever's git it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.arguments import placed
from tasks.editing.edits import patched
from tasks.store import lineage
from tasks.store.workspace import TrialDir
from tasks.trial import Trial
from tests.support.histories import decided
from tests.support.toy import folder_of

PROGRAM = ("train.py", "lib/net.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "runs/night/lineage.git"


def place_of(tmp_path: Path, number: int) -> TrialDir:
    """A trial's directory with a program in its workspace."""
    place = TrialDir(tmp_path / f"runs/night/trials/{number:04d}")
    folder_of(place.workspace, {"train.py": f"version {number}\n", "lib/net.py": "net\n"})
    return place


def two_trials() -> tuple[Trial, Trial]:
    first = decided((), 1.0, {"x": 1.0, "a": "é"})
    return first, decided((first,), 2.0, {"x": 2.0, "a": "é"})


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trial_is_the_same_commit_each_time_on_its_parent_with_program_and_parameters(
    tmp_path: Path, repository: Path
) -> None:
    first, second = two_trials()
    places = place_of(tmp_path, 0), place_of(tmp_path, 1)
    (places[0].workspace / "config.json").write_text("{}")
    commits = [lineage.commit(repository, places[t.number], t, PROGRAM) for t in (first, second)]
    files = git(repository, "ls-tree", "-r", "--name-only", commits[0]).split()
    assert files == ["lib/net.py", "params.json", "train.py"]
    assert git(repository, "show", f"{commits[0]}:params.json") == '{\n  "a": "\\u00e9",\n  "x": 1.0\n}\n'
    assert git(repository, "log", "-1", "--format=%P %s", commits[1]).strip() == f"{commits[0]} trial 1: keep"
    assert [lineage.commit(repository, places[t.number], t, PROGRAM) for t in (second, first)] == commits[::-1]
    assert lineage.commits(repository) == dict(enumerate(commits))
    for number in (0, 1, 1, 0):
        lineage.crown(repository, number)
        assert git(repository, "rev-parse", "champion").strip() == commits[number]
    assert git(repository, "rev-parse", "baseline").strip() == commits[0]


def test_the_patch_of_a_trial_is_an_edit_of_the_program_without_its_parameters(
    tmp_path: Path, repository: Path
) -> None:
    for trial in two_trials():
        lineage.commit(repository, place_of(tmp_path, trial.number), trial, PROGRAM)
    program, patch = {"train.py": "version 0\n", "lib/net.py": "net\n"}, lineage.patch(repository, 1)
    edit = placed(patch, "--diff", program, ["train.py"])
    assert patched(program, edit) == {**program, "train.py": "version 1\n"}
    parameters = patch[: patch.index("diff --git a/train.py")]
    with pytest.raises(Refused, match=r"nothing but params\.json"):
        placed(parameters, "--diff", program, ["train.py"])
    own = program | {"params.json": '{\n  "a": "\\u00e9",\n  "x": 1.0\n}\n'}
    assert "params.json" in placed(parameters, "--diff", own, ["params.json"]), "a program that has such a file"


def test_a_repository_whose_making_was_killed_is_completed_and_not_mistaken_for_one_around_it(
    tmp_path: Path, repository: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (repository / "refs").mkdir(parents=True)
    (repository / "config.lock").touch()
    lineage.unlock(repository)
    commits = [lineage.commit(repository, place_of(tmp_path, t.number), t, PROGRAM) for t in two_trials()]
    lineage.crown(repository, 1)
    assert lineage.commits(repository) == dict(enumerate(commits))
    assert git(tmp_path, "for-each-ref") == ""
    (repository / "refs/heads/champion.lock").touch()
    lineage.unlock(repository)
    lineage.crown(repository, 0)
