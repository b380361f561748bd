"""Certificates as campaigns take them: when there is a look, what it was begun as, how it ends, and what follows it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from flows.engine.run_certificate import LOOK, DeclaredAnalysis, nothing_to_certify, path_of, store, why_not
from tests.support.runners import bench, prefect_at

import environments
from environments.effort import Effort
from environments.plugins import Refused
from environments.score import Score
from flows.cli.deciding.certify import certify as certify_command
from flows.engine import run_certificate, stopping
from flows.spec.campaign_spec import CampaignSpec
from flows.views.status import document
from tasks.certifying.ablation import parts
from tasks.certifying.certificate import Certificate
from tasks.certifying.group_design import ALPHA, design_of
from tasks.store import workspace
from tasks.store.ledger import Ledger, machine
from tasks.store.workspace import TrialDir, finished
from tasks.system.files import write_atomic
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict
from tests.support.histories import certified, scored, tried
from tests.support.noisy import BETTER, DRAW, campaign, noisy, settled
from tests.support.toy import nightshift, quadratic, start, status

BASELINE = tried((), 0.1, -0.2, 0.4)
GOOD: History = (BASELINE, tried((BASELINE,), 60.0))
"""A baseline and a champion that is far better."""


def night(folder: Path, name: str = "night", **asked: Any) -> Ledger:
    """A new campaign that was asked for more than `campaign` does."""
    return CampaignSpec.of(environment=str(folder), name=name, tracking="off", **asked).open()


def begun(ledger: Ledger, champion: int, runs: int) -> Path:
    """Declare the first look, as a life of version 0.2 did that was killed thereafter."""
    path = ledger.path / "certificates/1.begun"
    write_atomic(path, json.dumps({"champion": champion, "runs": runs}))
    return path


def luck() -> Certificate:
    """A look at trial 1 in the campaign's own environment that did not pass."""
    return replace(certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5)), environment="noisy")


def events(ledger: Ledger, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in ledger.events() if event["event"] in kinds]


def directories(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def until(folder: Path, pattern: str, seconds: float = 60) -> None:
    """Wait until a file of a folder matches."""
    deadline = time.monotonic() + seconds
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {folder / pattern}"
        time.sleep(0.02)


# Whether there is something to look at


def test_without_a_score_there_is_nothing_to_certify(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    assert nothing_to_certify(bench(ledger, ())) == "no trial has a score"
    assert nothing_to_certify(bench(ledger, (tried((), None),))) == "no trial has a score"
    with pytest.raises(Refused, match=r"'night' .*score"):
        run_certificate.certify(bench(ledger, ()), 2)
    assert not (ledger.path / "certificates").exists(), "no look was declared"


def test_a_baseline_that_stands_is_not_compared_with_itself(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    history = (BASELINE, tried((BASELINE,), -5.0))
    assert history[1].verdict.kind == "discard"
    assert nothing_to_certify(bench(ledger, history)) == "nothing that was tried was kept"
    assert nothing_to_certify(bench(ledger, GOOD)) is None


def test_a_campaign_that_declared_one_look_has_no_second(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    store(ledger, luck())
    reason = nothing_to_certify(bench(ledger, GOOD))
    assert reason is not None
    assert reason.startswith("the campaign declared one look before it began, and took it")
    assert "looks = several" in reason and "nightshift duel" in reason


def test_what_carries_over_takes_no_look_of_the_campaigns_own(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    store(ledger, certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5), on="other"))
    assert nothing_to_certify(bench(ledger, GOOD)) is None
    assert run_certificate.next_look(bench(ledger, GOOD)) == 1
    assert run_certificate.known(bench(ledger, GOOD)) is None


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_with_several_looks_the_next_one_has_half_of_what_the_first_had(tmp_path: Path, server: str) -> None:
    ledger = night(noisy(tmp_path / "noisy"), advanced={"looks": "several"})
    settled(ledger, {})
    settled(ledger, {"x": 40.0})
    first = replace(certified(1, (39.0, 41.0, 40.5), (35.0, -2.5, 0.5), error=0.1), environment="noisy")
    assert not first.passed
    store(ledger, first)
    assert nothing_to_certify(bench(ledger)) is None
    with prefect_at(server):
        made = run_certificate.certify(bench(ledger), 3)
    assert made is not None, "it was not stopped"
    assert (made.look, made.alpha, made.champion) == (2, ALPHA / 4, 1)
    assert made.runs[:6] == first.runs and made.carried == 6, "no earlier run is thrown away"
    assert (len(made.scores("champion")), len(made.scores("baseline"))) == made.planned == (6, 6)
    assert made.comparison is not None and first.comparison is not None
    assert made.comparison.p < first.comparison.p
    assert path_of(ledger, made) == ledger.path / "certificates/2.json"
    assert [one.look for one in ledger.certificates()] == [1, 2]


def test_no_run_of_a_certificate_begins_on_a_full_disk_and_it_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    monkeypatch.setattr(stopping, "ROOM", 2**62)
    assert run_certificate.certify(bench(ledger, GOOD)) is None
    assert not run_certificate.at_the_end(bench(ledger, GOOD))
    assert not directories(ledger.path / "certificates") and not ledger.certificates()
    assert [path.name for path in (ledger.path / "certificates").iterdir()] == ["1.begun"]


def test_a_certificate_that_was_given_up_hides_no_earlier_run_of_its_champion(tmp_path: Path) -> None:
    ledger = night(noisy(tmp_path / "noisy"), advanced={"looks": "several"})
    store(ledger, luck())
    store(ledger, replace(luck(), look=2, runs=(), comparison=None))
    assert run_certificate._earlier(bench(ledger, GOOD), 1) == luck().runs


# Whether it is worth a look


def test_what_is_not_even_better_in_the_search_is_not_looked_at_and_the_status_says_why(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    history = (BASELINE, tried((BASELINE,), 0.09, kind="keep"))
    reason = why_not(bench(ledger, history))
    assert reason == "in the search it scored no better than the baseline"
    assert why_not(bench(ledger, (BASELINE, tried((BASELINE,), 0.11, kind="keep")))) is None
    assert nothing_to_certify(bench(ledger, history)) is None, "by hand it may be looked at"
    assert run_certificate.at_the_end(bench(ledger, history))
    assert not (ledger.path / "certificates").exists()
    assert status("night")["uncertified"] == reason
    ledger.event("life", certify=True)
    assert document(ledger)["uncertified"] == reason, "a certificate elsewhere, made later, takes nothing back"
    ledger.event("life")
    assert document(ledger)["uncertified"] is None, "it may yet be looked at"


def test_a_champion_of_which_much_is_expected_is_worth_a_look(tmp_path: Path) -> None:
    assert why_not(bench(campaign(noisy(tmp_path / "noisy")), GOOD)) is None


def test_a_rule_that_certifies_nothing_ends_without_a_look(tmp_path: Path) -> None:
    ledger = night(noisy(tmp_path / "noisy"), rule="greedy")
    assert run_certificate.at_the_end(bench(ledger, GOOD))
    assert document(ledger)["uncertified"] is None
    assert not (ledger.path / "certificates").exists()


# A look that was begun


@pytest.mark.timeout(200)
def test_a_look_goes_on_as_it_was_declared_and_runs_nothing_twice(tmp_path: Path, server: str) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    settled(ledger, {})
    settled(ledger, {"x": 40.0})
    path = begun(ledger, champion=1, runs=3)
    declared = path.read_text()
    (ledger.path / "stop").touch()
    with prefect_at(server):
        assert run_certificate.certify(bench(ledger), 2) is None
        assert not run_certificate.at_the_end(bench(ledger)), "the campaign was stopped, not finished"
        assert directories(path.parent) == [], "no run was begun"
        assert ledger.certificates() == () and nothing_to_certify(bench(ledger)) is None
        (ledger.path / "stop").unlink()
        made = run_certificate.certify(bench(ledger), 2)
        assert made is not None and made.passed, made
        path_of(ledger, made).unlink()  # as if the last life was killed before it wrote that down
        again = run_certificate.certify(bench(ledger), 2)
    assert path.read_text() == declared
    assert len(made.scores("champion")) == len(made.scores("baseline")) == 3
    assert again == made
    assert directories(path.parent) == [f"1-0001-{arm}-{n}" for arm in ("baseline", "champion") for n in (1, 2, 3)]
    seeds = {fresh.run.seed for fresh in made.runs}
    assert len(seeds) == 6 and not seeds & {run.seed for trial in ledger.history() for run in trial.runs}
    assert [event["runs"] for event in events(ledger, "certify")] == [3, 3, 3, 3]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_groups_follow_each_other_until_it_is_clear_and_the_searchs_baseline_counts(
    tmp_path: Path, server: str
) -> None:
    ledger = night(noisy(tmp_path / "noisy"), trials=10, parallel=2)
    settled(ledger, {})
    settled(ledger, {"x": 4.5})
    (first, second) = ledger.history()
    value = first.score.value or 0.0
    each = [replace(first.score, value=value + one) for one in (-0.8, 0.0, 0.8)]
    history = (replace(first, runs=first.runs * 3, score=Score.over(each)), second)
    with prefect_at(server):
        made = run_certificate.certify(bench(ledger, history))
    assert made is not None and made.design == design_of(10), made
    assert (len(made.scores("champion")), len(made.scores("baseline"))) in made.design.groups
    assert len(made.reused) == 3 and not made.not_reused
    assert made.tested_at in made.design.levels and made.alpha == ALPHA
    (declared,) = (ledger.path / "certificates").glob("*.begun")
    assert LOOK.validate_json(declared.read_bytes()) == DeclaredAnalysis(1, 5, design_of(10))
    assert [event["planned"] for event in events(ledger, "certify")] == [8]
    looked = events(ledger, "looked")
    assert len(looked) == made.design.groups.index((len(made.scores("champion")), len(made.scores("baseline"))))
    found = document(ledger)["certificate"]
    assert found["planned"] == {"champion": 5, "baseline": 3} and len(found["reused"]) == 3


def test_a_look_counts_as_taken_when_another_trial_is_champion_before_it_is_over(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    begun(ledger, champion=1, runs=3)
    history = (*GOOD, tried(GOOD, 90.0))
    made = run_certificate.certify(bench(ledger, history), 3)
    assert made is not None
    assert (made.look, made.champion, made.passed, made.runs, made.alpha) == (1, 1, False, (), ALPHA)
    assert made.reason.startswith("it was begun for trial 1, and not finished before another trial became champion")
    assert ledger.certificates() == (made,)
    reason = nothing_to_certify(bench(ledger, history))
    assert reason is not None and "took it" in reason
    assert run_certificate.at_the_end(bench(ledger, history))
    found = document(ledger)["certificate"]
    assert (found["trial"], found["passed"], found["gain"], found["runs"]) == (1, False, None, 0)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_with_several_looks_the_new_champion_gets_the_next_one(tmp_path: Path, server: str) -> None:
    ledger = night(noisy(tmp_path / "noisy"), advanced={"looks": "several"})
    settled(ledger, {})
    settled(ledger, {"x": 20.0})
    settled(ledger, {"x": 40.0})
    begun(ledger, champion=1, runs=3)
    with prefect_at(server):
        made = run_certificate.certify(bench(ledger), 2)
    assert made is not None and made.passed, made
    assert (made.look, made.champion, made.alpha, len(made.runs)) == (2, 2, ALPHA / 4, 4)
    lost, kept = ledger.certificates()
    assert (lost.champion, lost.passed, lost.runs, lost.alpha) == (1, False, (), ALPHA / 2)
    assert kept == made == run_certificate.known(bench(ledger))


# The command


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_campaign_without_a_certificate_gets_one_later_once_and_stops_between_two_runs(
    tmp_path: Path, server: str
) -> None:
    ledger = night(noisy(tmp_path / "noisy", "import time\ntime.sleep(1)\n" + DRAW), rule="greedy")
    settled(ledger, {})
    settled(ledger, {"x": 40.0})
    with start("certify", "night", "--runs", "2", server=server) as process:
        until(ledger.path, "certificates/1-*/log.txt")
        asked = nightshift("stop", "night")
        said, _ = process.communicate(timeout=60)
    assert asked.returncode == 0, asked.stderr
    assert process.returncode == 0, said
    assert ledger.certificates() == () and status("night")["state"] == "stopped"
    before = directories(ledger.path / "certificates")
    assert 1 <= len(before) < 4
    done = {path: path.stat().st_mtime_ns for path in ledger.path.glob("certificates/1-*/out/model.json")}
    assert len(done) == len(before), "the run under way was finished"

    gone_on = nightshift("certify", "night", "--runs", "5", "--json", server=server)
    assert gone_on.returncode == 0, gone_on.stderr
    found = json.loads(gone_on.stdout)
    assert found["certificate"]["passed"] and found["certificate"]["runs"] == 2, found["certificate"]
    assert (found["shipped"], found["shipped_trial"]) == ("champion", 1)
    assert found["champion"]["level"] == "certified"
    assert all(path.stat().st_mtime_ns == when for path, when in done.items()), "nothing ran twice"

    again = nightshift("certify", "night", server=server)
    assert again.returncode == 2
    assert "'night' cannot be certified: the campaign declared one look" in again.stderr


def test_fewer_than_two_runs_of_each_arm_are_refused(tmp_path: Path) -> None:
    campaign(noisy(tmp_path / "noisy"))
    with pytest.raises(Refused, match="--runs 1: give 2 to 100 runs of each arm"):
        certify_command("night", None, 1, False, None, False)


# Elsewhere


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("noisy", "--on noisy: that is the campaign's own environment: leave --on out"),
        ("cartpole", "--on cartpole: it trains with 'ppo', the campaign with 'command'"),
    ],
)
def test_where_a_champion_cannot_be_taken_is_refused(tmp_path: Path, on: str, words: str) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    noisy(tmp_path / "other")
    asked = on if on in environments.bundled() else str(tmp_path / on)
    with pytest.raises(Refused) as refused:
        certify_command("night", asked, None, False, None, False)
    assert str(refused.value).startswith(words)
    assert not (ledger.path / f"certificates/on-{on}").exists()


def short(folder: Path, seconds: int = 1) -> Path:
    """CartPole with little of everything, as an environment of another name."""
    shutil.copytree(environments.find("cartpole"), folder)
    file = folder / "environment.toml"
    toml = tomlkit.parse(file.read_text())
    toml["budget_seconds"], toml["budget_steps"] = seconds, 2000
    toml["control"]["episodes"] = 3  # type: ignore[index]
    file.write_text(tomlkit.dumps(toml))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_champion_is_run_in_another_environment_which_says_what_carries_over_and_ships_nothing(
    tmp_path: Path, server: str
) -> None:
    ledger = night(short(tmp_path / "here"), proposer="tpe")
    for params in ({}, {"learning_rate": 3e-3}):
        settled(ledger, params)
    there = short(tmp_path / "there")
    done = nightshift("certify", "night", "--on", str(there), "--runs", "2", "--json", server=server)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["certificate"] is None and found["shipped"] is None
    (transfer,) = found["transfers"]
    assert (transfer["environment"], transfer["trial"], transfer["runs"]) == ("there", 1, 2)
    assert all(value is not None for value in transfer["champion"]["values"] + transfer["baseline"]["values"])
    (one,) = ledger.certificates()
    assert one.elsewhere and path_of(ledger, one) == ledger.path / "certificates/1-on-there.json"
    assert nothing_to_certify(bench(ledger)) is None, "its own look is still to be taken"
    shutil.rmtree(there)
    short(there, seconds=2)
    changed = nightshift("certify", "night", "--on", str(there), server=server)
    assert changed.returncode == 2
    assert "there has changed since the first certificate" in changed.stderr


def test_a_certificate_grants_half_of_the_spare_time_under_judgement_and_another_environment_has_no_bound(
    tmp_path: Path,
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    run = Run("trials/0000", 1, 1.0, "finished", machine=machine())
    needed = Score(1.0, effort=Effort(1.0, 0.1, 100, 1.0, 1.0, 0.1))
    known = (replace(BASELINE, runs=(run,), score=needed),)
    search = bench(ledger, known).granted("search")
    assert search is not None and search == bench(ledger, known).granted("control")
    assert bench(ledger, known).granted("report") == search.halved()
    assert bench(ledger, ()).granted("search") is None
    assert replace(bench(ledger, known), elsewhere=ledger.environment).granted("report") is None


# The champion without each of its changes


def test_a_champion_is_taken_apart_by_parameter_and_its_edit_is_one_part() -> None:
    first = replace(BASELINE, proposal=Proposal({"x": 0.0, "y": 1, "same": "a"}))
    proposal = Proposal({"x": 2.0, "y": 3, "same": "a"}, edit=BETTER, rationale="r", parent=0, seen=1)
    found = parts(replace(GOOD[1], proposal=proposal), first)
    assert [name for name, _ in found] == ["x", "y", "its edit"]
    assert [one.params for _, one in found] == [
        {"x": 0.0, "y": 3, "same": "a"},
        {"x": 2.0, "y": 1, "same": "a"},
        proposal.params,
    ]
    assert [one.edit for _, one in found] == [BETTER, BETTER, None]
    assert parts(first, first) == ()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_ablation_that_was_cut_off_is_done_in_the_next_life(tmp_path: Path, server: str) -> None:
    ledger = night(noisy(tmp_path / "noisy"), advanced={"ablation": True})
    settled(ledger, {})
    settled(ledger, {"x": 30.0}, BETTER)
    store(ledger, replace(certified(1, (80.0, 81.0, 79.0), (0.1, -0.2, 0.4)), environment="noisy"))
    (ledger.path / "stop").touch()
    assert not run_certificate.at_the_end(bench(ledger))
    assert ledger.ablation(1) is None and directories(ledger.path / "ablations") == []
    (ledger.path / "stop").unlink()
    with prefect_at(server):
        assert run_certificate.at_the_end(bench(ledger))
        found = ledger.ablation(1)
        (ledger.path / "ablations/0001.json").unlink()
        assert run_certificate.at_the_end(bench(ledger))
    assert found is not None and ledger.ablation(1) == found, "what had been run was not run again"
    assert (found.champion, found.mean, found.runs) == (1, pytest.approx(80.0, abs=4), 3)
    assert [one.change for one in found.removed] == ["x", "its edit"] * 2
    assert [one.score.value for one in found.removed] == pytest.approx([50.0, 30.0] * 2, abs=6)
    assert directories(ledger.path / "ablations") == [
        *("0001-0-1", "0001-0-2", "0001-0-3"),
        *(f"0001-{change}-{block}" for change in (1, 2) for block in (1, 2)),
    ]
    said = document(ledger)["ablation"]
    assert [words.split(":")[0] for words in said] == ["without x", "without its edit"]
    assert all(words.endswith("it carries") for words in said), said


@pytest.mark.parametrize("case", ["not asked", "not passed", "elsewhere"])
def test_only_what_passed_here_is_taken_apart_and_only_where_that_was_asked(tmp_path: Path, case: str) -> None:
    ledger = night(noisy(tmp_path / "noisy"), advanced={"ablation": case != "not asked"})
    made = certified(1, (80.0, 81.0, 79.0), (0.1, -0.2, 0.4), on="other" if case == "elsewhere" else None)
    made = replace(made, passed=case != "not passed")
    assert run_certificate.also_ablate(bench(ledger, GOOD), made)
    assert not (ledger.path / "ablations").exists()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_campaign_ends_with_its_certificate_and_its_ablation_and_a_resumed_one_adds_what_is_missing(
    tmp_path: Path, home: Path, server: str
) -> None:
    spec = {
        "environment": str(quadratic(tmp_path / "quad")), "name": "whole", "trials": 3, "seed": 1, "tracking": "off",
        "advanced": {"ablation": True},
    }  # fmt: skip
    (tmp_path / "spec.toml").write_text(tomlkit.dumps(spec))
    done = nightshift("run", str(tmp_path / "spec.toml"), "--json", server=server)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["state"] == "finished" and found["uncertified"] is None
    assert found["certificate"]["passed"] and found["certificate"]["runs"] == 2, "nothing is random there"
    assert len(found["ablation"]) == 1 and found["ablation"][0].startswith("without x: ")
    ledger = Ledger.open("whole")
    (made,) = ledger.certificates()
    ran = {path: path.stat().st_mtime_ns for path in ledger.path.glob("certificates/1-*/out/model.json")}
    assert len(ran) == 4

    ablation = ledger.ablation(made.champion)
    for path in ledger.path.glob("ablations/*.json"):
        path.unlink()
    resumed = nightshift("resume", "whole", "--trials", "3", "--json", server=server)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["ablation"] == found["ablation"]
    assert ledger.ablation(made.champion) == ablation
    assert ledger.certificates() == (made,), "its look was taken"
    assert all(path.stat().st_mtime_ns == when for path, when in ran.items())


# What the ledger has of a run


def test_a_decided_trial_gives_each_of_its_runs_with_its_own_score(tmp_path: Path) -> None:
    runs = tuple(Run(f"trials/0003{part}", n, 5.0, "finished") for n, part in enumerate(("", "-run-2"), 1))
    each = tried((), 1.0, 2.0).score
    again = Rerun(0, Run("trials/0003-again-1", 9, 5.0, "finished"), scored(7.0))
    trial = Trial(3, 1, 3, Proposal({}), runs, each, Verdict("keep", "as a test says"), reruns=(again,))
    place = TrialDir(tmp_path / "0003")
    assert [workspace.settled(place, part) for part in ("", "run-2", "again-1")] == [None] * 3
    write_atomic(place.trial, workspace.TRIAL.dump_json(trial).decode())
    assert finished(place) == trial
    found = {
        part: workspace.settled(TrialDir(tmp_path / f"0003{f'-{part}' if part else ''}"), part)
        for part in ("", "run-2", "again-1", "certificate-1-champion-1", "ablation-1")
    }
    assert [one and (one[0], one[1].value) for one in found.values()] == [
        (runs[0], 1.0),
        (runs[1], 2.0),
        (again.run, 7.0),
        None,
        None,
    ]
    alone = replace(trial, runs=runs[:1], score=scored(1.0), reruns=())
    write_atomic(place.trial, workspace.TRIAL.dump_json(alone).decode())
    assert workspace.settled(place, "") == (runs[0], scored(1.0))
