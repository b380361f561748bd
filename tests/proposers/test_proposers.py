"""Conformance of every proposer: a function of what it is given, whose proposals lie in the space."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment, plugins
from tasks import propose
from tasks.propose import PROPOSERS
from tasks.proposing.brief import Pending
from tasks.trial import History, Proposal
from tests.support.histories import decided, history_of
from tests.support.processes import wait_for
from tests.support.proposals import brief_of, next_proposal
from tests.support.toy import GREEDY, QUADRATIC, quadratic, start, status, told

ASKING = ("agent", "best_of_n", "ensemble", "hybrid", "llm", "llm_diff")
OTHERS = ("scripted", "inbox")
"""They propose nothing by themselves, and have tests of their own."""
NAMES = tuple(name for name in plugins.names(PROPOSERS) if name not in (*ASKING, *OTHERS))
"""Those that ask nobody outside of this process. None is loaded here: some import torch, which takes seconds."""
SPACES = """
[space.lr]
type = "float"
low = 1e-5
high = 1e-2
log = true
default = 1e-3

[space.layers]
type = "int"
low = 1
high = 3
default = 2

[space.act]
type = "choice"
values = ["tanh", "relu", true, 1]
default = "tanh"
"""


def mixed(tmp_path: Path) -> Environment:
    """Every kind of parameter."""
    return environments.load(quadratic(tmp_path / "mixed", toml=QUADRATIC + SPACES))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trials", [1, 7])
def test_a_proposal_lies_in_the_space_whatever_happened_before(tmp_path: Path, name: str, trials: int) -> None:
    environment = mixed(tmp_path)
    history = history_of(environment, trials)
    proposal = next_proposal(environment, propose.load(name, {}), history, seed=3)
    assert proposal is not None
    assert environment.complete(proposal.params) == proposal.params
    assert proposal.params.keys() == environment.defaults.keys()


def proposals(folder: Path) -> str:
    """What every proposer says to the same histories, pending trials and seeds."""
    environment = environments.load(folder)
    first: Pending = {6: Proposal(environment.defaults | {"x": 1.5})}
    return repr(
        [
            next_proposal(environment, propose.load(name, {}), history_of(environment, trials), 1, pending)
            for name, trials, pending in itertools.product(NAMES, (0, 5), ({}, first))
        ]
    )


@pytest.mark.slow
def test_the_same_history_and_seed_give_the_same_proposal_here_and_in_another_process(tmp_path: Path) -> None:
    folder = mixed(tmp_path).folder
    here = proposals(folder)
    assert proposals(folder) == here
    code = (
        "import sys; from pathlib import Path\nfrom tests.proposers.test_proposers import proposals\n"
        "print(proposals(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == here, done.stderr


@pytest.mark.parametrize(("points", "total"), [(1, 4), (4, 4 * 4 * 3 * 4)])
def test_grid_visits_every_point_exactly_once_and_then_stops(tmp_path: Path, points: int, total: int) -> None:
    environment = mixed(tmp_path)
    grid = propose.load("grid", {"points": points})
    history: History = (decided((), 1.0, environment.defaults),)
    visited = [repr(environment.defaults)] if points == 1 else []  # then the baseline is a point of the grid
    while (proposal := next_proposal(environment, grid, history, seed=len(history))) is not None:
        visited.append(repr(proposal.params))
        history += (decided(history, None if len(history) % 3 else 2.0, proposal.params),)
    assert len(visited) == len(set(visited)) == total


# The proposer `scripted`: a list, one entry after the other, whatever became of those before.


LIST = ({"rationale": "lower", "params": {"x": 1.5}}, {"rationale": "lower still", "params": {"x": 1.0}})
EDIT = """\
--- a/fit.py
+++ b/fit.py
@@ -6,1 +6,1 @@
-(args.out / "model.json").write_text(json.dumps({"x": args.x}))
+(args.out / "model.json").write_text(json.dumps({"x": args.x / 2}))
"""


@pytest.fixture
def problem(tmp_path: Path) -> Environment:
    return environments.load(quadratic(tmp_path / "quadratic"))


def scripted_proposals(problem: Environment, *entries: dict[str, Any]) -> list[Proposal]:
    """Every proposal of a list, each decided as a discard."""
    scripted, history = propose.load("scripted", {"proposals": entries}), history_of(problem, 0)
    found = []
    while (proposal := next_proposal(problem, scripted, history, seed=len(history))) is not None:
        found.append(proposal)
        trial = decided(history, 9.0, proposal.params)
        history += (replace(trial, proposal=proposal),)
    return found


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"params": {"x": 99.0}}, "99.0"),
        ({"edit": EDIT.replace("fit.py", "judge.py")}, "judge.py"),
        ({"params": {"x": 2.5}}, "same"),
    ],
)
def test_a_list_is_proposed_in_its_order_and_the_next_takes_the_turn_of_what_cannot_be_tried(
    problem: Environment, bad: dict[str, Any], why: str
) -> None:
    first, second = scripted_proposals(problem, {"rationale": "bad", **bad}, *LIST)
    found = [(one.params["x"], one.rationale, one.proposer) for one in (first, second)]
    assert found == [(1.5, "lower", "scripted"), (1.0, "lower still", "scripted")]
    assert len(first.turned_down) == 1 and why in first.turned_down[0]
    assert second.turned_down == ()


def test_an_edit_changes_the_champions_program(problem: Environment) -> None:
    scripted = propose.load("scripted", {"proposals": [{"rationale": "half of it", "edit": EDIT}]})
    suggestion = scripted.propose(brief_of(problem, history_of(problem, 0)))
    assert suggestion is not None and suggestion.files is not None
    assert "args.x / 2" in suggestion.files["fit.py"]
    assert scripted.edits and not propose.load("scripted", {"proposals": LIST}).edits


# The proposer `inbox`: a campaign that tries what is put in, and waits in between.


def test_a_campaign_waits_for_proposals_and_tries_nothing_else(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad")
    options = ("--name", "night", "--proposer", "inbox", "--trials", "2", *GREEDY)
    with start("run", str(folder), *options, server=server) as process:
        for number, x in enumerate((1.5, 1.0), 1):
            wait_for((home / f"night/trials/{number - 1:04d}/trial.json").is_file)
            told("propose", "night", "--params", json.dumps({"x": x}), "--rationale", "nearer")
        assert process.wait() == 0
    found = [(one["proposer"], one["params"]["x"]) for one in status("night")["trials"]]
    assert found == [("baseline", 2.5), ("inbox", 1.5), ("inbox", 1.0)]
