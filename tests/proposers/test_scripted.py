"""The proposer `scripted`: a list, one entry after the other, whatever became of those before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from tasks import propose
from tasks.trial import Proposal
from tests.support.histories import decided, history_of
from tests.support.proposals import brief_of, next_proposal
from tests.support.toy import quadratic

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


def proposals(problem: Environment, *entries: dict[str, Any]) -> list[Proposal]:
    """Every proposal of a list, each decided as a discard."""
    scripted, history = propose.load("scripted", {"proposals": entries}), history_of(problem, 0)
    found = []
    while (proposal := next_proposal(problem, scripted, history, seed=len(history))) is not None:
        found.append(proposal)
        trial = decided(history, 9.0, proposal.params)
        history += (replace(trial, proposal=proposal),)
    return found


def test_a_list_is_proposed_in_its_order_and_then_no_more(problem: Environment) -> None:
    found = proposals(problem, *LIST)
    assert [one.params["x"] for one in found] == [1.5, 1.0]
    assert [(one.rationale, one.proposer) for one in found] == [("lower", "scripted"), ("lower still", "scripted")]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"params": {"x": 99.0}}, "99.0"),
        ({"edit": EDIT.replace("fit.py", "judge.py")}, "judge.py"),
        ({"params": {"x": 2.5}}, "same"),
    ],
)
def test_an_entry_that_cannot_be_tried_is_turned_down_once_and_the_next_one_takes_the_turn(
    problem: Environment, bad: dict[str, Any], why: str
) -> None:
    first, second = proposals(problem, {"rationale": "bad", **bad}, *LIST)
    assert [first.params["x"], second.params["x"]] == [1.5, 1.0]
    assert len(first.turned_down) == 1 and why in first.turned_down[0]
    assert second.turned_down == ()


def test_an_edit_changes_the_champions_program(problem: Environment) -> None:
    scripted = propose.load("scripted", {"proposals": [{"rationale": "half of it", "edit": EDIT}]})
    suggestion = scripted.propose(brief_of(problem, history_of(problem, 0)))
    assert suggestion is not None and suggestion.files is not None
    assert "args.x / 2" in suggestion.files["fit.py"]
    assert scripted.edits and not propose.load("scripted", {"proposals": LIST}).edits
