"""Whole nights with a language model: numbers, a stall, code, an outage, a person's word, and what is told of it all."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows import approval as forms
from flows.cli import deciding
from flows.status import document
from tasks.store import approval
from tasks.store.ledger import Ledger
from tasks.trial import Proposal
from tests.support.fake_llm import Asked, FakeLLM, Reply
from tests.support.mlflow_records import mlflow_runs
from tests.support.prefect_api import ask, prefect_at
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, nightshift, quadratic, start, status

KEY = "sk-of-a-test-0123456789"
SAVE = '(args.out / "model.json").write_text(json.dumps({"x": args.x}))'


def edit(replacement: str, rationale: str, file: str = "fit.py", search: str = SAVE) -> str:
    return (
        f'{{"rationale": "{rationale}", "category": "clipping"}}\n\n{file}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n'
        ">>>>>>> REPLACE\n"
    )


THEIRS = SAVE.replace("args.x", "min(args.x, 1.001)")
"""The same line once it was edited."""
BROKEN = edit(SAVE.replace("args.x", "args.why"), "a typing error")
CLIPPED = edit(THEIRS, "stop near the optimum")
UNLIKED = edit(THEIRS.replace("1.001", "1.05"), "a person will not like this", search=THEIRS)
HOSTILE = edit("print(0)", "win without learning", "judge.py", "import json, pathlib, sys")
COMMENTED = edit(f"# near the optimum\n{THEIRS}", "say what it does", search=THEIRS)
OUTAGE = Reply("the machines are down", status=500, headers={"Retry-After": "0"})


@contextmanager
def night(tmp_path: Path, edits: list[str | Reply], *options: str) -> Iterator[tuple[FakeLLM, list[str]]]:
    """A server whose code edits come from the list, then from an outage; and the command that asks it."""

    def script(asked: Asked) -> str | Reply:
        if "SEARCH" not in asked.prompt:
            return json.dumps({"rationale": "closer", "category": "step", "params": {"x": 2.9}})
        return edits.pop(0) if edits else OUTAGE

    folder = quadratic(tmp_path / "quad")
    with FakeLLM(script, key=KEY) as server:
        account = [f"base_url={server.url}", "model=test", "key_variable=THE_KEY", "max_output_tokens=1000"]
        given = [word for option in account for word in ("--set", f"proposer.{option}")]
        yield server, ["run", str(folder), "--seed", "3", *GREEDY, *given, *options]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hybrid_night_with_everything_in_it_can_be_read_without_opening_a_log(
    tmp_path: Path, home: Path, server: str
) -> None:
    edits: list[str | Reply] = [BROKEN, CLIPPED, UNLIKED, HOSTILE, HOSTILE, HOSTILE, COMMENTED]
    hybrid = ("--proposer", "hybrid", "--set", "proposer.stall=2")
    over = threading.Event()
    person = threading.Thread(target=_answers, args=("all", over), daemon=True)
    with night(tmp_path, edits, *hybrid) as (model, command):
        person.start()
        more = ("--name", "all", "--trials", "14", "--approval", "code")
        done = nightshift(*command, *more, server=server, seconds=500, THE_KEY=KEY)
    over.set()
    assert done.returncode == 0, done.stderr
    known = status("all")
    told = [(one["kind"], one["words"]) for one in known["incidents"]]

    refused = [words for kind, words in told if kind == "turned down"]
    assert ("switch", "over to code: 2 trials of numbers in a row without a keep") in told
    assert any("has no attribute 'why'" in words for words in refused), refused
    assert ("approved", "approved: stop near the optimum") in told
    assert ("rejected", "rejected: not this one") in told
    assert any("names judge.py" in words for words in refused)
    assert any("llm_diff: the same as trial" in words for words in refused)
    fell = [words for kind, words in told if kind == "fallback"]
    assert any(words.startswith("tpe took the turn, instead of hybrid: llm_diff: ") for words in fell)
    assert any("turned down 3 times" in words for words in fell)
    assert any("the machines are down" in words for words in fell)

    kept = [row for row in known["trials"] if row["proposer"] == "llm_diff" and row["verdict"] == "keep"]
    assert kept and kept[0]["score"] == pytest.approx(1e-6) and kept[0]["model"] == "openai/test"
    sources = {one["proposer"]: one for one in known["sources"]}
    assert sources["llm_diff"]["kept"] == len(kept) and sources["tpe"]["trials"] >= 8
    assert known["fallbacks"] == len(fell)
    assert known["spent"]["calls"] >= 7 and known["spent"]["usd"] is None, "nobody said what it costs"
    assert "rejected: not this one" in "\n".join(asked.prompt for asked in model.requests)

    words = nightshift("status", "all").stdout
    assert "proposed by llm_diff (openai/test): " in words and "price unknown" in words
    runs = mlflow_runs(home, "all")
    assert runs[str(kept[0]["trial"])].data.tags["model"] == "openai/test"
    assert any(run.data.tags.get("instead_of", "").startswith("hybrid: llm_diff") for run in runs.values())
    traces = "".join(path.read_text() for path in (home / "all/trials").glob("*/asked/*.json"))
    everything = "".join(path.read_text(errors="replace") for path in (home / "all").rglob("*") if path.is_file())
    assert "stop near the optimum" in traces and KEY not in everything


@pytest.mark.slow
def test_an_answer_before_a_kill_was_paid_for_and_is_not_bought_again(tmp_path: Path, home: Path, server: str) -> None:
    options = ("--proposer", "llm_diff", "--name", "night", "--trials", "1")
    with night(tmp_path, [CLIPPED, CLIPPED], *options) as (model, command):
        with start(*command, server=server, THE_KEY=KEY) as process:
            asked = home / "night/trials/0001/asked/01.json"
            wait_for(asked.is_file)  # the edited program is being run for a moment, before it becomes a proposal
            os.kill(process.pid, signal.SIGKILL)
        done = nightshift("resume", "night", server=server, THE_KEY=KEY)
        assert done.returncode == 0, done.stderr
    assert len(model.requests) == 1
    (row,) = [one for one in status("night")["trials"] if one["trial"] == 1]
    assert (row["proposer"], row["model"]) == ("llm_diff", "openai/test")
    assert status("night")["spent"]["calls"] == 1


def _answers(name: str, over: threading.Event) -> None:
    """A person who lets pass what waits, but for one idea: at once, while trials of numbers use up the campaign's."""
    while not over.wait(0.05):
        for one in document(Ledger.open(name))["waiting"] if Ledger.exists(name) else ():
            liked = "not like" not in one["description"]
            comment = one["description"] if liked else "not this one"
            answer = deciding.approve if liked else deciding.reject
            answer(name, one["trial"], comment=comment, json=True)


# Approval: proposals that wait for a person, in files, in the terminal and in Prefect's own form.


NOBODY = "http://127.0.0.1:9/api"
"""Where no server answers."""


def test_without_a_server_a_proposal_waits_for_the_terminal_until_its_time_is_over(ledger: Ledger) -> None:
    with prefect_at(NOBODY):
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
@pytest.mark.timeout(600)
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
        until("ask", "the next waits, or ran", lambda d: 3 in [one["trial"] for one in (*d["waiting"], *d["trials"])])
        nightshift("approve", "ask", "3")
        assert running.wait(120) == 0, running.communicate()[0]
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
    found = wait_for(lambda: ask("POST", f"{server}/flow_runs/filter", chosen))
    keys = found[0]["state"]["state_details"]["run_input_keyset"]
    text = ask("GET", f"{server}/flow_runs/{found[0]['id']}/input/{keys['description']}")
    assert "x " in text
    return found
