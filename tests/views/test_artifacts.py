"""The showcase: what a campaign's page in Prefect and its directory show, and that no fault of it ends a night."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments.metric_guards import Guard
from flows.engine.certifying import store
from flows.report.write import write_report
from flows.status import document
from flows.views.artifacts import SEND_SECONDS, Artifacts, artifacts, certificate_page, key, progress_page, table
from flows.views.terminal import cleaned
from tasks.plots.progress import draw, png
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.system.files import write_atomic
from tasks.trial import History
from tests.support.histories import certified, tried
from tests.support.ledgers import created
from tests.support.outcomes import night
from tests.support.prefect_api import ask
from tests.support.toy import nightshift, quadratic, status

NOBODY = "http://127.0.0.1:9/api"
"""Where no server listens."""


def shown_at(server: str, flow_run_id: str) -> dict[str, dict[str, Any]]:
    """A flow run's artifacts by key, its own result left out; two of one key are a failure."""
    chosen = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}}}
    every = ask("POST", f"{server}/artifacts/filter", chosen)
    found = [artifact for artifact in every if artifact["key"]]
    by_key = {artifact["key"]: artifact for artifact in found}
    assert len(by_key) == len(found)
    return by_key


def runs(name: str) -> list[str]:
    """The flow runs of a campaign's lives."""
    return [event["flow_run_id"] for event in Ledger.open(name).events() if event["event"] == "life"]


def faults(ledger: Ledger) -> list[str]:
    return [event["failed"] for event in ledger.events() if event["event"] == "view"]


def picture_of(ledger: Ledger) -> bytes:
    of = ledger.environment
    picture = draw(
        ledger.history(), ledger.campaign.name, metric=of.metric, higher_is_better=of.higher_is_better,
        certificates=ledger.certificates(),
    )  # fmt: skip
    return png(picture)


def write(ledger: Ledger, history: History) -> None:
    """Have the ledger hold these trials."""
    for trial in history:
        write_atomic(ledger.place(trial.number).trial, TRIAL.dump_json(trial).decode())


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.05)


@contextlib.contextmanager
def prefect_at(url: str) -> Iterator[None]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}):
        yield


def flow_run(server: str) -> str:
    """A new flow run, to hang artifacts on."""
    flow = ask("POST", f"{server}/flows/", {"name": "test"})["id"]
    return str(ask("POST", f"{server}/flow_runs/", {"flow_id": flow})["id"])


@pytest.mark.slow
def test_a_campaign_leaves_its_final_state_and_a_resumed_one_its_own(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad")
    begun = nightshift("run", str(folder), "--name", "a.b_c", "--trials", "2", "--seed", "1", server=server)
    assert begun.returncode == 0, begun.stderr
    ledger = Ledger.open("a.b_c")
    check_artifacts(server, ledger, runs("a.b_c")[0])

    (home / "a.b_c" / "progress.png").unlink()
    (home / "a.b_c" / "progress.png").mkdir()  # and now nothing can be written there
    resumed = nightshift("resume", "a.b_c", "--trials", "4", server=server)
    assert resumed.returncode == 0, resumed.stderr
    assert status("a.b_c")["spent"]["trials"] == 4
    assert faults(ledger) == ["picture"]
    of_the_resumed = shown_at(server, runs("a.b_c")[1])
    assert len(json.loads(of_the_resumed[key("a.b_c", "trials")]["data"])) == 5


def check_artifacts(server: str, ledger: Ledger, flow_run_id: str) -> None:
    """That the artifacts, and progress.png, show all of the campaign's trials."""
    found, shown = shown_at(server, flow_run_id), cleaned(document(ledger))
    png = (ledger.path / "progress.png").read_bytes()
    expected = {key("a.b_c", one.about): one for one in artifacts(shown, ledger.path, png, "a report")}
    assert set(found) == set(expected)
    assert png == picture_of(ledger)
    assert json.loads(found["campaign-a-b-c-trials"]["data"]) == table(shown)
    assert base64.b64encode(png).decode() in found["campaign-a-b-c-progress"]["data"]
    assert {artifact["type"] for artifact in found.values()} == {"markdown", "table"}
    assert found["campaign-a-b-c-trials"]["description"] == shown["headline"]
    assert list(ledger.path.glob(".progress*")) == []


@pytest.mark.slow
def test_a_campaign_that_fails_leaves_its_final_state_too(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "bad", fit="raise SystemExit(3)\n")
    done = nightshift("run", str(folder), "--name", "bad", "--trials", "1", server=server)
    assert done.returncode == 1
    ledger = Ledger.open("bad")

    found = shown_at(server, runs("bad")[0])
    assert [row["verdict"] for row in json.loads(found[key("bad", "trials")]["data"])] == ["crash"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)
    assert "has a score yet" in found[key("bad", "progress")]["data"]


def test_a_night_makes_each_artifact_once_and_updates_it(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    run = flow_run(server)
    write(ledger, history[:1])
    with prefect_at(server), Artifacts(ledger, run, write_report) as showcase:
        showcase.show()
        until(lambda: len(shown_at(server, run)) == 3)
        assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)
        before = shown_at(server, run)
        write(ledger, history)
        store(ledger, certified(1, [1.0, 1.1, 0.9], [2.2, 2.3, 2.4], higher_is_better=False, error=0.01))
        showcase.show()

    after = shown_at(server, run)
    assert {name: after[name]["id"] for name in before} == {name: one["id"] for name, one in before.items()}
    assert len(json.loads(after[key("n", "trials")]["data"])) == 3
    assert after[key("n", "certificate")]["data"] == certificate_page(cleaned(document(ledger)))
    assert "trial 1 certified: 1 against the baseline's 2.3" in after[key("n", "trials")]["description"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)


def test_a_server_that_is_down_is_noted_once_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.views.artifacts.REST_SECONDS", 3600)
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    began = time.monotonic()
    write(ledger, history[:1])
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report) as showcase:
        showcase.show()
        until(lambda: faults(ledger) == ["artifacts"])
        early = (ledger.path / "progress.png").read_bytes()
        write(ledger, history)
        showcase.show()
        assert (ledger.path / "progress.png").read_bytes() == early, "pages wait"

    assert faults(ledger) == ["artifacts"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger) != early
    assert time.monotonic() - began < 3 * SEND_SECONDS


def test_a_campaign_that_ends_before_its_first_trial_shows_nothing(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report):
        pass
    assert not (ledger.path / "progress.png").exists() and faults(ledger) == []


def test_an_interrupt_still_shows_what_was_decided(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    write(ledger, night([2.25], up=False))
    with pytest.raises(KeyboardInterrupt):
        show_and_be_interrupted(ledger)
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)


def show_and_be_interrupted(ledger: Ledger) -> None:
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report) as showcase:
        showcase.show()
        raise KeyboardInterrupt


def shown_of(ledger: Ledger, history: History) -> dict[str, Any]:
    """The document that artifacts are made from."""
    write(ledger, history)
    found: dict[str, Any] = cleaned(document(ledger))
    return found


def test_the_table_has_the_newest_trial_first_and_only_parameters_that_vary(tmp_path: Path) -> None:
    rows = table(shown_of(created(tmp_path), night([2.25, "crash", 1.0], up=False)))

    assert [row["trial"] for row in rows] == ["2", "1", "0"]
    assert [row["score"] for row in rows] == ["1", "", "2.25"]
    assert [row["level"] for row in rows] == ["provisional", "", "provisional"]
    assert "params.lr" in rows[0] and list(rows[0])[-1] == "reason"
    (alone,) = table(shown_of(created(tmp_path, "m"), night([2.25])))
    assert not [name for name in alone if name.startswith("params.")]


def test_the_table_says_what_the_traceback_of_a_crash_ends_with_and_has_no_empty_column(tmp_path: Path) -> None:
    first, second = night([2.25, "crash"], up=False)
    traceback = "\n".join(
        ["exited with status 1", "| Traceback (most recent call last):", "|  x" * 99, "| OSError: full"]
    )
    crashed = replace(second, verdict=replace(second.verdict, reason=traceback))
    unmeasured = replace(first, score=replace(first.score, se=None))

    newest, *_ = table(shown_of(created(tmp_path), (unmeasured, crashed)))
    assert newest["reason"] == "`exited with status 1: OSError: full`" and "± se" not in newest


def test_the_page_of_a_certificate_has_every_fresh_run_the_test_and_the_guards(tmp_path: Path) -> None:
    ledger, guards = created(tmp_path), {"source/windy": (Guard(margin=5.0), 10.0, 11.0)}
    first = tried((), 80.0)
    history = (first, tried((first,), 70.0))
    history += (tried(history, 200.0),)
    assert certificate_page(shown_of(ledger, history)) == ""
    for one in (
        certified(2, [190, 205, 182], [84, 70, 95], guards=guards),
        certified(2, [5.0, 5.1], [4.0, 4.1], on="windy", error=0.01),
    ):
        store(ledger, one)
    text = certificate_page(shown_of(ledger, history))

    assert "| 1 | 190 | 84 |" in text and "| 2 | 205 | 70 |" in text and "Welch's one-sided t-test" in text
    assert "| `source/windy` | 5 | " in text and "## In `windy`" in text and "| 1 | 5 | 4 |" in text


def test_the_progress_page_says_the_outcome_and_where_things_are(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    page = progress_page(shown_of(ledger, night([2.25, 1.0], up=False)), ledger.path, b"png")

    assert "about 1 after 1 trial, baseline 2.25; nothing is certified yet" in page and "provisional" in page
    assert f"git -C {ledger.path}/lineage.git diff baseline champion" in page and "data:image/png" in page


@pytest.mark.parametrize("name", ["a", "lunar_lander-3", "a.b_c-d", "night..2", "a-"])
def test_every_name_of_a_campaign_makes_a_key_that_prefect_allows(name: str) -> None:
    from prefect.client.schemas.actions import ArtifactCreate

    assert ArtifactCreate(key=key(name, "progress")).key == key(name, "progress")
