"""The ledger: names, the making of a campaign, and what is read back from its directory."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from flows.views.status import document
from tasks.store import workspace
from tasks.store.ledger import FREEZE_LIMIT, Ledger, campaigns, check_name, free_name
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.trial import History, Proposal
from tests.support.histories import decided
from tests.support.ledgers import created
from tests.support.toy import FIT, JUDGE, quadratic


@pytest.mark.parametrize("name", ["a", "0", "cartpole-1", "a.b_c-d", "a" * 64, "night..2"])
def test_a_plain_name_is_taken_as_it_is(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a/b",
        "/",
        ".",
        "..",
        "../x",
        ".hidden",
        "-rf",
        "_x",
        "A",
        "Night",
        "é",
        "a\n",
        "a\0",
        "nächte",
        "²",
        "a" * 65,
        "a:b",
        "a*",
        "a;b",
        "~",
    ],
)
def test_a_name_with_odd_characters_is_refused(name: str) -> None:
    why = f"campaign name {name!r}: 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
    with pytest.raises(Refused, match=re.escape(why)):
        check_name(name)


@pytest.mark.parametrize("name", ["artifacts", "mlflow.db", "mlflow.db-wal"])
def test_a_name_under_which_mlflow_keeps_its_data_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=f"{name!r}.*MLflow"):
        check_name(name)


@pytest.mark.parametrize("name", ["../outside", "A", "a/../../b"])
def test_no_odd_name_reaches_the_file_system(name: str, tmp_path: Path, home: Path) -> None:
    for reach in (Ledger.exists, Ledger.open, lambda odd: created(tmp_path, odd)):
        with pytest.raises(Refused, match="campaign name"):
            reach(name)
    assert sorted(path.name for path in tmp_path.iterdir() if path != home) in ([], ["quad"])


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("cartpole", "cartpole-1"),
        ("My Problem", "my-problem-1"),
        ("../odd/..", "odd-1"),
        ("日本", "campaign-1"),
        ("", "campaign-1"),
        ("x" * 200, "x" * 56 + "-1"),
        (".hidden", "hidden-1"),
        ("Ünder_score.v2", "nder_score.v2-1"),
    ],
)
def test_a_free_name_is_made_of_the_environments(environment: str, name: str) -> None:
    assert free_name(environment) == name == check_name(name)


def test_the_next_free_name_has_the_next_number(home: Path) -> None:
    assert [free_name("quad") for _ in range(3)] == ["quad-1", "quad-2", "quad-3"]
    (home / "quad-9").mkdir()
    (home / "quad-2").rmdir()
    (home / "quad-old").mkdir()
    assert free_name("quad") == "quad-10"


def test_a_digit_that_is_no_number_is_passed_over(home: Path) -> None:
    (home / "quad-²").mkdir(parents=True)
    assert free_name("quad") == "quad-1"


def test_names_of_one_environment_do_not_count_for_one_that_begins_alike(home: Path) -> None:
    (home / "quad-big-7").mkdir(parents=True)
    assert free_name("quad") == "quad-1"


def test_many_that_ask_at_once_get_different_names() -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: free_name("quad"), range(40)))
    assert len(set(names)) == 40


def test_two_processes_that_ask_at_once_get_different_names(home: Path) -> None:
    code = "from tasks.store.ledger import free_name\nprint(*(free_name('quad') for _ in range(30)))"
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    names = [name for process in both for name in process.communicate()[0].split()]
    assert len(names) == len(set(names)) == 60


def test_the_home_is_private(request: pytest.FixtureRequest) -> None:
    expected = request.getfixturevalue("home")
    assert not expected.exists()
    assert home() == expected
    assert expected.stat().st_mode & 0o777 == 0o700


def test_a_campaigns_directory_is_private(tmp_path: Path) -> None:
    assert created(tmp_path).path.stat().st_mode & 0o777 == 0o700
    assert (home() / free_name("quad")).stat().st_mode & 0o777 == 0o700


def test_the_home_is_where_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTSHIFT_HOME", "elsewhere/runs")
    assert home() == tmp_path / "elsewhere/runs"


def test_a_new_campaign_has_the_environment_and_the_program_frozen(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    (tmp_path / "quad/fit.py").write_text("changed afterwards")
    (tmp_path / "quad/judge.py").unlink()
    assert (ledger.program / "fit.py").read_text() == FIT
    assert (ledger.path / "environment/judge.py").read_text() == JUDGE
    assert ledger.environment.name == "quad"
    ledger.verify()


def test_a_new_campaign_has_no_history(tmp_path: Path) -> None:
    assert created(tmp_path).history() == ()


def test_a_campaign_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    ledger = created(tmp_path, seed=5)
    again = Ledger.open("n")
    assert again.campaign == ledger.campaign
    assert again.environment == ledger.environment


def test_a_campaign_of_a_bundled_environment_freezes_its_trainer() -> None:
    ledger = CampaignSpec.of(environment="cartpole", name="n").open()
    trainers = Path(__file__).parents[2] / "tasks/trainers"
    for source, name in (("ppo.py", "train.py"), ("_program.py", "_program.py")):
        assert (ledger.program / name).read_bytes() == (trainers / source).read_bytes()


@pytest.mark.parametrize(
    "left", [[], ["environment/fit.py"], ["environment/fit.py", "program/old.py", "spec.toml"], [".campaign.json.123"]]
)
def test_a_half_made_campaign_is_completed_at_the_next_creation(tmp_path: Path, home: Path, left: list[str]) -> None:
    for name in left:
        (home / "n" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "n" / name).write_text("half")
    assert not Ledger.exists("n")
    ledger = created(tmp_path)
    assert sorted(path.name for path in ledger.path.iterdir()) == [
        "campaign.json", "environment", "program", "spec.toml", "trials",
    ]  # fmt: skip
    assert [path.name for path in ledger.program.iterdir()] == ["fit.py"]
    ledger.verify()


def test_a_directory_that_is_no_campaign_is_left_as_it_is(tmp_path: Path, home: Path) -> None:
    thesis = home / "n/thesis/chapter.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    with pytest.raises(Refused, match=r"runs/n .*'thesis'"):
        created(tmp_path)
    assert thesis.read_text() == "years of work"


def test_a_file_in_the_place_of_a_campaign_is_left_as_it_is(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "n").write_text("notes")
    with pytest.raises(Refused, match="runs/n is a file"):
        created(tmp_path)
    assert (home / "n").read_text() == "notes"


def test_a_campaign_that_exists_is_opened_never_made_anew(tmp_path: Path) -> None:
    first = created(tmp_path)
    first.event("life", pid=1)
    assert created(tmp_path).campaign.campaign_id == first.campaign.campaign_id
    assert [event["pid"] for event in first.events()] == [1]


def test_two_that_begin_one_campaign_at_once_share_it(tmp_path: Path) -> None:
    spec = CampaignSpec.of(environment=str(quadratic(tmp_path / "quad")), name="n")
    with ThreadPoolExecutor(4) as pool:
        ids = {ledger.campaign.campaign_id for ledger in pool.map(lambda _: spec.open(), range(4))}
    assert ids == {Ledger.open("n").campaign.campaign_id}


def test_a_campaign_can_be_read_from_the_moment_it_exists(tmp_path: Path) -> None:
    ledger = created(tmp_path, trials=3)
    found = document(ledger)
    assert (found["state"], found["spec"]["trials"], found["trials"]) == ("interrupted", 3, [])
    json.dumps(found, allow_nan=False)


def test_an_environment_too_large_to_be_copied_is_refused(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    with (folder / "data.bin").open("wb") as file:
        file.truncate(FREEZE_LIMIT + 1)
    why = r"holds 256 MiB, and every campaign copies it \(limit 256 MiB\): keep data elsewhere"
    with pytest.raises(Refused, match=why):
        CampaignSpec.of(environment=str(folder), name="n").open()


def test_a_campaign_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = created(tmp_path).path / "campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "new": "field"}))
    with pytest.raises(Refused, match=re.escape(f"{path} has format 2")):
        Ledger.open("n")


@pytest.mark.parametrize(
    ("change", "why"), [({"seed": "x"}, "seed: Input should be a valid integer"), ({"sead": 1}, "sead: unknown key")]
)
def test_a_campaign_file_that_somebody_broke_is_refused_by_key(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    path = created(tmp_path).path / "campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(Refused, match=re.escape(f"{path}: {why}")):
        Ledger.open("n")


def test_a_campaign_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = created(tmp_path).path / "campaign.json"
    path.write_text('{"format": 1, "na')
    with pytest.raises(Refused, match=re.escape(f"{path}: not JSON: ")):
        Ledger.open("n")


def test_an_unknown_campaign_is_refused_with_the_near_miss(tmp_path: Path) -> None:
    created(tmp_path, "night-1")
    with pytest.raises(Refused, match=r"'nigth-1'.*'night-1'\?"):
        Ledger.open("nigth-1")


def test_where_there_is_no_campaign_none_is_available() -> None:
    with pytest.raises(Refused, match=r"'n'.*none"):
        Ledger.open("n")


def test_campaigns_are_listed_the_newest_last_and_nothing_else_is(tmp_path: Path, home: Path) -> None:
    for age, name in enumerate(("b", "a", "c")):
        ledger = created(tmp_path, name)
        os.utime(ledger.path / "campaign.json", (age, age))
    free_name("quad")
    (home / ".prefect").mkdir()
    assert campaigns() == ("b", "a", "c")


@pytest.mark.parametrize("file", ["environment/judge.py", "program/fit.py", "environment/environment.toml"])
def test_a_frozen_file_that_was_changed_is_refused(tmp_path: Path, file: str) -> None:
    ledger = created(tmp_path)
    with (ledger.path / file).open("a") as opened:
        opened.write("# changed\n")
    with pytest.raises(Refused, match="frozen files"):
        Ledger.open("n").verify()


def test_history_is_in_the_order_in_which_trials_were_decided(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    history: History = ()
    for score in (3.0, None, 2.0):
        history += (decided(history, score, {"x": 1.0}),)
    for trial, settle in zip(history, (0, 2, 1), strict=True):
        text = workspace.TRIAL.dump_json(dataclasses.replace(trial, order=settle)).decode()
        write_atomic(ledger.place(trial.number).trial, text)
    ledger.place(3).workspace.mkdir(parents=True)
    assert [trial.number for trial in ledger.history()] == [0, 2, 1]


def test_a_trial_is_read_back_as_it_was_decided(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    trial = decided((), 0.1 + 0.2, {"x": 1e-5, "n": 3, "act": "relu", "anneal": True, "whole": 2.0})
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(trial, indent=2).decode())
    (again,) = ledger.history()
    assert again == trial
    assert [type(value) for value in again.proposal.params.values()] == [float, int, str, bool, float]


def test_events_are_read_in_the_order_in_which_they_happened(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    for number in range(3):
        ledger.event("settled", trial=number, text='of "two"\nlines é')
    assert [(event["event"], event["trial"], event["text"]) for event in ledger.events()] == [
        ("settled", number, 'of "two"\nlines é') for number in range(3)
    ]


def test_an_event_that_was_cut_short_is_left_out_and_takes_no_other_with_it(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    ledger.event("life", pid=1)
    with (ledger.path / "events.jsonl").open("a") as file:
        file.write('{"time": 17, "event": "sett')
    assert [event["event"] for event in ledger.events()] == ["life"]
    ledger.event("life", pid=2)
    assert [event["pid"] for event in ledger.events()] == [1, 2]


def test_a_campaign_without_events_has_none(tmp_path: Path) -> None:
    assert list(created(tmp_path).events()) == []


def test_a_copied_home_holds_everything(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = created(tmp_path)
    shutil.copytree(home, tmp_path / "moved")
    shutil.rmtree(home)
    shutil.rmtree(tmp_path / "quad")
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "moved"))
    ledger = Ledger.open("n")
    ledger.verify()
    assert (ledger.campaign, ledger.environment.folder) == (first.campaign, tmp_path / "moved/n/environment")


def test_proposals_of_trials_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    ledger, trial = created(tmp_path), decided((), 1.0, {"x": 1.0}, higher_is_better=False)
    write_atomic(ledger.place(0).proposal, "damaged")
    waits = Proposal({"x": 2.0}, rationale="waits")
    write_atomic(ledger.place(1).proposal, workspace.PROPOSAL.dump_json(waits))
    write_atomic(ledger.place(2).config, "of a trial that has no proposal yet")
    assert ledger.proposals((trial,)) == (trial.proposal, waits)
