"""The ledger: names, the making of a campaign, what is read back from its directory, and attempts."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from environments import earlier_trials
from environments.earlier_trials import EarlierTrial
from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from flows.status import document
from flows.views.run_log import another_machine
from tasks.store import workspace
from tasks.store.ledger import FORMAT, Ledger, campaigns, check_name, free_name, machine
from tasks.store.provenance import sources
from tasks.trial import History, Parked, Usage
from tests.support.histories import tried
from tests.support.ledgers import created, filled
from tests.support.toy import quadratic


@pytest.mark.parametrize(
    ("environment", "name"),
    [("My Problem", "my-problem-1"), ("../odd/..", "odd-1"), ("日本", "campaign-1"), ("x" * 200, "x" * 56 + "-1")],
)
def test_a_free_name_is_made_of_the_environments(environment: str, name: str) -> None:
    assert free_name(environment) == name == check_name(name)


def test_a_copied_home_holds_everything(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = created(tmp_path)
    shutil.copytree(home, tmp_path / "moved")
    shutil.rmtree(home)
    shutil.rmtree(tmp_path / "quad")
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "moved"))
    ledger = Ledger.open("n")
    ledger.verify()
    assert (ledger.campaign, ledger.environment.folder) == (first.campaign, tmp_path / "moved/n/environment")


def test_a_half_made_campaign_is_none_and_the_next_creation_replaces_it(tmp_path: Path, home: Path) -> None:
    for name in ("environment/fit.py", "program/old.py", "campaign.json"):
        (home / ".n.new" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / ".n.new" / name).write_text("half")
    (home / "n").mkdir()  # its reserved name
    (home / "m").mkdir()
    (home / "m/thesis.tex").write_text("years of work")
    assert not Ledger.exists("n") and campaigns() == ()
    ledger = created(tmp_path)
    with pytest.raises(Refused, match="runs/m exists"):
        created(tmp_path, "m")
    assert (home / "m/thesis.tex").read_text() == "years of work" and ledger.path.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in ledger.path.iterdir()) == [
        "campaign.json", "environment", "program", "spec.toml", "trials",
    ]  # fmt: skip
    assert [path.name for path in ledger.program.iterdir()] == ["fit.py"]
    ledger.verify()


def test_two_that_begin_one_campaign_at_once_share_it(tmp_path: Path) -> None:
    spec = CampaignSpec.of(environment=str(quadratic(tmp_path / "quad")), name="n")
    with ThreadPoolExecutor(4) as pool:
        ids = {ledger.campaign.campaign_id for ledger in pool.map(lambda _: spec.open(), range(4))}
    assert ids == {Ledger.open("n").campaign.campaign_id}


def test_a_campaign_file_of_a_newer_format_or_that_somebody_broke_is_refused(tmp_path: Path) -> None:
    path = created(tmp_path).path / "campaign.json"
    text = path.read_text()
    for changed in (json.dumps(json.loads(text) | {"format": FORMAT + 1, "new": "field"}), text[:-9]):
        path.write_text(changed)
        with pytest.raises(Refused, match=re.escape(str(path))):
            Ledger.open("n")


@pytest.mark.parametrize("file", ["environment/judge.py", "program/fit.py"])
def test_a_frozen_file_that_was_changed_is_refused(ledger: Ledger, file: str) -> None:
    with (ledger.path / file).open("a") as opened:
        opened.write("# changed\n")
    with pytest.raises(Refused, match="frozen files"):
        Ledger.open("n").verify()


def test_trials_of_another_tool_are_frozen_with_a_campaign_and_told_apart(tmp_path: Path) -> None:
    theirs = tuple(EarlierTrial(params={"x": x}, score=score) for x, score in ((1.25, -100.0), (-0.5, 5.0), (3, None)))
    file = quadratic(tmp_path / "quad") / earlier_trials.FILE
    file.write_text("\n".join(one.model_dump_json() for one in theirs))
    ledger = created(tmp_path)
    file.unlink()
    assert earlier_trials.read(ledger.environment.folder) == theirs
    told = document(ledger)["imported"]
    assert (told["count"], told["scored"], told["best"][0]["score_there"]) == (3, 2, -100.0)


def test_a_campaign_that_goes_on_on_another_machine_says_so(tmp_path: Path) -> None:
    ledger, trial = created(tmp_path), tried((), 2.25)
    assert another_machine(ledger, (trial,)) == "", "of an old campaign that is not known"
    trial = replace(trial, runs=(replace(trial.runs[0], machine="before"),))
    assert "before on before" in another_machine(ledger, (trial,))
    assert [(one["before"], one["now"]) for one in ledger.events()] == [("before", machine())]


def test_history_has_each_trial_once_in_its_last_decided_attempt_in_the_order_of_the_decisions(ledger: Ledger) -> None:
    history: History = ()
    for score, order in ((3.0, 0), (None, 2), (2.0, 1)):
        history += (replace(tried(history, score), order=order),)
    filled(ledger, history)
    ledger.place(3).workspace.mkdir(parents=True)  # under way
    assert [trial.number for trial in ledger.history()] == [0, 2, 1]
    assert ledger.begin_attempt(0) == 2
    assert ledger.pending_attempts() == {0: 2}
    assert [(trial.number, trial.attempt) for trial in ledger.history()] == [(0, 1), (2, 1), (1, 1)]
    again = replace(history[0], attempt=2, order=3)
    filled(ledger, (again,))
    assert ledger.pending_attempts() == {}
    assert [(trial.number, trial.attempt) for trial in ledger.history()] == [(2, 1), (1, 1), (0, 2)]
    assert workspace.TRIAL.validate_json(ledger.place(0, attempt=1).trial.read_bytes()) == history[0], "it stays"


def test_costs_count_for_who_was_asked_and_trials_for_who_made_them() -> None:
    trial = tried((), 2.25, kind="keep", higher_is_better=False)
    own = replace(trial.proposal, proposer="llm", model="m", usage=Usage(1, 10, 5, 0.5))
    fell = replace(own, proposer="tpe", model="", instead_of="llm: no answer")
    history = (trial, replace(trial, number=1, proposal=own), replace(trial, number=2, proposal=fell))
    waits = Parked(3, replace(own, usage=Usage(1, 0, 0, 0.25)), until=0.0)
    assert [one["words"] for one in sources(history, (waits,))] == [
        "llm (m): 1 trial, 1 kept, 2 calls, 15 tokens, 0.75 USD",
        "tpe: 1 trial, 1 kept",
        "llm: 0 trials, 0 kept, 1 call, 15 tokens, 0.50 USD",
    ]
