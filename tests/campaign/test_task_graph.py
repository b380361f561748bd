"""The graph of a campaign in the Prefect UI: propose -> train -> evaluate -> decide of each trial, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.campaign import campaign
from flows.server.server_process import drain
from tasks.store.ledger import Ledger
from tests.support.noisy import TOML, noisy
from tests.support.prefect_api import ask, prefect_at
from tests.support.processes import wait_for

STRICT = TOML.replace("allow_untrained = true", "allow_untrained = false")
"""So that a champion is controlled."""


def graph_of(server: str, flow_run: str) -> dict[str, set[str]]:
    """Every task run of a flow run, with those whose results it got or waited for; without the environment's name."""
    rows: list[dict[str, Any]] = []

    def all_have_ended() -> bool:
        chosen = {"flow_runs": {"id": {"any_": [flow_run]}}}
        rows[:] = ask("POST", f"{server}/task_runs/filter", chosen)
        return all(row["state"] and row["state"]["type"] in ("COMPLETED", "FAILED") for row in rows)

    wait_for(all_have_ended, 60)
    names = {row["id"]: row["name"].replace(" noisy", "") for row in rows}
    assert len(set(names.values())) == len(rows), "each has a name of its own"
    return {
        names[row["id"]]: {
            names.get(one["id"], one["id"])
            for given in row["task_inputs"].values()
            for one in given
            if one["input_type"] == "task_run"
        }
        for row in rows
    }


def expected(ledger: Ledger) -> dict[str, set[str]]:
    """What the graph has to be, by the decided trials and the certificate."""
    edges: dict[str, set[str]] = {}
    for trial in ledger.history():
        number, dirs = trial.number, [run.dir for run in (*trial.runs, *(again.run for again in trial.reruns))]
        parts = [" ".join(filter(None, (str(number), Path(of).name[5:]))) for of in dirs]
        edges[f"propose {number}"] = set()
        edges |= {f"train {part}": {f"propose {number}"} for part in parts}
        edges |= {f"evaluate {part}": {f"train {part}"} for part in parts}
        edges[f"decide {number}"] = {f"evaluate {part}" for part in parts}
        if "untrained" in trial.verdict.evidence:
            edges[f"control {number}"] = {f"propose {number}"}
            edges[f"decide {number}"].add(f"control {number}")
    for fresh in (run for made in ledger.certificates() for run in made.runs):
        look, number, arm, count = Path(fresh.run.dir).name.split("-")
        part = f"{int(number)} certificate-{look}-{arm}-{count}"
        edges |= {f"train {part}": set(), f"evaluate {part}": {f"train {part}"}}
    return edges


@pytest.mark.parametrize(
    "asked",
    [{}, pytest.param({"parallel": 2, "replicates": 2}, marks=pytest.mark.slow)],
    ids=["one by one", "two at once"],
)
@pytest.mark.timeout(300)
def test_each_trial_is_a_chain_of_its_four_tasks_and_no_edge_leads_to_another(
    tmp_path: Path, server: str, asked: dict[str, Any]
) -> None:
    folder = noisy(tmp_path / "noisy", toml=STRICT)
    with prefect_at(server):
        state = campaign(
            str(folder), "night", proposer="random_search", trials=3, seed=2, tracking="off", cancel="none", **asked,
            return_state=True,
        )  # fmt: skip
        drain(server)
    assert state.is_completed(), state.message
    ledger = Ledger.open("night")
    (life,) = [event for event in ledger.events() if event["event"] == "life"]
    found = graph_of(server, life["flow_run_id"])
    assert found == expected(ledger)
    assert any(name.startswith("control ") for name in found), "the seed was chosen so that a trial would be kept"
