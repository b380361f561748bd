"""A campaign as a DataFrame: the types of its columns, what is missing, and its parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from flows.engine.certifying import store
from flows.views.dataframe import load_history, load_runs
from tasks.record import COLUMNS, reconcile
from tasks.stats.transfer import Conditions
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import History
from tests.store.test_ledger import created
from tests.support.histories import certified, tried


def campaign(tmp_path: Path) -> Ledger:
    """A baseline, a crash, and a trial that was kept."""
    history: History = (tried((), 3.0, params={"x": 2.5}, higher_is_better=False),)
    history += (tried(history, None, params={"x": 1.5}, higher_is_better=False),)
    history += (tried(history, 1.0, params={"x": 0.5}, higher_is_better=False),)
    ledger = created(tmp_path)
    for trial in history:
        write_atomic(ledger.place(trial.number).trial, workspace.TRIAL.dump_json(trial).decode())
    reconcile(ledger)
    return ledger


def test_a_campaign_is_a_table_with_a_row_per_trial_and_a_column_per_parameter(tmp_path: Path) -> None:
    campaign(tmp_path)
    table = load_history("n")

    assert list(table.columns) == [*COLUMNS[:-1], "params.x"]
    assert list(table["verdict"]) == ["keep", "crash", "keep"]
    assert list(table["params.x"]) == [2.5, 1.5, 0.5]
    assert (table["trial"].dtype, table["score"].dtype) == ("int64", "float64")
    assert table["seconds"].mean() == 5.0
    assert math.isnan(table["score"][1]) and table["n"][1] == 0


def test_runs_of_certificates_are_told_apart_by_environment_and_budget(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    here = certified(2, (1.0, 1.1), (3.0, 3.1), higher_is_better=False)
    there = replace(
        certified(2, (1.0, 1.1), (3.0, 3.1), higher_is_better=False, on="other"), conditions=Conditions(4.0)
    )
    for one in (here, there):
        store(ledger, one)

    table = load_runs("n")

    phases = list(dict.fromkeys(table["phase"]))
    assert phases == ["search", "certificate 1", "certificate 1 in other at 4x the budget"]
    assert list(table[table["phase"] == "certificate 1"]["trial"]) == [2, 0, 2, 0]
