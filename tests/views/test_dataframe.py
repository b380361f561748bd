"""A campaign as a DataFrame: what is missing, its parameters, and its runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from flows.engine.certifying import store
from flows.views.dataframe import load_history, load_runs
from tasks.stats.certificate import Conditions
from tasks.trial import History
from tests.support.histories import certified, tried
from tests.support.ledgers import created, filled


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
