"""What is proved reaches every record: results.tsv, MLflow's runs and its model registry, once and not twice."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments.metric_guards import Guard
from environments.score import Score
from tasks.certifying.certificate import Certificate, Fresh, conclude
from tasks.certifying.group_design import Arm
from tasks.certifying.transfer import Conditions
from tasks.describe import caution
from tasks.record import COLUMNS, reconcile, record, rewrite
from tasks.store.ledger import CERTIFICATE, Ledger
from tasks.system.files import write_atomic
from tasks.tracking.campaign_run import campaign_note, summary_points
from tasks.tracking.certificates import certificate_points, certificate_tags, words
from tasks.tracking.client import CampaignRecord, Mlflow, TrialFiles
from tasks.tracking.outbox import Outbox
from tasks.tracking.receipts import unsent, waiting
from tasks.tracking.registry import model_name
from tasks.tracking.trial_run import trial_scalars, trial_tags, trial_times
from tasks.trial import EarlyStop, History, Rerun, Run, Trial, Verdict
from tests.support.champions import filed
from tests.support.fake_tracker import Shelf, night, notes, outbox_of
from tests.support.ledgers import created
from tests.support.mlflow_records import BEGIN, artifacts_of, client_of, make_files, make_trial, points_of, runs_of

BETTER, SAME = (310.0, 320.0, 330.0), (205.0, 195.0, 200.0)
"""Fresh scores of a champion, and of a baseline that it beats."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Mlflow:
    """One sqlite store for the module."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, home)
    return Mlflow(f"sqlite:///{home}/mlflow.db", home)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> CampaignRecord:
    name = request.node.name[:40]
    return CampaignRecord("night", f"id-{name}", name, "return/mean", True, None, BEGIN, {})


def fresh(arm: Arm, number: int, value: float | None, higher: bool = True, tidy: float = 0.0) -> Fresh:
    """A fresh run that began 100 s after the one before; without a value it crashed."""
    score = Score.of([value], higher) if value is not None else Score.missing("exited with 1\nlog", higher)
    run = Run(f"certificates/{arm}-{number}", number, 12.0, "finished", started=BEGIN + 1000 + 100 * number)
    return Fresh(arm, run, replace(score, also={"tidy": tidy}))


def certificate(
    champion: Sequence[float | None] = BETTER,
    baseline: Sequence[float | None] = SAME,
    look: int = 1,
    trial: int = 2,
    environment: str = "cartpole",
    higher: bool = True,
) -> Certificate:
    """What fresh runs with these scores prove; trial `trial` is the champion."""
    pairs = zip(champion, baseline, strict=True)
    runs = [
        one
        for number, (new, old) in enumerate(pairs, 1)
        for one in (fresh("champion", number, new, higher), fresh("baseline", number, old, higher))
    ]
    return conclude(look, 0.05, trial, environment, runs, {})


def history_of(*trials: Trial) -> History:
    return tuple(replace(trial, number=number, order=number) for number, trial in enumerate(trials))


NIGHT = history_of(make_trial(value=200.0), make_trial(kind="discard", value=190.0), make_trial(value=350.0))


# In results.tsv


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def prove(ledger: Ledger, one: Certificate) -> Certificate:
    """Store a certificate as the campaign does."""
    elsewhere = f"-on-{one.environment}" if one.elsewhere else ""
    path = ledger.path / "certificates" / f"{one.look}{elsewhere}.json"
    write_atomic(path, CERTIFICATE.dump_json(one).decode())
    return one


def proof_for(ledger: Ledger, look: int = 1, trial: int = 2, **scores: Any) -> Certificate:
    """A certificate of the ledger's environment, where lower is better, that passes unless scores are given."""
    found = {"champion": (1.0, 1.1, 1.2), "baseline": (3.0, 3.1, 3.2), **scores}
    environment = ledger.environment.name
    return certificate(look=look, trial=trial, environment=environment, higher=False, **found)


def results(ledger: Ledger) -> list[dict[str, str]]:
    with (ledger.path / "results.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_the_table_says_certified_once_a_certificate_passed(ledger: Ledger) -> None:
    shelf = Shelf()
    reconcile(ledger)
    night(ledger, outbox_of(ledger, shelf), shelf)
    assert [row["level"] for row in results(ledger)] == ["provisional", "", "provisional", ""]
    prove(ledger, proof_for(ledger))
    for _ in range(2):
        rewrite(ledger)
        assert [row["level"] for row in results(ledger)] == ["provisional", "", "certified", ""]
        assert tuple(results(ledger)[0]) == COLUMNS
    assert reconcile(ledger) == ledger.history()
    assert results(ledger)[2]["level"] == "certified"


def test_what_carries_over_to_another_environment_certifies_nothing_here(ledger: Ledger) -> None:
    shelf = Shelf()
    night(ledger, outbox_of(ledger, shelf), shelf)
    prove(ledger, replace(proof_for(ledger), environment="elsewhere", elsewhere=True))
    rewrite(ledger)
    assert [row["level"] for row in results(ledger)] == ["provisional", "", "provisional", ""]


def test_a_trial_of_several_runs_is_one_line_over_all_of_them(ledger: Ledger) -> None:
    trial = several_runs()
    reconcile(ledger)
    ledger.place(0).workspace.mkdir(parents=True)
    record(ledger, (), trial)
    (line,) = results(ledger)
    assert (line["score"], line["n"], line["se"]) == ("310.0", "3", "")
    assert (line["seconds"], line["steps"], line["peak_memory_gb"]) == ("60.0", "300", "3.0")


# A trial of several runs


def several_runs(kind: str = "keep") -> Trial:
    """Three runs that scored 300, 310 and 320, and two that ran again: the trial itself and an earlier champion."""
    runs = tuple(
        Run(
            "trials/0000",
            number,
            10.0 * number,
            "finished",
            peak_memory=number * 2**30,
            steps=100 * number,
            started=BEGIN + 100 * number,
            wall_seconds=50.0,
        )
        for number in (1, 2, 3)
    )
    score = Score.over([Score.of([value], True) for value in (300.0, 310.0, 320.0)])
    later = Run("trials/0000-again-1", 4, 10.0, "finished", started=BEGIN + 400, wall_seconds=50.0)
    reruns = (
        Rerun(0, later, Score.of([305.0], True)),
        Rerun(5, replace(later, started=BEGIN + 500), Score.of([290.0], True)),
    )
    verdict = Verdict(kind, "the baseline", "provisional")  # type: ignore[arg-type]
    first = make_trial()
    return Trial(0, 1, 0, first.proposal, runs, score, verdict, 600.0, reruns)


def test_a_trial_of_several_runs_shows_their_mean_their_spread_and_each_of_them(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path, metrics=1)
    for _ in range(2):
        store.log_trial(campaign, several_runs(), files)
    (run,) = runs_of(store, campaign)
    points = points_of(store, run)
    assert len(points.pop("train/m/0")) == 50
    end = int((BEGIN + 550) * 1000)
    assert points == {
        "return/mean": [(0, end, 310.0)],
        "score": [(0, end, 310.0)],
        "score/run_sd": [(0, end, 10.0)],
        "runs": [(0, end, 3.0)],
        "score/run": [(1, end, 300.0), (2, end, 310.0), (3, end, 320.0)],
        "score/rerun": [(1, end, 305.0)],
        "champion/rerun": [(1, end, 290.0)],
        "time/train": [(0, end, 60.0)],
        "memory/peak_gb": [(0, end, 3.0)],
    }
    assert (run.info.start_time, run.info.end_time) == ((BEGIN + 100) * 1000, end)


def test_a_crash_among_several_runs_has_no_score_at_all(campaign: CampaignRecord) -> None:
    trial = several_runs("crash")
    found = {point.key for point in trial_scalars(campaign, replace(trial, reruns=()))}
    assert "score/run" not in found and "runs" not in found


def test_a_single_run_has_no_spread(campaign: CampaignRecord) -> None:
    keys = {point.key for point in trial_scalars(campaign, make_trial())}
    assert keys.isdisjoint({"runs", "score/run", "score/run_sd", "score/rerun", "champion/rerun"})


def test_a_trial_ends_with_its_last_run(campaign: CampaignRecord) -> None:
    start, end = trial_times(campaign, several_runs())
    assert (start, end) == ((BEGIN + 100) * 1000, (BEGIN + 550) * 1000)


def spared(trial: Trial, carried_out: bool = False) -> Trial:
    (run,) = trial.runs
    due = EarlyStop(0.4, "below what the champion had after 40 % of its time", spared=not carried_out)
    return replace(trial, runs=(replace(run, due=due),))


def test_a_run_that_was_spared_says_why_it_should_have_ended(campaign: CampaignRecord, tmp_path: Path) -> None:
    files = TrialFiles(tmp_path)
    assert trial_tags(campaign, spared(make_trial()), files)["due"].startswith("below what the champion had")
    assert "due" not in trial_tags(campaign, spared(make_trial(kind="cancelled"), carried_out=True), files)


def test_what_cancelling_costs_is_counted(campaign: CampaignRecord) -> None:
    history = history_of(
        make_trial(),
        spared(make_trial()),
        spared(make_trial(kind="discard")),
        spared(make_trial(kind="cancelled", value=None), carried_out=True),
    )
    values = {point.key: point.value for point in summary_points(campaign, history)}
    assert (values["cancelled"], values["spared"], values["spared/kept"]) == (1, 2, 1)


# A campaign's own run


def test_a_certificate_stands_on_the_campaigns_run_once(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    proved = [certificate(environment=campaign.environment)]
    for _ in range(2):
        store.log_certificates(campaign, NIGHT, proved)
        Mlflow(store.uri, tmp_path).close_campaign(campaign, "finished", NIGHT, proved, tmp_path / "gone")
    (run,) = runs_of(store, campaign, "campaign")
    points = {key: found for key, found in points_of(store, run).items() if key.startswith("certificate/")}
    end = int((BEGIN + 1300) * 1000)
    comparison = proved[0].comparison
    assert comparison is not None and comparison.gain == 120.0
    assert points == {
        "certificate/gain": [(0, end, 120.0)],
        "certificate/low": [(0, end, proved[0].bounds[0])],
        "certificate/high": [(0, end, proved[0].bounds[1])],
        "certificate/p": [(0, end, comparison.p)],
        "certificate/champion": [(0, end, 320.0)],
        "certificate/baseline": [(0, end, 200.0)],
        "certificate/champion/run": [(n, end, value) for n, value in enumerate(BETTER, 1)],
        "certificate/baseline/run": [(n, end, value) for n, value in enumerate(SAME, 1)],
    }
    assert (run.data.tags["certified"], run.data.tags["shipped"]) == ("yes", "champion")
    assert run.data.tags["certificate"] == words(proved[0])
    assert run.data.metrics["gain"] == 150.0, "what the search saw stays as it was"
    assert (run.info.status, run.info.end_time) == ("FINISHED", end)


def test_a_newer_look_adds_points_and_replaces_the_words(store: Mlflow, campaign: CampaignRecord) -> None:
    first = certificate(environment=campaign.environment, trial=1)
    second = certificate((201.0, 199.0, 200.0), look=2, environment=campaign.environment)
    store.log_certificates(campaign, NIGHT, [first])
    store.log_certificates(campaign, NIGHT, [first, second])
    (run,) = runs_of(store, campaign, "campaign")
    points = points_of(store, run)
    assert [(step, value) for step, _, value in points["certificate/gain"]] == [(0, 120.0), (1, 0.0)]
    assert [step for step, _, _ in points["certificate/champion/run"]] == [1, 2, 3, 4, 5, 6]
    tags = run.data.tags
    assert (tags["certified"], tags["shipped"]) == ("no", "champion"), "what was certified before still ships"
    assert (
        tags["certificate"]
        == "not certified, because on fresh runs it is no better than the baseline (3 v 3 fresh runs)"
    )
    assert tags["mlflow.note.content"].splitlines()[0] == (
        "Trial 2 **not certified**, because on fresh runs it is no better than the baseline (3 v 3 fresh runs); trial 1 ships."
    )


def test_the_note_says_first_what_is_certified_and_how_to_take_it(campaign: CampaignRecord) -> None:
    lines = campaign_note(campaign, NIGHT, [certificate(environment=campaign.environment)]).splitlines()
    assert lines[0].startswith("Trial 2 **certified**: +120 (at least +")
    assert "3 v 3 fresh runs, one-sided p = " in lines[0]
    assert "; it passed so clearly that the estimate need not be lowered" in lines[0]
    assert lines[2] == (
        "**Champion: trial 2**, return/mean 350 against the baseline's 200 (+150); higher is better. "
        "That is what the search saw, and luck flatters it."
    )


def test_a_champion_that_came_after_the_certificate_is_not_taken_for_certified(campaign: CampaignRecord) -> None:
    history = history_of(*NIGHT, make_trial(value=360.0))
    note = campaign_note(campaign, history, [certificate(environment=campaign.environment)])
    assert note.startswith("Trial 2 **certified**: ")
    assert "**Champion: trial 3**" in note
    assert "Provisional: not tested on fresh runs" in note


def test_a_change_is_told_in_the_metrics_own_sign(campaign: CampaignRecord) -> None:
    losses = replace(campaign, metric="loss", higher_is_better=False)
    one = certificate((1.0, 1.1, 0.9), (3.0, 3.1, 2.9), environment=campaign.environment, higher=False)
    assert words(one).startswith("certified: -2, better (at most -1.")
    assert {point.key: point.value for point in certificate_points(losses, [one])}["certificate/gain"] == 2.0


def test_where_fresh_runs_crashed_there_is_no_mean_to_compare(campaign: CampaignRecord) -> None:
    one = certificate((310.0, None, 330.0), environment=campaign.environment)
    points = certificate_points(campaign, [one])
    assert {point.key for point in points} == {"certificate/champion/run", "certificate/baseline/run"}
    assert [point.step for point in points if "champion" in point.key] == [1, 3]
    assert certificate_tags(campaign, [one]) == {
        "certified": "no",
        "shipped": "baseline",
        "certificate": "not certified, because 1 of 3 fresh runs of the champion crashed: exited with 1",
    }


def test_what_a_program_says_of_its_crash_fetches_nothing_from_elsewhere(campaign: CampaignRecord) -> None:
    one = replace(
        certificate((None,) * 3, environment=campaign.environment), reason="crashed: ![x](http://a.example)\x1b[2J"
    )
    assert r"because crashed: \![x](http://a.example); the baseline ships." in campaign_note(campaign, NIGHT, [one])


def test_a_guarded_metric_that_fell_is_why_nothing_is_certified(campaign: CampaignRecord) -> None:
    runs = [fresh("champion", number, value, tidy=-5.0 - number) for number, value in enumerate(BETTER)]
    runs += [fresh("baseline", number, value, tidy=0.1 * number) for number, value in enumerate(SAME)]
    one = conclude(1, 0.05, 2, campaign.environment, runs, {"tidy": Guard(margin=1.0)})
    assert certificate_tags(campaign, [one])["certificate"].startswith(
        "not certified, because tidy may have become worse by"
    )


def test_what_carries_over_stands_beside_and_certifies_nothing(campaign: CampaignRecord) -> None:
    one = replace(certificate(environment="moon: far"), elsewhere=True)
    found = {point.key: point.value for point in certificate_points(campaign, [one])}
    assert found["transfer/moon: far/gain"] == 120.0
    assert {"transfer/moon: far/p", "transfer/moon: far/low"} <= found.keys()
    assert not any(key.startswith("certificate/") for key in found)
    assert certificate_tags(campaign, [one]) == {}
    assert campaign_note(campaign, NIGHT, [one]).startswith("On moon: far: certified: +120 (at least +")


def test_another_budget_and_the_figure_over_environments_have_metrics_of_their_own(campaign: CampaignRecord) -> None:
    longer = replace(certificate(), elsewhere=True, conditions=Conditions(4.0))
    there = [
        replace(certificate(environment=name), elsewhere=True, conditions=Conditions(changed={"lr": 0.1}))
        for name in ("hills", "moon")
    ]
    found = {point.key: point.value for point in certificate_points(campaign, [longer, *there])}
    assert found["transfer-4x/cartpole/gain"] == 120.0 and found["transfer/moon/gain"] == 120.0
    assert found["aggregate/low"] <= found["aggregate/gain"] <= found["aggregate/high"]
    assert certificate_tags(campaign, [longer, *there]) == {}
    note = campaign_note(campaign, NIGHT, [longer, *there])
    assert "On cartpole at 4x the budget: certified" in note and "interquartile mean" in note


# The model registry


def registered(store: Mlflow, campaign: CampaignRecord) -> dict[str, Any]:
    """The versions of an environment's model by number: the trials that they come from, and where the alias stands."""
    name = model_name(campaign.environment)
    versions = client_of(store).search_model_versions(f"name = '{name}'")
    aliases = client_of(store).get_registered_model(name).aliases if versions else {}
    return {"versions": {int(v.version): v.tags["trial"] for v in versions}, **aliases}


def test_a_certified_checkpoint_becomes_the_champion_of_its_model(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    one = certificate(environment=campaign.environment, trial=7)
    run_id = store.log_trial(campaign, make_trial(), make_files(tmp_path))
    for _ in range(2):
        told = Mlflow(store.uri, tmp_path).register(campaign, one, filed(tmp_path), run_id)
        assert told.startswith(f"{model_name(campaign.environment)} version 1, files only: ")
    assert {key: str(value) for key, value in registered(store, campaign).items()} == {
        "versions": "{1: '7'}",
        "champion": "1",
    }
    client, name = client_of(store), model_name(campaign.environment)
    version = client.get_model_version_by_alias(name, "champion")
    assert (version.run_id, version.status) == (run_id, "READY")
    assert version.tags["campaign_id"] == campaign.campaign_id
    assert version.description == f"{words(one)}; {caution(one)}"
    place = client.get_model_version_download_uri(name, "1").removeprefix("file://")
    assert (Path(place) / "out" / "policy.pt").read_bytes() == b"weights"
    (parent,) = runs_of(store, campaign, "campaign")
    assert parent.data.tags["model"] == told


def test_the_alias_stands_at_what_was_certified_last(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    for number in (3, 5):
        run_id = store.log_trial(campaign, make_trial(number), files)
        store.register(
            campaign, certificate(environment=campaign.environment, trial=number), filed(tmp_path, number), run_id
        )
    first = next(run for run in runs_of(store, campaign) if run.data.tags["trial"] == "3")
    store.register(
        campaign, certificate(environment=campaign.environment, trial=3), filed(tmp_path, 3), first.info.run_id
    )
    found = registered(store, campaign)
    assert (found["versions"], int(found["champion"])) == ({1: "3", 2: "5"}, 2)


def test_without_an_uploaded_checkpoint_nothing_is_registered(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path)
    with (tmp_path / "out" / "policy.pt").open("wb") as file:
        file.truncate(300_000_000)  # sparse: takes no room
    run_id = store.log_trial(campaign, make_trial(), files)
    told = store.register(campaign, certificate(environment=campaign.environment), filed(tmp_path), run_id)
    assert told == ("not registered: its checkpoint is not uploaded: out/ holds 300 MB, more than 200 MB")
    assert registered(store, campaign)["versions"] == {}
    assert runs_of(store, campaign, "campaign")[0].data.tags["model"] == told


def test_a_store_without_a_registry_is_no_failure(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "ftp://nowhere")
    tracker = Mlflow(store.uri, tmp_path)
    run_id = tracker.log_trial(campaign, make_trial(), make_files(tmp_path))
    told = tracker.register(campaign, certificate(environment=campaign.environment), filed(tmp_path), run_id)
    assert told.startswith("not registered: MLflow at sqlite://")
    assert "ftp" in told


def test_a_models_name_is_one_that_mlflow_takes() -> None:
    assert model_name("lunar_lander") == "nightshift.lunar_lander"
    assert model_name("my/own: one's") == "nightshift.my_own__one_s"


# On the way there


def test_a_certificate_waits_as_a_trial_does_and_is_sent_once(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    history = night(ledger, outbox, shelf)
    assert waiting(ledger, history) == 0
    prove(ledger, proof_for(ledger))
    assert waiting(ledger, history) == 1
    for _ in range(2):
        outbox.close("finished")
    assert (shelf.proved, shelf.registered, waiting(ledger, history)) == ([[1]], [(2, "run-2")], 0)
    assert (shelf.sent, shelf.levels[-1]) == ([0, 1, 2, 3, 2], "certified")
    (event,) = [event for event in ledger.events() if event["event"] == "registered"]
    assert (event["trial"], event["model"]) == (2, "a-model version 1")
    assert [path.name for path in (ledger.path / "certificates").glob("*.json")] == ["1.json"]
    assert len(ledger.certificates()) == 1, "a receipt is no certificate"
    assert json.loads((ledger.path / "certificates/1.receipt").read_text())["run_id"] == "run-2"


def test_a_server_that_is_down_at_the_certificate_gets_it_in_the_next_life(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    history = night(ledger, outbox, shelf)
    prove(ledger, proof_for(ledger))
    shelf.down = True
    outbox.close("finished")
    both = [("connection refused", 1), ("connection refused", 2)]
    assert (notes(ledger), shelf.ended) == (both, []), "the certificate, and the campaign's end"
    shelf.down = False
    following = outbox_of(ledger, shelf, history)
    assert following.waiting == []
    following.close("finished")
    assert (shelf.proved, shelf.ended, waiting(ledger, history)) == ([[1]], ["finished"], 0)


def test_a_certificate_that_proves_nothing_registers_nothing(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    night(ledger, outbox, shelf)
    prove(ledger, proof_for(ledger, champion=(3.0, 3.1, 3.2)))
    prove(ledger, replace(proof_for(ledger), environment="elsewhere", elsewhere=True))
    outbox.close("finished")
    assert (shelf.registered, shelf.sent, unsent(ledger)) == ([], [0, 1, 2, 3], [])
    names = {path.name for path in (ledger.path / "certificates").glob("*.receipt")}
    assert names == {"1.receipt", "1-on-elsewhere.receipt"}


def test_a_newer_look_is_sent_with_those_before(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    night(ledger, outbox, shelf)
    for look in (1, 2):
        prove(ledger, proof_for(ledger, look=look))
        outbox.drain()
    assert shelf.proved == [[1], [1, 2]]


def test_a_certificate_that_is_rejected_is_noted_and_holds_up_nothing(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    history = night(ledger, outbox, shelf)
    shelf.unproved = {1}
    prove(ledger, proof_for(ledger))
    for _ in range(2):
        outbox.close("finished")
    assert notes(ledger) == [("a name that is too long", 1)]
    assert (shelf.ended, waiting(ledger, history)) == (["finished", "finished"], 1)


def test_with_tracking_off_no_certificate_waits(ledger: Ledger) -> None:
    shelf = Shelf()
    history = night(ledger, outbox_of(ledger, shelf), shelf)
    prove(ledger, proof_for(ledger))
    Outbox(ledger, "off", None, history).close("finished")
    assert waiting(ledger, history) == 0


@pytest.fixture
def tracked(ledger: Ledger, store: Mlflow) -> tuple[Outbox, CampaignRecord]:
    """A whole night of the ledger in the real store, certified."""
    shelf = Shelf()
    history = night(ledger, outbox_of(ledger, shelf, ()), shelf)
    for trial in history:
        (ledger.place(trial.number).path / "tracked.json").unlink()
        ledger.place(trial.number).out.mkdir(exist_ok=True)
        (ledger.place(trial.number).out / "model.json").write_text("{}")
    prove(ledger, proof_for(ledger))
    outbox = Outbox(ledger, store.uri, None, history)
    return outbox, outbox._campaign


def test_a_certified_night_is_in_mlflow_whole_however_often_it_is_sent(
    tracked: tuple[Outbox, CampaignRecord], ledger: Ledger, store: Mlflow
) -> None:
    outbox, campaign = tracked
    outbox.close("finished")
    before = [(run.data, points_of(store, run)) for run in runs_of(store, campaign)]
    for receipt in ledger.path.rglob("*.receipt"):
        receipt.unlink()
    Outbox(ledger, store.uri, None, ledger.history()).close("finished")
    runs = {run.data.tags["trial"]: run for run in runs_of(store, campaign)}
    assert [(run.data.tags, points_of(store, run)) for run in runs_of(store, campaign)] == [
        (data.tags, points) for data, points in before
    ]
    assert runs["2"].data.tags["level"] == "certified"
    assert runs["2"].data.tags["mlflow.note.content"].startswith("**keep** (certified)")
    (parent,) = runs_of(store, campaign, "campaign")
    assert (parent.data.tags["certified"], parent.data.tags["champion"]) == ("yes", "2")
    assert "certificates/1.json" in artifacts_of(store, parent.info.run_id, "certificates")
    assert registered(store, campaign)["versions"] == {1: "2"}
    model = [event["model"] for event in ledger.events() if event["event"] == "registered"]
    assert [told.partition(",")[0] for told in model] == [f"{model_name(campaign.environment)} version 1"] * 2
