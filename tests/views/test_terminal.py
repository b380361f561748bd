"""What the terminal shows: every line within the edge, honest words, and nothing hostile let through."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from flows.status import document, rows, summary
from flows.views import overview, terminal
from flows.watch import live_view
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.system.files import write_atomic
from tasks.trial import Params, Trial
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.terminals import printed

WIDTHS = (60, 120)
EVIL = "red [bold red]alert[/] \x1b[2J\x1b]0;title\x07 \u202egnp.exe\r\nsecond line \x9b31m"
PARAMS: Params = {"learning_rate": 2e-5, "num_envs": 8, "act": "tanh"}
OTHERS: Params = {"learning_rate": 1.6e-3, "num_envs": 32, "act": "tanh"}


def campaign(tmp_path: Path, *trials: Trial, name: str = "n", end: str | None = "finished", **spec: Any) -> Ledger:
    """A campaign with these trials, as its directory has them."""
    ledger = created(tmp_path, name, tracking="off", **spec)
    for trial in trials:
        write_atomic(ledger.place(trial.number).trial, TRIAL.dump_json(trial).decode())
    if end:
        ledger.event("end", state=end, reason=EVIL)
    return ledger


def night(count: int, params: Params | None = None) -> tuple[Trial, ...]:
    """So many trials: a baseline, a crash, and trials of which each is better than the one before."""
    history: tuple[Trial, ...] = (tried((), 50.0, params=PARAMS, higher_is_better=False),)
    for number in range(1, count):
        score = None if number == 1 else 50.0 - number
        history += (tried(history, score, params=params or OTHERS, higher_is_better=False),)
    return history


def numbers(lines: Iterable[Text]) -> list[int]:
    """The trials that have a line."""
    return [int(found[1]) for line in lines if (found := re.match(r" [-+~x] +(\d+) ", line.plain))]


def test_what_is_not_printable_is_written_out_and_what_is_huge_is_cut() -> None:
    assert terminal.clean("a\x1b[31mb\x07\u202e\x9b\ud800") == r"a\x1b[31mb\x07\u202e\x9b\ud800"
    assert terminal.clean(" two\r\nlines\tand  more ") == "two lines and more"
    assert len(terminal.clean("x" * 10**6)) < 2 * terminal.LONGEST
    hidden = terminal.cleaned({"\x1b": [{"deep": ("\x07", 1, None, True)}]})
    assert hidden == {r"\x1b": [{"deep": [r"\x07", 1, None, True]}]}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_of_a_campaign_reaches_the_terminal_as_it_is(tmp_path: Path, width: int) -> None:
    history = night(3, {"learning_rate": EVIL, "日本" * 40: 1, "act": EVIL * 40})
    hostile = [
        Trial(**{**vars(trial), "proposal": type(trial.proposal)(**{**vars(trial.proposal), "rationale": EVIL})})
        for trial in history
    ]
    ledger = campaign(tmp_path, *hostile)
    found = document(ledger)
    shown = printed(partial(overview.show, found, ledger.path), width, screen=True)
    shown += printed(live_view(terminal.cleaned(found)), width, screen=True)
    shown += "".join(printed(overview.trial_line(row), width, screen=True) for row in found["trials"])
    assert all(line.isprintable() for line in shown.splitlines()) and r"\x1b[2J" in shown
    assert "[bold red]" in shown, "markup is text"


@pytest.mark.parametrize("width", WIDTHS)
def test_each_campaign_and_each_trial_has_a_line_within_the_width(tmp_path: Path, width: int) -> None:
    ledger = campaign(tmp_path, *night(9))
    lines = list(overview.trial_lines(document(ledger)))
    assert numbers(lines) == list(range(9))
    lines += overview.campaign_lines([summary(ledger) | {"environment": "/srv/" + "x" * 60}])
    assert all(cell_len(printed(line, width, screen=True).rstrip("\n")) <= width for line in lines)


def test_the_line_of_a_trial_has_its_gain_and_what_was_changed_of_the_champion() -> None:
    first = tried((), 5.0, params=PARAMS, higher_is_better=False)
    better = tried((first,), 3.0, params=OTHERS, higher_is_better=False)
    crash = tried((first, better), None, params=PARAMS, higher_is_better=False)
    lines = [overview.trial_line(row).plain for row in rows((first, better, crash))]
    assert lines[0].split()[:4] == ["+", "0", "keep", "5"] and "the baseline" in lines[0]
    assert lines[1].split()[:5] == ["+", "1", "keep", "3", "+2"], "positive where it is better"
    assert "learning_rate 2e-05 → 0.0016, num_envs 8 → 32" in lines[1] and "act" not in lines[1]
    assert lines[2].index("exited with status 3") < lines[2].index("learning_rate"), "why it crashed comes first"
