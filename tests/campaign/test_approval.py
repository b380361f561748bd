"""Approval: proposals that wait for a person, in files, in the terminal and in Prefect's own form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import approval as forms
from flows.status import document
from tasks.store import approval
from tasks.store.ledger import Ledger
from tasks.trial import Proposal
from tests.support.ledgers import created
from tests.support.prefect_api import ask
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, nightshift, quadratic, start, status

NOBODY = "http://127.0.0.1:9/api"
"""Where no server answers."""


def test_without_a_server_a_proposal_waits_for_the_terminal_until_its_time_is_over(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        forms.ask(ledger, 1, Proposal({"x": 1.0}), minutes=10)
        forms.ask(ledger, 2, Proposal({"x": 2.0}), minutes=0)
        assert [one.words for one in forms.collect(ledger)] == ["waiting", "rejected: nobody answered in time"]
        approval.answer(ledger, 1, True, "go", by="terminal")
        assert forms.collect(ledger)[0].words == "approved: go"


def test_what_a_form_shows_stays_inside_its_fence() -> None:
    edit = "--- a/fit.py\n+++ b/fit.py\n@@ -1 +1 @@\n-a\n+```\n+````\r</code>\x1b[2K\n"
    *_, first, rest = forms.page(Proposal({"x": 1.0}, edit=edit), {}).partition("diff\n")
    fence = first and rest.splitlines()[-1]
    assert set(fence) == {"`"} and not any(fence in line for line in rest.splitlines()[:-1])
    assert "\x1b" not in rest and "\r" not in rest


def until(name: str, what: str, found: Any) -> dict[str, Any]:
    """The status once it is as wanted."""

    def known() -> dict[str, Any] | None:
        document_now = document(Ledger.open(name)) if Ledger.exists(name) else None
        return document_now if document_now and found(document_now) else None

    return wait_for(known, 120, lambda: f"{name} never came to: {what}") or {}


@pytest.mark.slow
def test_every_trial_waits_for_a_word_from_terminal_or_form_and_the_answers_are_told(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = quadratic(tmp_path / "quad")
    running = start(
        "run", str(folder), "--name", "ask", "--trials", "2", "--seed", "1", "--approval", "all", *GREEDY,
        server=server,
    )  # fmt: skip
    try:
        first = until("ask", "a proposal waits", lambda d: d["state"] == "running" and d["waiting"])
        assert [one["trial"] for one in first["waiting"]] == [1]
        (flow_run,) = _paused(server, "ask trial 1")
        assert nightshift("reject", "ask", "7").returncode == 2
        done = nightshift("reject", "ask", "--comment", "too far out")
        assert done.returncode == 0 and "trial 1 is rejected" in done.stdout, done.stderr
        assert "name a pending trial of ask" in nightshift("approve", "ask", "1").stderr, "the first answer stands"
        second = until("ask", "the next waits", lambda d: [one["trial"] for one in d["waiting"]] == [2])
        assert second["trials"][-1]["trial"] == 0, "what was rejected never ran"
        (flow_run,) = _paused(server, "ask trial 2")
        said = {"run_input": {"approve": True, "comment": "go"}}
        answer = ask("POST", f"{server}/flow_runs/{flow_run['id']}/resume", said)
        assert answer["status"] == "ACCEPT", answer
        until("ask", "trial 2 ran", lambda d: 2 in [row["trial"] for row in d["trials"]])
        assert nightshift("approve", "ask", "3").returncode in (0, 2)  # it may not wait yet
        until("ask", "the next waits, or ran", lambda d: 3 in [one["trial"] for one in (*d["waiting"], *d["trials"])])
        nightshift("approve", "ask", "3")
        assert running.wait(60) == 0, running.communicate()[0]
    finally:
        running.kill()
        running.communicate()
    known = status("ask")
    assert [row["trial"] for row in known["trials"]] == [0, 2, 3]
    kinds = [(one["trial"], one["kind"], one["words"]) for one in known["incidents"] if one["kind"] != "turned down"]
    assert kinds == [
        (1, "rejected", "rejected: too far out"),
        (2, "approved", "approved: go"),
        (3, "approved", "approved"),
    ]
    ended = ask("GET", f"{server}/flow_runs/{flow_run['id']}")
    assert ended["state"]["name"] == "Approved"
    assert not (home / "ask/trials/0001/trial.json").exists()


def _paused(server: str, name: str) -> list[dict[str, Any]]:
    """The suspended runs of that name, whose form says what is proposed."""
    chosen = {"flow_runs": {"name": {"any_": [name]}, "state": {"type": {"any_": ["PAUSED"]}}}}
    found = wait_for(lambda: ask("POST", f"{server}/flow_runs/filter", chosen), 30)
    keys = found[0]["state"]["state_details"]["run_input_keyset"]
    text = ask("GET", f"{server}/flow_runs/{found[0]['id']}/input/{keys['description']}")
    assert "x " in text
    return found
