"""What is said of a campaign's outcome: certificates, what ships, what was cancelled; in words, JSON and markdown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments.score import Guard
from flows.engine.certifying import store
from flows.status import document, summary
from flows.views import overview
from flows.views.dataframe import load_history, load_runs
from flows.views.terminal import cleaned
from tasks.stats.certificate import Certificate, Conditions
from tasks.store.ledger import Ledger
from tasks.trial import History
from tests.support.histories import certified, search, tried
from tests.support.ledgers import created, filled

CLEAR = [190, 205, 182], [84, 70, 95]
PASSED = certified(2, *CLEAR)
FAILED = certified(2, [120, 85, 99], [84, 70, 95])


def up(*more: History) -> History:
    """A baseline of three runs, a trial that was discarded and one that was kept."""
    history: History = (tried((), 80.0, 84.0, 88.0),)
    history += (tried(history, 70.0),)
    return (*history, tried(history, 200.0))


def ended(tmp_path: Path, history: History, *certificates: Certificate, state: str = "finished", **spec: Any) -> Ledger:
    """A campaign with these trials and certificates, as its directory has them."""
    ledger = filled(created(tmp_path, **spec), history)
    for certificate in certificates:
        store(ledger, certificate)
    ledger.event("life", pid=1)
    ledger.event("end", state=state, reason="all 2 trials done")
    return ledger


@pytest.mark.parametrize(
    ("rule", "state", "certificates", "history", "shipped"),
    [
        ("certify", "finished", [PASSED], up(), ("champion", 2)),
        ("certify", "finished", [FAILED], up(), ("baseline", 0)),
        ("certify", "stopped", [], up(), (None, None)),
        ("certify", "stopped", [PASSED], up(), ("champion", 2)),
        ("certify", "failed", [], up(), ("baseline", 0)),
        ("certify", "finished", [], up()[:2], ("baseline", 0)),
        ("greedy", "finished", [], up(), ("champion", 2)),
        ("certify", "finished", [PASSED, certified(2, [9, 8], [9, 8], look=2)], up(), ("champion", 2)),
        ("certify", "finished", [certified(1, *CLEAR), certified(2, *CLEAR, look=2)], up(), ("champion", 2)),
        ("greedy", "finished", [FAILED], (*up(), tried(up(), 220.0)), ("champion", 3)),
    ],
)
def test_what_ships_follows_from_the_newest_certificate_that_passed(
    tmp_path: Path, rule: str, state: str, certificates: list[Certificate], history: History, shipped: tuple[Any, Any]
) -> None:
    found = document(ended(tmp_path, history, *certificates, state=state, rule=rule))
    assert (found["shipped"], found["shipped_trial"]) == shipped


def test_a_status_has_every_run_and_what_is_believed_of_the_champion(tmp_path: Path) -> None:
    history = (*up(), tried(up(), 90.0, kind="discard", reruns=[(3, 92.0), (2, 150.0)]))
    found = document(ended(tmp_path, history))
    first, champion = found["baseline"], found["champion"]
    assert (first["trial"], first["score"], first["runs"], first["n"]) == (0, 84.0, 3, 48)
    assert (champion["score"], champion["runs"], champion["level"]) == (175.0, 2, "provisional")
    assert 84 < champion["estimate"]["level"] < 200
    assert champion["estimate"]["run_sd"] > 0 < champion["estimate"]["se"]
    assert [row["runs"] for row in found["trials"]] == [3, 1, 1, 1]
    assert found["trials"][0]["values"] == [80.0, 84.0, 88.0]
    assert found["trials"][3]["reruns"] == [{"of": 3, "score": 92.0}, {"of": 2, "score": 150.0}]
    assert (found["certificate"], found["transfers"]) == (None, [])


def test_a_certificate_in_a_status_is_whole_and_its_gain_is_positive_where_it_is_better(tmp_path: Path) -> None:
    guards = {"speed": (Guard(margin=5.0), 10.0, 11.0)}
    proof = certified(2, [0.2, 0.21, 0.19], [1.2, 1.0, 1.1], higher_is_better=False, guards=guards, error=0.01)
    history: History = (tried((), 2.0, 2.2, 2.1, higher_is_better=False),)
    history += (tried(history, 3.0, higher_is_better=False),)
    history += (tried(history, 0.1, higher_is_better=False),)
    elsewhere = certified(2, [5.0, 5.1, 5.2], [4.0, 4.1, 4.2], on="other", error=0.01)
    found = document(ended(tmp_path, history, proof, elsewhere))
    shown = found["certificate"]
    assert (shown["look"], shown["alpha"], shown["trial"], shown["passed"], shown["runs"]) == (1, 0.05, 2, True, 3)
    assert (shown["planned"], shown["looks"]) == ({"champion": 3, "baseline": 3}, [[3, 3]])
    assert found["reserved"]["looks"][-1] == [found["reserved"]["champion"], found["reserved"]["baseline"]]
    assert shown["gain"] == pytest.approx(0.9) and 0 < shown["low"] < 0.9 < shown["high"]
    assert shown["champion"] == {"mean": pytest.approx(0.2), "values": [0.2, 0.21, 0.19]}
    assert shown["baseline"]["mean"] == pytest.approx(1.1)
    assert shown["guards"] == [
        {"metric": "speed", "margin": 5.0, "loss": pytest.approx(1.0), "bound": pytest.approx(1.2, abs=0.1), "holds": True}
    ]  # fmt: skip
    assert found["champion"]["level"] == found["trials"][2]["level"] == "certified"
    assert [(one["environment"], one["passed"]) for one in found["transfers"]] == [("other", True)]


@pytest.mark.parametrize("history", [(), (tried((), None),), up(), search(12), search(12, sign=-1)])
def test_every_status_is_strict_json(tmp_path: Path, history: History) -> None:
    certificates = [PASSED, certified(2, [3.0, 3.0], [1.0, 1.0], look=2), certified(2, [None], [1.0], look=3)]
    ledger = ended(tmp_path, history, *(certificates if len(history) > 2 else []))
    found = json.loads(json.dumps(document(ledger), allow_nan=False))
    assert len(found["trials"]) == len(history)
    json.dumps(summary(ledger), allow_nan=False)
    assert [*overview.outcome(cleaned(found))][1].plain == found["result"]["verdict"]


def test_a_campaign_is_a_table_with_a_row_per_trial_and_per_run(tmp_path: Path) -> None:
    history: History = (tried((), 3.0, params={"x": 2.5}, higher_is_better=False),)
    history += (tried(history, None, params={"x": 1.5}, higher_is_better=False),)
    history += (tried(history, 1.0, params={"x": 0.5}, higher_is_better=False),)
    ledger = filled(created(tmp_path), history)
    here = certified(2, (1.0, 1.1), (3.0, 3.1), higher_is_better=False)
    there = certified(2, (1.0, 1.1), (3.0, 3.1), higher_is_better=False, on="other")
    for one in (here, replace(there, conditions=Conditions(4.0))):
        store(ledger, one)

    table, runs = load_history("n"), load_runs("n")

    assert list(table["verdict"]) == ["keep", "crash", "keep"]
    assert list(table["params.x"]) == [2.5, 1.5, 0.5]
    assert (table["trial"].dtype, table["score"].dtype) == ("int64", "float64")
    assert math.isnan(table["score"][1]) and table["n"][1] == 0
    assert list(dict.fromkeys(runs["phase"])) == ["search", "certificate 1", "certificate 1 in other at 4x the budget"]
    assert list(runs[runs["phase"] == "certificate 1"]["trial"]) == [2, 0, 2, 0]
