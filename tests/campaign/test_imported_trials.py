"""Trials of another tool in a whole campaign: tried first, told apart, frozen with it, no part of any verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from environments import earlier_trials
from environments.earlier_trials import EarlierTrial
from tasks.store.ledger import Ledger
from tests.support.toy import GREEDY, nightshift, quadratic


@pytest.mark.slow
def test_a_campaign_begins_with_the_best_trial_of_another_tool(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "runs", quadratic(tmp_path / "quad")
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))
    theirs = [
        EarlierTrial({"x": 1.25}, -100.0, "theirs"),
        EarlierTrial({"x": -0.5}, 5.0),
        EarlierTrial({"x": 3.0}, None),
    ]
    file = folder / earlier_trials.FILE
    file.write_text(earlier_trials.text(theirs))
    asked = ("--set", "title=x", *GREEDY, "--json")
    done = nightshift(
        "run", str(folder), "--name", "one", "--trials", "1", *asked, server=server, NIGHTSHIFT_HOME=str(home)
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    first, second = document["trials"]
    assert first["params"] != {"x": 1.25} and second["params"] == {"x": 1.25} and "imported" in second["description"]
    assert document["champion"]["trial"] == 1 and len(document["trials"]) == 2
    assert document["imported"]["count"] == 3 and document["imported"]["best"][0]["score_there"] == -100.0
    assert "Imported trials" in (home / "one" / "report.html").read_text()

    file.unlink()
    ledger = Ledger.open("one")  # it has a copy of its own, below the folder that its digest is of
    assert earlier_trials.read(ledger.environment.folder) == tuple(theirs)
