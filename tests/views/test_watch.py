"""Watching a campaign: what is under way in a directory that fills step by step, and what is shown of it."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from flows.status import document, rows, summary, under_way
from flows.views import overview
from flows.views.terminal import LONGEST, WHOLE, clean, cleaned
from flows.watch import CampaignWatch, live_view
from tasks.record import reconcile, record
from tasks.store import campaign_lock, workspace
from tasks.store.approval import park
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import History, Params, Parked, Proposal
from tests.support.histories import tried
from tests.support.ledgers import created, filled
from tests.support.processes import wait_for
from tests.support.terminals import printed, terminal


def campaign(tmp_path: Path, **spec: Any) -> Ledger:
    ledger = created(tmp_path, tracking="off", **{"trials": 5, **spec})
    reconcile(ledger)
    return ledger


def propose(ledger: Ledger, number: int, rationale: str = "as a test says") -> workspace.TrialDir:
    place = ledger.place(number)
    proposal = Proposal({"x": 2.5 - number}, rationale=rationale, parent=0, proposer="test")
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(proposal).decode())
    place.out.mkdir()
    return place


def decide(ledger: Ledger, score: float | None) -> None:
    history = ledger.history()
    params = json.loads(ledger.place(len(history)).proposal.read_text())["params"]
    ledger.place(len(history)).workspace.mkdir(exist_ok=True)
    record(ledger, history, tried(history, score, params=params, higher_is_better=False))


def report(place: workspace.TrialDir, elapsed: float, **metrics: float) -> None:
    with place.progress.open("a") as file:
        file.write(json.dumps({"elapsed": elapsed, "step": int(elapsed * 100), "metrics": metrics}) + "\n")


def trials(ledger: Ledger) -> Any:
    return under_way(ledger, ledger.history())["under_way"]


def test_a_trial_is_followed_from_its_proposal_to_its_verdict(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    assert trials(ledger) == []
    place = propose(ledger, 0)
    (trial,) = trials(ledger)
    assert (trial["trial"], trial["phase"], trial["value"], trial["tried"]) == (0, "starting", None, "the baseline")
    report(place, 1.0, loss=3.0)
    (trial,) = trials(ledger)
    assert (trial["phase"], trial["value"], trial["seconds"]) == ("training", 3.0, 1.0)
    report(place, 1e6, loss=2.0)
    (trial,) = trials(ledger)
    assert trial["seconds"] == trial["budget_seconds"], "never more than the budget"
    place.judge_log.touch()
    assert trials(ledger)[0]["phase"] == "judging"
    decide(ledger, 3.0)
    assert trials(ledger) == []


def test_a_campaign_ends_with_what_binds(tmp_path: Path) -> None:
    ledger = campaign(tmp_path, rule="greedy", hours=1.0)
    for score in (3.0, 2.0):
        propose(ledger, len(ledger.history()))
        decide(ledger, score)
    assert document(ledger)["ends"] is None, "it does not run"
    with campaign_lock.hold(ledger):
        assert document(ledger)["ends"] - time.time() == pytest.approx(4 * 6.0, abs=3), "four trials are left"
        spec = (ledger.path / "spec.toml").read_text()
        write_atomic(ledger.path / "spec.toml", spec.replace("trials = 5", "trials = 5000"))
        assert document(ledger)["ends"] - time.time() == pytest.approx(3600, abs=30)


def test_into_a_file_go_plain_lines_of_what_was_decided_and_of_what_waits_for_a_person(tmp_path: Path) -> None:
    output = io.StringIO()
    with CampaignWatch("n", Console(file=output, width=WHOLE)) as watch:
        ledger = campaign(tmp_path)
        watch.look()  # before there is any event
        ledger.event("preparing", words="a recipe says \x1b[2J")
        for score in (3.0, None):
            propose(ledger, len(ledger.history()))
            decide(ledger, score)
        place = propose(ledger, 2)
        park(ledger, Parked(2, workspace.PROPOSAL.validate_json(place.proposal.read_bytes()), time.time() + 60, None))
        ledger.event("approval", trial=2)
        wait_for(lambda: "approve" in output.getvalue())
    lines = output.getvalue().splitlines()
    assert [line.split()[:3] for line in lines if "tried" not in line] == [
        [">", "a", "recipe"], ["+", "0", "keep"], ["x", "1", "crash"], [">", "trial", "2"],
    ]  # fmt: skip
    assert "\x1b" not in output.getvalue()


def test_on_a_terminal_the_live_view_stands_below_the_lines_and_is_gone_in_the_end(tmp_path: Path) -> None:
    with terminal(70) as (console, written):
        ledger = campaign(tmp_path)
        with campaign_lock.hold(ledger), CampaignWatch("n", console):
            report(propose(ledger, 0), 1.0, loss=3.0)
            wait_for(lambda: b"loss" in b"".join(written))
            decide(ledger, 3.0)
    shown = b"".join(written).decode()
    assert "training" in shown and "as a test says" in shown and shown.count("keep") == 1
    assert "\x1b[?25h" in shown[-120:], "the cursor is back"


EVIL = "red [bold red]alert[/] \x1b[2J\x1b]0;title\x07 \u202egnp.exe\r\nsecond line \x9b31m"
PARAMS: Params = {"learning_rate": 2e-5, "num_envs": 8, "act": "tanh"}
OTHERS: Params = {"learning_rate": 1.6e-3, "num_envs": 32, "act": "tanh"}


def test_what_is_not_printable_is_written_out_and_what_is_huge_is_cut() -> None:
    assert clean("a\x1b[31mb\x07\u202e\x9b\ud800") == r"a\x1b[31mb\x07\u202e\x9b\ud800"
    assert clean(" two\r\nlines\tand  more ") == "two lines and more"
    assert len(clean("x" * 10**6)) < 2 * LONGEST
    hidden = cleaned({"\x1b": [{"deep": ("\x07", 1, None, True)}]})
    assert hidden == {r"\x1b": [{"deep": [r"\x07", 1, None, True]}]}


@pytest.mark.parametrize("width", [60, 120])
def test_no_text_of_a_campaign_reaches_the_terminal_as_it_is_or_goes_beyond_its_edge(
    tmp_path: Path, width: int
) -> None:
    params: Params = {"learning_rate": EVIL, "日本" * 40: 1, "act": EVIL * 40}
    history: History = (tried((), 50.0, params=PARAMS, higher_is_better=False),)
    for score in (None, 48.0):
        history += (tried(history, score, params=params, higher_is_better=False),)
    hostile = tuple(replace(trial, proposal=replace(trial.proposal, rationale=EVIL)) for trial in history)
    ledger = filled(created(tmp_path, tracking="off"), hostile)
    for number in (3, 4):
        report(propose(ledger, number, EVIL * 40), 1.0, loss=1e30)
    with campaign_lock.hold(ledger):
        ledger.event("certify", look=1, champion=1, runs=3, where="日本" * 60)
        ledger.event("waiting", number=4, who="cpu-0 is held by process 7 (\x1b[31m)")
        running = document(ledger) | {"urls": {"prefect": "http://127.0.0.1:4200/" + "0" * 99}}
    live = printed(live_view(cleaned(running)), width)
    assert all(label in live for label in (" trial 3", " trial 4", " certifying", " so far", " spent", " ends"))
    ledger.event("end", state="finished", reason=EVIL)
    found = document(ledger)
    lines = [*map(overview.trial_line, found["trials"])]
    lines += overview.campaign_lines([summary(ledger) | {"environment": EVIL}])
    cut = live + "".join(printed(line, width) for line in lines)
    assert max(map(cell_len, cut.splitlines())) <= width
    shown = printed(partial(overview.show, found, ledger.path), width) + cut
    assert all(line.isprintable() for line in shown.splitlines()) and r"\x1b[2J" in shown
    assert "[bold red]" in shown, "markup is text"


def test_the_line_of_a_trial_has_its_gain_and_what_was_changed_of_the_champion() -> None:
    first = tried((), 5.0, params=PARAMS, higher_is_better=False)
    better = tried((first,), 3.0, params=OTHERS, higher_is_better=False)
    crash = tried((first, better), None, params=PARAMS, higher_is_better=False)
    lines = [overview.trial_line(row).plain for row in rows((first, better, crash))]
    assert lines[0].split()[:4] == ["+", "0", "keep", "5"] and "the baseline" in lines[0]
    assert lines[1].split()[:5] == ["+", "1", "keep", "3", "+2"], "positive where it is better"
    assert "learning_rate 2e-05 → 0.0016, num_envs 8 → 32" in lines[1] and "act" not in lines[1]
    assert lines[2].index("exited with status 3") < lines[2].index("learning_rate"), "why it crashed comes first"
