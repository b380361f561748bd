"""Taking a champion along: the folder trains and scores as the campaign's champion did, and holds what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.engine.certifying import store
from flows.export.branch import make_branch
from flows.export.folder import export
from flows.spec.campaign_spec import CampaignSpec
from tasks.sandbox import outputs
from tasks.store import lineage
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tests.support.finished import Finished
from tests.support.histories import certified
from tests.support.ledgers import created, stored
from tests.support.toy import QUADRATIC, quadratic


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, finished: Finished) -> Path:
    """The home of a finished campaign, `one`, whose champion is better than its baseline."""
    return Path(shutil.copytree(finished.home, tmp_path_factory.mktemp("export") / "runs"))


@pytest.fixture
def ledger(night: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(night))
    return Ledger.open("one")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=me", "-c", "user.email=me@localhost")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_nothing_is_written_over_and_nothing_half_made_is_left(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(Refused, match="not an empty folder"):
        export(ledger, tmp_path / "mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    assert export(ledger, tmp_path / "link") == tmp_path / "empty"
    with pytest.raises(FileExistsError):
        export(ledger, tmp_path / "file" / "below")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "link", "mine"]


def test_the_champion_becomes_a_branch_that_merges_and_the_working_tree_stays(ledger: Ledger, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "mine.txt").write_text("mine")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "mine")

    words, body = make_branch(ledger, tmp_path, "nightshift/found")

    assert "nightshift/found" in words
    assert git(tmp_path, "log", "--format=%s", "nightshift/found").splitlines()[1] == "mine"
    added = git(tmp_path, "diff", "--name-status", "HEAD", "nightshift/found").split()
    assert added == ["A", "quad/environment.toml", "A", "quad/fit.py", "A", "quad/judge.py"]
    assert git(tmp_path, "status", "--porcelain") == "" and (tmp_path / "mine.txt").read_text() == "mine"
    best = max(ledger.history(), key=lambda trial: (trial.verdict.kind == "keep", trial.order))
    text, x = body.read_text(), best.proposal.params["x"]
    assert f"nightshift compare one/{best.number} one/baseline" in text and f"| x | 2.5 | {x:.3g} |" in text
    make_branch(ledger, tmp_path, "nightshift/found")  # again: nothing new
    current = git(tmp_path, "branch", "--show-current").strip()
    for branch in (current, "no..name"):
        with pytest.raises(Refused, match="--git"):
            make_branch(ledger, tmp_path, branch)
    with pytest.raises(Refused, match="not a git repository"):
        make_branch(ledger, ledger.path.parent, "found")


@pytest.mark.parametrize("is_bundled", [False, True])
def test_where_the_repository_has_the_environment_only_what_the_champion_changes_is_changed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, is_bundled: bool
) -> None:
    if is_bundled:  # as in a checkout of ours
        monkeypatch.setattr(environments, "bundled", lambda: {"quad": tmp_path / "quad"})
    switch = '\n[space.on]\ntype = "choice"\nvalues = [true, false]\ndefault = false\n'
    quadratic(tmp_path / "quad", toml="# mine\n" + QUADRATIC + switch)
    (tmp_path / "quad/judge.py").chmod(0o755)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "quad")
    git(tmp_path, "commit", "--quiet", "-m", "mine")
    asked = {"overrides": {"budget_seconds": 7, "judge": "command"}}
    ledger = CampaignSpec.of(
        environment="quad" if is_bundled else str(tmp_path / "quad"), name="n", advanced=asked
    ).open()
    _, champion = stored(ledger, 3.0, 2.0)
    store(ledger, certified(1, [10, 10.5, 11], [2, 2.5, 3]))
    edited, place = replace(champion, proposal=replace(champion.proposal, edit="+1", parent=None)), ledger.place(1)
    place.trial.write_bytes(TRIAL.dump_json(edited))
    (place.workspace / "fit.py").chmod(0o644)
    (place.workspace / "fit.py").write_text("print('better')\n")
    lineage.commit(ledger.path / "lineage.git", place, edited, ("fit.py",))
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "later")

    _, body = make_branch(ledger, tmp_path, "tuned")

    assert git(tmp_path, "log", "--format=%s", "tuned").splitlines()[1:] == ["mine"]
    changed = git(tmp_path, "diff", "HEAD", "tuned")
    lines = {line for line in changed.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")}
    assert {"-default = 2.5", "+default = 2.0", "+print('better')"} <= lines and "# mine" not in str(lines)
    assert {"-budget_seconds = 5", "+budget_seconds = 7"} <= lines, "what was certified"
    assert "old mode" not in changed
    assert "**Certified: +8" in body.read_text() and "10, 10.5, 11" in body.read_text()


@pytest.mark.slow
def test_the_folder_trains_and_scores_like_the_champion_and_its_script_says_so(ledger: Ledger, tmp_path: Path) -> None:
    folder = export(ledger, tmp_path / "champion")
    result = json.loads((folder / "result.json").read_text())
    assert environments.load(folder / "environment" / "quad").defaults == result["params"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    for expected, code, word in (((-1, 1e6), 0, "inside"), ((1e6, 2e6), 1, "BELOW"), (None, 2, "nothing to compare")):
        span = expected and {"low": expected[0], "high": expected[1], "runs": 3, "share": 0.95}
        (folder / "result.json").write_text(json.dumps({**result, "expected": span}))
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(["bash", folder / "reproduce.sh"], env=environment, capture_output=True, text=True)
        assert (done.returncode, word in done.stdout) == (code, True), done.stdout + done.stderr
    again = json.loads((folder / "reproduced.json").read_text())
    assert again["score"] == pytest.approx(result["champion"]["score"])
    assert again["environment"] == result["environment"] == "quad"


def test_all_files_are_as_they_were_judged(tmp_path: Path, home: Path) -> None:
    toml = QUADRATIC.replace("python fit.py", "./fit.sh").replace("fit.py", "fit.sh")
    folder = quadratic(tmp_path / "quad", toml=toml)
    (folder / "fit.sh").write_text("#!/bin/sh\n")
    (folder / "fit.sh").chmod(0o755)
    ledger = CampaignSpec.of(environment=str(folder), name="n").open()
    history = stored(ledger, 1.0, 0.5)

    made = export(ledger, tmp_path / "champion")

    assert os.access(made / "environment" / "quad" / "fit.sh", os.X_OK)
    assert (made / "checkpoint" / "latest" / "model.json").read_text() == "{}"
    assert outputs.checkpoint(made / "checkpoint") == history[1].runs[0].checkpoint


def test_a_certified_champion_is_exported_with_its_own_certificate_and_score(tmp_path: Path, home: Path) -> None:
    ledger = created(tmp_path)
    stored(ledger, 3.0, 2.0, 1.0)
    store(ledger, certified(1, [10, 10.5, 11], [2, 2.5, 3]))  # trial 2 was kept later, and its certificate failed
    store(ledger, replace(certified(2, [1, 2, 9], [2, 2.5, 3]), look=2))

    folder = export(ledger, tmp_path / "champion")

    result, card = json.loads((folder / "result.json").read_text()), (folder / "README.md").read_text()
    assert result["trial"] == result["champion"]["trial"] == result["certificate"]["trial"] == 1
    assert result["certificate"]["passed"] and result["champion"]["score"] == 2.0
    assert "trial 1 certified" in card.lower() and "Trial 2" not in card
