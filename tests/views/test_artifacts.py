"""The showcase: what a campaign's page in Prefect and its directory show, and that no fault of it ends a night."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.engine.certifying import store
from flows.report.write import write_report
from flows.views import certificate_page
from flows.views.artifacts import SEND_SECONDS, Artifacts, champion_page, key, table
from tasks.describe import headline
from tasks.plots.progress import draw, png
from tasks.store.ledger import Ledger
from tasks.trial import History
from tests.support.histories import certified
from tests.support.ledgers import created
from tests.support.outcomes import night
from tests.support.prefect_api import ask
from tests.support.toy import nightshift, quadratic, status

NOBODY = "http://127.0.0.1:9/api"
"""Where no server listens."""


def shown(server: str, flow_run_id: str) -> dict[str, dict[str, Any]]:
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


def picture_of(ledger: Ledger, history: History) -> bytes:
    of = ledger.environment
    picture = draw(
        history, ledger.campaign.name, metric=of.metric, higher_is_better=of.higher_is_better,
        certificates=ledger.certificates(),
    )  # fmt: skip
    return png(picture)


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
    of_the_resumed = shown(server, runs("a.b_c")[1])
    assert len(json.loads(of_the_resumed[key("a.b_c", "trials")]["data"])) == 5


def check_artifacts(server: str, ledger: Ledger, flow_run_id: str) -> None:
    """That the artifacts, and progress.png, show all of the campaign's trials."""
    found, history = shown(server, flow_run_id), ledger.history()
    certificates = ledger.certificates()
    proof = ["certificate"] if certificates else []
    assert set(found) == {f"campaign-a-b-c-{about}" for about in ("report", "progress", "trials", "champion", *proof)}
    png = (ledger.path / "progress.png").read_bytes()
    assert png == picture_of(ledger, history)
    assert base64.b64encode(png).decode() in found["campaign-a-b-c-progress"]["data"]
    assert json.loads(found["campaign-a-b-c-trials"]["data"]) == table(history, certificates)
    assert found["campaign-a-b-c-champion"]["data"] == champion_page(ledger, history, certificates)
    assert {artifact["type"] for artifact in found.values()} == {"markdown", "table"}
    assert found["campaign-a-b-c-trials"]["description"] == headline(history, "a.b_c", certificates)
    assert list(ledger.path.glob(".progress*")) == []


@pytest.mark.slow
def test_a_campaign_that_fails_leaves_its_final_state_too(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "bad", fit="raise SystemExit(3)\n")
    done = nightshift("run", str(folder), "--name", "bad", "--trials", "1", server=server)
    assert done.returncode == 1
    ledger = Ledger.open("bad")

    found = shown(server, runs("bad")[0])
    assert [row["verdict"] for row in json.loads(found[key("bad", "trials")]["data"])] == ["crash"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, ledger.history())
    assert "has a score yet" in found[key("bad", "champion")]["data"]


@pytest.mark.slow
def test_the_picture_is_there_from_the_first_trial_on(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25], up=False)
    run = flow_run(server)
    with prefect_at(server), Artifacts(ledger, run, write_report) as showcase:
        showcase.show(history)
        until(lambda: len(shown(server, run)) == 4)
        assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, history)


def test_a_night_makes_each_artifact_once_and_updates_it(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    run = flow_run(server)
    with prefect_at(server), Artifacts(ledger, run, write_report) as showcase:
        showcase.show(history[:1])
        until(lambda: len(shown(server, run)) == 4)
        before = shown(server, run)
        showcase.show(history)

    after = shown(server, run)
    assert {name: artifact["id"] for name, artifact in after.items()} == {
        name: artifact["id"] for name, artifact in before.items()
    }
    assert len(json.loads(after[key("n", "trials")]["data"])) == 3
    latest = ask("GET", f"{server}/artifacts/{key('n', 'trials')}/latest")
    assert latest["data"] == after[key("n", "trials")]["data"]


def test_a_replay_shows_nothing_older_than_what_is_shown(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    with prefect_at(server), Artifacts(ledger, flow_run(server), write_report) as showcase:
        for count in (3, 1, 2):
            showcase.show(history[:count])

    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, history)


def test_a_certificate_is_shown_although_no_trial_is_new(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    run = flow_run(server)
    with prefect_at(server), Artifacts(ledger, run, write_report) as showcase:
        showcase.show(history)
        until(lambda: len(shown(server, run)) == 4)
        store(ledger, certified(1, [1.0, 1.1, 0.9], [2.2, 2.3, 2.4], higher_is_better=False, error=0.01))
        showcase.show(history)

    (proof,) = ledger.certificates()
    after = shown(server, run)
    assert after[key("n", "certificate")]["data"] == certificate_page.page("n", (proof,), ())
    assert "trial 1 certified: 1 against the baseline's 2.3" in after[key("n", "trials")]["description"]
    assert "**certified: -1.3, better" in after[key("n", "champion")]["data"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, history)


def test_a_server_that_is_down_is_noted_once_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.views.artifacts.REST_SECONDS", 3600)
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    began = time.monotonic()
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report) as showcase:
        showcase.show(history[:1])
        until((ledger.path / "progress.png").exists)
        until(lambda: faults(ledger) == ["artifacts"])
        showcase.show(history[:2])
        early = picture_of(ledger, history[:1])
        assert (ledger.path / "progress.png").read_bytes() == early, "pages wait"
        showcase.show(history)

    assert faults(ledger) == ["artifacts"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, history)
    assert time.monotonic() - began < 3 * SEND_SECONDS


def test_a_campaign_that_ends_before_its_first_trial_shows_nothing(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report):
        pass

    assert not (ledger.path / "progress.png").exists()
    assert faults(ledger) == []


def test_an_interrupt_still_shows_what_was_decided(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), night([2.25], up=False)
    with pytest.raises(KeyboardInterrupt):
        show_and_be_interrupted(ledger, history)

    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger, history)


def show_and_be_interrupted(ledger: Ledger, history: History) -> None:
    with prefect_at(NOBODY), Artifacts(ledger, None, write_report) as showcase:
        showcase.show(history)
        raise KeyboardInterrupt


def test_the_table_has_the_newest_trial_first_and_only_parameters_that_vary() -> None:
    rows = table(night([2.25, "crash", 1.0], up=False))

    assert [row["trial"] for row in rows] == ["2", "1", "0"]
    assert [row["score"] for row in rows] == ["1", "", "2.25"]
    assert list(rows[0])[:7] == ["trial", "verdict", "level", "score", "± se", "runs", "proposer"]
    assert [row["level"] for row in rows] == ["provisional", "", "provisional"]
    assert list(rows[0])[-2:] == ["seconds", "reason"]
    assert "lr" in rows[0]
    assert [set(row) for row in table(night([2.25]))] == [set(rows[0]) - {"lr", "environments", "gamma", "activation"}]


def test_the_table_says_what_the_traceback_of_a_crash_ends_with_and_has_no_empty_column() -> None:
    first, second = night([2.25, "crash"], up=False)
    traceback = "\n".join(
        ["exited with status 1", "| Traceback (most recent call last):", "|  x" * 99, "| OSError: full"]
    )
    crashed = replace(second, verdict=replace(second.verdict, reason=traceback))
    unmeasured = replace(first, score=replace(first.score, se=None))

    newest, *_ = table((unmeasured, crashed))
    assert newest["reason"] == "`exited with status 1: OSError: full`"
    assert "± se" not in newest
    assert "± se" in table((first, crashed))[0]

    advised = replace(crashed, verdict=replace(crashed.verdict, reason=f"{traceback}\n(sandbox bwrap: see `readable`)"))
    assert table((first, advised))[0]["reason"].startswith("`exited with status 1: OSError: full (sandbox bwrap:")


def test_each_trial_has_a_link_to_the_form_of_rerun_that_markdown_and_the_page_can_read() -> None:
    from urllib.parse import parse_qs, urlsplit

    rows = table(night([2.25, 1.0], up=False), (), "a (b)", "http://127.0.0.1:4200/deployments/deployment/1/run")
    assert list(rows[0])[:2] == ["trial", "again"]
    (address,) = re.findall(r"^\[rerun\]\(([^()\s]+)\)$", rows[0]["again"])
    assert json.loads(parse_qs(urlsplit(address).query)["parameters"][0]) == {"name": "a (b)", "trial": 1}
    assert "again" not in table(night([2.25]))[0], "where rerun is not deployed"


def test_a_parameter_called_like_a_column_has_a_column_of_its_own() -> None:
    rows = table(night([2.25, 1.0], prefix="reason", up=False))

    assert {"reason", "reasonlr"} <= set(rows[0])


def test_the_champion_is_described_against_the_baseline(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    page = champion_page(ledger, night([2.25, 1.0], up=False))

    assert "## n: about 1 after 1 trial, baseline 2.25; nothing is certified yet" in page
    assert "**provisional**" in page
    assert f"git -C {ledger.path}/lineage.git diff baseline champion" in page
    assert "Nothing better was found yet" in champion_page(ledger, night([2.25, 3.0], up=False))


@pytest.mark.parametrize("name", ["a", "lunar_lander-3", "a.b_c-d", "night..2", "a-"])
def test_every_name_of_a_campaign_makes_a_key_that_prefect_allows(name: str) -> None:
    from prefect.client.schemas.actions import ArtifactCreate

    assert ArtifactCreate(key=key(name, "progress")).key == key(name, "progress")
