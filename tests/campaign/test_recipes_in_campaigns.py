"""What a recipe makes goes with a champion: into reruns, comparisons, and other environments with a recipe of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tomlkit

import environments
from tasks.recipes import output, preparing
from tasks.store.ledger import Ledger
from tests.support.noisy import settled
from tests.support.toy import GREEDY, nightshift

RAISED = '{"learning_rate": 0.0001}'


def short(folder: Path, terms: int) -> Path:
    """Arithmetic with little of everything, as an environment of another name."""
    shutil.copytree(environments.find("arithmetic"), folder)
    file = folder / "environment.toml"
    toml = tomlkit.parse(file.read_text())
    toml["budget_steps"] = 2
    toml["text"].update({"questions": 10, "samples": 2})  # type: ignore[union-attr]
    toml["prepare"]["settings"].update({"terms": terms, "steps": 30})  # type: ignore[index]
    file.write_text(tomlkit.dumps(toml))
    return folder


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def content(folder: Path, home: Path) -> str:
    made = output.read(preparing.place(environments.load(folder), home) or home)
    assert made is not None
    return made.content


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_recipe_has_made_goes_with_a_trial_into_a_rerun_a_comparison_and_another_environment(
    tmp_path: Path, home: Path, server: str
) -> None:
    here, there = short(tmp_path / "sums", 2), short(tmp_path / "longer_sums", 3)
    options = ["--trials", "1", "--name", "n", "--seed", "5", "--tracking", "off", "--trust", *GREEDY]
    ran = nightshift("run", str(here), *options, server=server)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ledger = Ledger.open("n")
    before = ledger.history()[1]
    again = nightshift("rerun", "n", "1", server=server)
    assert again.returncode == 0, again.stderr
    redone = ledger.history()[1]
    assert redone.attempt == 2 and redone.score.n == before.score.n, "seeds of its own, as many questions"

    made = content(here, home)
    fought = nightshift("compare", "n/1", RAISED, "--runs", "4", "--seed", "3", "--json")
    assert fought.returncode in (0, 1, 3), fought.stderr
    assert [row["score"] is not None for row in json.loads(fought.stdout)["runs"]] == [True] * 8
    (comparison,) = (home / ".comparisons/sums").iterdir()
    assert json.loads((comparison / "prepared.json").read_text())["content"] == made

    settled(ledger, {"learning_rate": 1e-4})  # or two steps may be no better, and nothing kept
    carried = nightshift("certify", "n", "--on", str(there), "--trust", "--runs", "4", "--json", server=server)
    assert carried.returncode == 0, carried.stderr
    (transfer,) = json.loads(carried.stdout)["transfers"]
    assert all(value is not None for value in transfer["champion"]["values"] + transfer["baseline"]["values"])
    frozen = ledger.path / "certificates/on-longer_sums"
    asked = json.loads((frozen / "prepared.json").read_text())
    assert asked["content"] == content(there, home) != made
    (first, *_) = frozen.parent.glob("1-on-*/**/answers.jsonl")
    asked_there = preparing.place(environments.load(there), home)
    assert asked_there is not None
    pool = {row["id"] for row in rows(asked_there / "judge/report.jsonl")}
    assert {row["question"] for row in rows(first)} <= pool
