"""A campaign's trials as a pandas DataFrame, for notebooks: `load_history("cartpole-1")`."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from environments.plugins import Refused
from tasks.store.ledger import Ledger

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

NUMBERS = ("score", "se", "seconds", "steps", "peak_memory_gb", "cost_usd")
WHOLE = ("trial", "attempt", "n")


def load_history(campaign: str) -> pandas.DataFrame:
    """The columns of results.tsv, one row per finished trial, in the order in which they were decided.

    Numbers are floats, NaN where there is none (a crash has no score); `trial`, `attempt` and `n` are whole numbers,
    `comparable` is a bool, and each parameter of the search space is a column `params.<name>`.
    """
    import pandas

    path = Ledger.open(campaign).path / "results.tsv"
    if not path.is_file():
        raise Refused(f"campaign {campaign!r} has no results yet: {path} is written when it starts")
    table = pandas.read_csv(path, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)
    for name in NUMBERS:
        table[name] = pandas.to_numeric(table[name])
    for name in WHOLE:
        table[name] = pandas.to_numeric(table[name]).fillna(0).astype("int64")
    table["comparable"] = table["comparable"] == "yes"
    params = pandas.DataFrame([json.loads(text) for text in table.pop("params")], index=table.index)
    return table.join(params.add_prefix("params."))
