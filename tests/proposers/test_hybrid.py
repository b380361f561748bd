"""Hybrid: which way it goes, told from the history alone, and whose suggestion a trial gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import environments
from tasks.propose import load
from tasks.proposers.hybrid import Hybrid
from tasks.proposing.brief import Unavailable, Unusable
from tasks.trial import History, VerdictKind
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.histories import decided
from tests.support.proposals import brief_of
from tests.support.toy import FIT, quadratic

STALLED = ["discard"] * 3
WAYS = {"stall": 3, "failures": 2, "spell": 4}


def night(*fates: str) -> History:
    """A history of these fates; `edit keep`: of an edit; `fell`: another proposer took the turn; `idea`: of the inbox."""
    history: History = (decided((), 1.0, {"x": 0.0}),)
    for number, fate in enumerate(fates, 1):
        what, _, how = fate.rpartition(" ")
        trial = decided(history, None if how == "crash" else 0.0, {"x": float(number)})
        kind: VerdictKind = "discard" if how in ("fell", "idea") else how  # type: ignore[assignment]
        verdict = replace(trial.verdict, kind=kind, reason="as a test says")
        proposal = replace(
            trial.proposal,
            instead_of="hybrid: no answer" if how == "fell" else "",
            proposer="llm_diff" if what == "edit" else "tpe",
        )
        proposal = replace(proposal, inbox="0001" if fate == "idea" else "")
        history += (replace(trial, verdict=verdict, proposal=proposal),)
    return history


@pytest.mark.parametrize(
    ("fates", "way", "why"),
    [
        ([], "numbers", ""),
        (["discard"] * 3, "code", "over to code: 3 trials of numbers in a row without a keep"),
        (["discard", "discard", "keep", "discard", "discard"], "numbers", ""),
        (["discard", "crash", "cancelled"], "code", "over to code: 3 trials of numbers in a row without a keep"),
        (["discard", "discard", "idea", "idea"], "numbers", ""),
        ([*STALLED, "edit discard"], "code", ""),
        ([*STALLED, "edit keep"], "numbers", "back to numbers: the edit of trial 4 was kept, and is to be tuned"),
        ([*STALLED, "fell", "edit crash"], "numbers", "back to numbers: 2 edits in a row could not be tried"),
        ([*STALLED, "fell", "edit discard", "edit crash"], "code", ""),
        (STALLED + ["edit discard"] * 4, "numbers", "back to numbers: 4 edits in a row without a keep"),
        ([*STALLED, "discard", "keep", "discard", "discard"], "code", ""),
        (STALLED + ["fell"] * 2 + ["discard"] * 3, "code", "over to code: 3 trials of numbers in a row without a keep"),
    ],
)  # fmt: skip
def test_the_way_follows_from_the_history(fates: list[str], way: str, why: str) -> None:
    mode = Hybrid(**WAYS).mode(night(*fates))
    assert (mode.what, mode.why) == (way, why)


def hybrid(server: FakeLLM, **options: object) -> Hybrid:
    account = {"model": "test", "base_url": server.url, "key_variable": "A_KEY"}
    made = load("hybrid", {**account, **WAYS, **options})
    assert isinstance(made, Hybrid)
    return made


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-of-a-test-0123456789")


def quad(tmp_path: Path) -> environments.Environment:
    return environments.load(quadratic(tmp_path / "quad"))


def test_where_no_numbers_are_left_to_try_code_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proposer = Hybrid(**WAYS, numeric="grid", numeric_options={"points": 1})
    monkeypatch.setattr(Hybrid, "_writer", lambda _: load("random_search", {}))  # without a model
    first, second, *more = night(*STALLED, "edit keep")
    point = proposer._numeric().propose(brief_of(quad(tmp_path), (first,)))
    assert point is not None
    history = (first, replace(second, proposal=replace(second.proposal, params=dict(point.params))), *more)
    assert proposer.mode(history).why.startswith("back to numbers")
    found = proposer.propose(brief_of(quad(tmp_path), history))
    assert found is not None and (found.proposer, found.switch) == ("llm_diff", ""), "it did not go back to numbers"


def test_code_comes_from_the_writer_and_says_that_the_way_has_changed(tmp_path: Path) -> None:
    edit = (
        '{"rationale": "clip it", "category": "clipping"}\n\nfit.py\n<<<<<<< SEARCH\n'
        '(args.out / "model.json").write_text(json.dumps({"x": args.x}))\n=======\n'
        '(args.out / "model.json").write_text(json.dumps({"x": min(args.x, 1.1)}))\n>>>>>>> REPLACE\n'
    )
    with FakeLLM([edit]) as server:
        found = hybrid(server).propose(brief_of(quad(tmp_path), night(*["discard"] * 3)))
    assert found is not None and found.proposer == "llm_diff"
    assert found.files == {"fit.py": FIT.replace('{"x": args.x}', '{"x": min(args.x, 1.1)}')}
    assert found.switch == "over to code: 3 trials of numbers in a row without a keep"


def test_what_goes_wrong_is_told_under_the_name_of_who_was_asked(tmp_path: Path) -> None:
    brief = brief_of(quad(tmp_path), night(*["discard"] * 3))
    with FakeLLM(["no edit at all", Reply("bad key", status=401)]) as server:
        with pytest.raises(Unusable) as unusable:
            hybrid(server).propose(brief)
        with pytest.raises(Unavailable, match=r"^llm_diff: "):
            hybrid(server).propose(brief)
    assert unusable.value.refusal.proposer == "llm_diff"
