"""Short budgets first, in whole campaigns: points run short, the best of them in full, whatever is killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mlflow_records import mlflow_runs
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, start, status

SHORT_FIT = """\
import json, pathlib, time
config = json.loads(pathlib.Path("config.json").read_text())
time.sleep(0.4)
x = config["params"]["x"] + 0.5 * (1 - config["budget_seconds"] / 20)
pathlib.Path(config["out"], "model.json").write_text(json.dumps({"x": x}))
"""
"""A deterministic trainer that misses its aim by more the shorter it may train."""
TOML = QUADRATIC.replace("python fit.py --x {x} --out {out}", "python fit.py").replace("seconds = 5", "seconds = 20")
COLUMNS = ("trial", "score", "verdict", "budget", "comparable", "proposer", "description", "params")
OPTIONS = ("--trials", "3", "--seed", "3", "--fidelity", "0.3", *GREEDY)


def ledger(home: Path, name: str) -> list[dict[str, str]]:
    with (home / name / "results.tsv").open() as file:
        return [{column: row[column] for column in COLUMNS} for row in csv.DictReader(file, delimiter="\t")]


def budgets(home: Path, name: str) -> list[float]:
    paths = sorted((home / name / "trials").glob("[0-9][0-9][0-9][0-9]/workspace/config.json"))
    return [json.loads(path.read_text())["budget_seconds"] for path in paths]


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("stores")
def test_a_campaign_of_short_budgets_that_is_killed_twice_makes_the_trials_of_an_undisturbed_one(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = quadratic(tmp_path / "quad", fit=SHORT_FIT, toml=TOML)
    calm = nightshift("run", str(folder), "--name", "calm", *OPTIONS, server=server)
    assert calm.returncode == 0, calm.stdout + calm.stderr
    assert "new points run for 30% of the budget" in calm.stdout
    with start("run", str(folder), "--name", "killed", *OPTIONS, server=server) as process:
        wait_for(home / "killed/trials/0003/log.txt")  # a short trial is in training
        os.kill(process.pid, signal.SIGKILL)
    with start("resume", "killed", server=server) as process:
        wait_for(home / "killed/trials/0007/log.txt")  # a promotion is
        os.kill(process.pid, signal.SIGKILL)
    assert nightshift("resume", "killed", server=server).returncode == 0
    assert ledger(home, "killed") == ledger(home, "calm")
    assert budgets(home, "killed") == [20.0, *[6.0] * 6, 20.0]

    document = status("killed")
    rows: list[dict[str, Any]] = document["trials"]
    assert [row["share"] for row in rows] == [1.0, *[0.3] * 6, 1.0]
    short, promoted = rows[1:7], rows[7]
    best = min(short, key=lambda row: row["score"])
    assert promoted["promotes"] == best["trial"] and promoted["params"] == best["params"]
    assert [row["promoted"] for row in short] == [7 if row is best else None for row in short]
    assert {row["verdict"] for row in short} == {"discard"} and "30%" in short[0]["reason"]
    assert document["champion"]["trial"] in (0, 7)
    assert "worth 2.8 of 3" in document["reason"]
    assert [row["budget"] for row in ledger(home, "killed")] == ["20s", *["6s"] * 6, "20s"]
    assert [row["comparable"] for row in ledger(home, "killed")] == ["yes", *["no"] * 6, "yes"]
    shown = nightshift("status", "killed").stdout
    assert "discard 30% → 7" in shown and "trial that ran it in full" in shown
    assert set(mlflow_runs(home, "killed")) == {"campaign", *map(str, range(8))}

    refused = nightshift("resume", "killed", "--fidelity", "0.5", "--trials", "9", server=server)
    assert refused.returncode == 2 and "fidelity" in refused.stderr


@pytest.mark.slow
def test_trials_side_by_side_are_promoted_too_and_no_point_is_run_in_full_twice(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = quadratic(tmp_path / "quad", fit=SHORT_FIT, toml=TOML)
    options = ("--trials", "6", "--seed", "3", "--fidelity", "0.8", "--parallel", "2", "--cancel", "none", *GREEDY)
    done = nightshift("run", str(folder), "--name", "wide", *options, "--tracking", "off", server=server)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = status("wide")["trials"]
    promoted = [row["promotes"] for row in rows if row["promotes"] is not None]
    assert len(promoted) == len({*promoted}) >= 2
    assert 5 <= sum(row["share"] for row in rows if row["trial"]) <= 6 + 1e-6
