"""Conformance of every proposer: a function of what it is given, whose proposals lie in the space."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import environments
from environments import Environment, plugins
from tasks import propose
from tasks.propose import PROPOSERS
from tasks.proposers import Proposer
from tasks.proposing.brief import Pending
from tasks.trial import History, Proposal
from tests.support.histories import decided, history_of
from tests.support.proposals import next_proposal
from tests.support.toy import QUADRATIC, quadratic

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
    """What every proposer says to the same histories, pending trials and seeds, as JSON."""
    environment = environments.load(folder)
    first: Pending = {6: Proposal(environment.defaults | {"x": 1.5})}
    asked = itertools.product(NAMES, (0, 5), (1,), ({}, first))
    found = [
        next_proposal(environment, propose.load(name, {}), history_of(environment, trials), seed, pending)
        for name, trials, seed, pending in asked
    ]
    return TypeAdapter(list[Proposal | None]).dump_json(found).decode()


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


AGAIN = '''\
"""Again: the champion once more, with another x."""

from __future__ import annotations

from tasks.proposers import Brief, Proposer, Suggestion
from tasks.trial import best


class Again(Proposer):
    """The champion's other parameters once more."""

    def propose(self, brief: Brief) -> Suggestion | None:
        champion = best(brief.history)
        return Suggestion({**champion.proposal.params, "x": 0.125}, "does it hold?") if champion else None
'''


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, **files: str) -> str:
    """A package folder with these files, which can be imported for the length of a test."""
    folder = tmp_path / "plugs" / name
    folder.mkdir(parents=True)
    for stem, text in {"__init__": "", **files}.items():
        (folder / f"{stem}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))
    return name


def test_a_file_dropped_into_the_folder_is_a_proposer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = package(tmp_path, monkeypatch, "dropped_in", again=AGAIN, _private="")
    assert plugins.names(place) == ("again",)
    again = plugins.load(place, "again", Proposer)()  # type: ignore[type-abstract]
    environment = mixed(tmp_path)
    history = history_of(environment, 5)
    proposal = next_proposal(environment, again, history, seed=3)
    assert proposal is not None
    assert (proposal.params, proposal.proposer) == ({**history[4].proposal.params, "x": 0.125}, "again")
