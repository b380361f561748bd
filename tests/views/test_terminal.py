"""What the terminal shows: every line within the edge, honest words, and nothing hostile let through."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from flows.status import document, rows, summary
from flows.views import overview, terminal
from flows.watch import live_view
from tasks.trial import History, Params
from tests.support.histories import tried
from tests.support.ledgers import created, filled
from tests.support.terminals import printed

WIDTHS = (60, 120)
EVIL = "red [bold red]alert[/] \x1b[2J\x1b]0;title\x07 \u202egnp.exe\r\nsecond line \x9b31m"
PARAMS: Params = {"learning_rate": 2e-5, "num_envs": 8, "act": "tanh"}
OTHERS: Params = {"learning_rate": 1.6e-3, "num_envs": 32, "act": "tanh"}


def test_what_is_not_printable_is_written_out_and_what_is_huge_is_cut() -> None:
    assert terminal.clean("a\x1b[31mb\x07\u202e\x9b\ud800") == r"a\x1b[31mb\x07\u202e\x9b\ud800"
    assert terminal.clean(" two\r\nlines\tand  more ") == "two lines and more"
    assert len(terminal.clean("x" * 10**6)) < 2 * terminal.LONGEST
    hidden = terminal.cleaned({"\x1b": [{"deep": ("\x07", 1, None, True)}]})
    assert hidden == {r"\x1b": [{"deep": [r"\x07", 1, None, True]}]}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_of_a_campaign_reaches_the_terminal_as_it_is(tmp_path: Path, width: int) -> None:
    params: Params = {"learning_rate": EVIL, "日本" * 40: 1, "act": EVIL * 40}
    history: History = (tried((), 50.0, params=PARAMS, higher_is_better=False),)
    for score in (None, 48.0):
        history += (tried(history, score, params=params, higher_is_better=False),)
    hostile = tuple(replace(trial, proposal=replace(trial.proposal, rationale=EVIL)) for trial in history)
    ledger = filled(created(tmp_path, tracking="off"), hostile)
    ledger.event("end", state="finished", reason=EVIL)
    found = document(ledger)
    lines = [*map(overview.trial_line, found["trials"])]
    lines += overview.campaign_lines([summary(ledger) | {"environment": EVIL}])
    cut = [printed(line, width, screen=True).rstrip("\n") for line in lines]
    assert max(map(cell_len, cut)) <= width
    shown = printed(partial(overview.show, found, ledger.path), width, screen=True) + "\n".join(cut)
    shown += printed(live_view(terminal.cleaned(found)), width, screen=True)
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
