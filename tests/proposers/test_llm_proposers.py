"""Proposers that ask a language model, over real HTTP: what they send, and what they make of what comes back."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments.plugins import Refused
from tasks import propose
from tasks.editing.edits import diff_of
from tasks.proposers import Proposer
from tasks.proposers.ensemble import order
from tasks.proposers.hybrid import Hybrid
from tasks.proposing.brief import NO_PROBLEM, Brief, Refusal, Suggestion, Unavailable, Unusable
from tasks.trial import History, Parked, Proposal, VerdictKind
from tests.llm.test_prompts import DEFAULTS, SPACE
from tests.support.fake_llm import Asked, FakeLLM, Reply
from tests.support.histories import decided, tried
from tests.support.proposals import brief_of
from tests.support.toy import FIT, quadratic

CHAMPIONS = DEFAULTS | {"lr": 0.01, "layers": 3}
BASE = {"train.py": "rate = 0.1\nsteps = 100\nprint(rate)\n"}
PROGRAM = {"train.py": "rate = 0.1\nsteps = 200\nprint(rate)\n"}
FASTER = {"train.py": "rate = 0.2\nsteps = 200\nprint(rate)\n"}
PROBLEM = NO_PROBLEM.model_copy(
    update={"name": "walker", "metric": "return/mean", "space": SPACE, "fixed": {"hidden": 64}}
)
GOOD = {"rationale": "faster", "category": "learning rate", "params": {"lr": 0.02}}
BLOCK = "train.py\n<<<<<<< SEARCH\nrate = 0.1\n=======\nrate = 0.2\n>>>>>>> REPLACE\n"
WHOLE = "train.py\n```python\nrate = 0.2\nsteps = 200\nprint(rate)\n```"
HEAD = '{"rationale": "a higher rate", "category": "learning rate"}'
EDIT = f"{HEAD}\n\n{BLOCK}"


@functools.cache
def a_history() -> History:
    """A baseline, and a champion with parameters and a program of its own."""
    first = tried((), 80.0, 82.0, 84.0, params=DEFAULTS)
    champion = tried((first,), 150.0, params=CHAMPIONS)
    edited = replace(champion.proposal, edit=diff_of(BASE, PROGRAM), rationale="longer is better")
    return (first, replace(champion, proposal=edited))


def a_brief(*refusals: Refusal, traces: Path | None = None, history: History | None = None) -> Brief:
    history = a_history() if history is None else history
    return Brief(SPACE, history, seed=5, refusals=refusals, problem=PROBLEM, files=PROGRAM, traces=traces)


def asking(server: FakeLLM, name: str = "llm", **options: Any) -> Proposer:
    options = {"model": "test", **options} if name != "ensemble" else {"models": ["one", "two"], **options}
    return propose.load(name, {"base_url": server.url, "timeout_seconds": 90, **options})


def proposed(reply: Reply | str, name: str = "llm", **options: Any) -> Suggestion:
    """What a proposer suggests after one answer."""
    with FakeLLM([reply]) as server:
        suggestion = asking(server, name, **options).propose(a_brief())
    assert suggestion is not None
    return suggestion


def turned_down(reply: Reply | str, name: str = "llm") -> Refusal:
    """Why one answer is no suggestion."""
    with pytest.raises(Unusable) as unusable:
        proposed(reply, name)
    return unusable.value.refusal


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD),
        f"Let me think {{aloud}}.\n```json\n{json.dumps(GOOD)}\n```\nThat should do.",
        f"<think>\n{json.dumps(GOOD | {'params': {'lr': 0.09}})}\n</think>\n{json.dumps(GOOD)}",
        json.dumps(GOOD | {"params": {"lr": "2e-2", "layers": "3", "norm": True, "act": None, "hidden": 64}}),
        f"{json.dumps(GOOD)}\n\nOnce more:\n{json.dumps(GOOD)}",
    ],
)
def test_an_answer_is_a_suggestion_on_top_of_the_champion_whatever_is_around_it(reply: Reply | str) -> None:
    suggestion = proposed(reply)
    assert suggestion.params == CHAMPIONS | {"lr": 0.02}
    assert (suggestion.rationale, suggestion.category, suggestion.files) == ("faster", "learning rate", None)
    assert suggestion.model == "openai/test" and suggestion.usage.calls == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('Perhaps {"params": {"lr": 0.09}}, or better {"params": {"lr": 0.02}}.', "several proposals"),
        ("I would raise the rate.", "there is no JSON object with \"params\" in the answer"),
        ('{"params": [1]}', 'must be an object with "params", an object of parameter names and values, got {"params": [1]}'),
        ('{"params": {"hidden": 128}}', "parameter 'hidden' is fixed at 64 in walker, got 128"),
        (
            '{"params": {"lr": 5, "layer": 2, "act": "gelu", "norm": 1}}',
            "parameter 'lr' must be a number in 0.0001..0.1, got 5; unknown parameter 'layer'. Did you mean 'layers'? "
            "Available: lr, layers, act, norm, hidden.; parameter 'act' must be one of ['tanh', 'relu'], got 'gelu'; "
            "parameter 'norm' must be one of [True, False], got 1",
        ),
    ],
)  # fmt: skip
def test_an_answer_outside_of_the_form_or_the_space_is_turned_down_with_every_fault(answer: str, why: str) -> None:
    refusal = turned_down(answer)
    assert why in refusal.reason and len(refusal.reason) < 600
    assert refusal.text == answer and refusal.usage.calls == 1


def test_an_answer_outside_of_the_space_is_repaired_with_what_was_wrong() -> None:
    wrong = json.dumps(GOOD | {"params": {"lr": 5}})
    with FakeLLM([json.dumps(GOOD)]) as server:
        asking(server).propose(a_brief(turned_down(wrong)))
    talk = server.requests[0].messages
    assert [message["role"] for message in talk] == ["system", "user", "assistant", "user"]
    assert talk[2]["content"] == wrong
    assert "| parameter 'lr' must be a number in 0.0001..0.1, got 5" in talk[3]["content"]


def test_a_batch_is_asked_for_once_and_the_next_trials_take_theirs_from_it(tmp_path: Path) -> None:
    rates = (0.02, 5, 0.03, 0.04)  # one of them is outside of the space
    answer = json.dumps({"proposals": [GOOD | {"params": {"lr": rate}} for rate in rates]})
    found, pending = list[Suggestion](), dict[int, Proposal]()
    with FakeLLM([answer, json.dumps(GOOD | {"params": {"lr": 0.05}})]) as server:
        llm = asking(server, batch=4)
        for number in range(2, 6):
            brief = replace(a_brief(traces=tmp_path / f"{number:04d}"), pending=pending)
            suggestion = llm.propose(brief)
            assert suggestion is not None and suggestion == llm.propose(brief), "a kill changes nothing"
            made = Proposal(suggestion.params, proposer="llm", model=suggestion.model, usage=suggestion.usage)
            found, pending = [*found, suggestion], {**pending, number: made}

    assert [one.params["lr"] for one in found] == [0.02, 0.03, 0.04, 0.05]
    assert [one.usage.calls for one in found] == [1, 0, 0, 1]
    assert "Propose 4 trials" in server.requests[0].last and len(server.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        EDIT,
        f"So:\n```json\n{HEAD}\n```\n\n{WHOLE}",
        f"<think>rate?</think>{HEAD.replace('higher ', 'higher   ')}\n\n{BLOCK}\nDone.",
    ],
)
def test_every_form_of_an_edit_is_read_whichever_was_asked_for(answer: str) -> None:
    suggestion = proposed(answer, "llm_diff", form="whole_file")
    assert suggestion.files == FASTER
    assert (suggestion.rationale, suggestion.category) == ("a higher rate", "learning rate")


@pytest.mark.parametrize(("stated", "read"), [('"+0.03"', 0.03), ('"5 % more"', None), ("true", None), (10**400, None)])
def test_a_prediction_is_a_finite_number_however_it_is_written_or_none(stated: object, read: float | None) -> None:
    assert proposed(f'{{"params": {{"lr": 0.02}}, "expected": {stated}}}').expected == read


def test_parameters_without_an_edit_are_a_proposal_too() -> None:
    answer = '```json\n{"rationale": "a higher rate", "expected": "+3", "params": {"lr": 0.02}}\n```\n'
    idea = proposed(answer, "llm_diff")
    assert (idea.rationale, idea.expected, idea.params) == ("a higher rate", 3.0, CHAMPIONS | {"lr": 0.02})
    assert not idea.files


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"rationale": "I would rather not."}', "no edit"),
        (EDIT.replace("rate = 0.1", "rate"), "block 1 of 1 (train.py)"),
        (f'{{"rationale": "", "params": {{"lr": 7}}}}\n{BLOCK}', "'lr' must be a number in 0.0001..0.1, got 7"),
        (f'{{"rationale": "faster", lr = 0.02}}\n{BLOCK}', 'there is no JSON object with "rationale"'),
        (f"{HEAD}\n{HEAD.replace('higher', 'lower')}\n{BLOCK}", "several proposals"),
    ],
)
def test_an_edit_that_does_not_apply_is_turned_down_with_the_reason(answer: str, why: str) -> None:
    refusal = turned_down(answer, "llm_diff")
    assert why in refusal.reason
    assert (refusal.text, refusal.usage.calls) == (answer.strip(), 1)


def test_an_edit_is_asked_for_in_its_form_with_the_champions_program() -> None:
    for form, part in {"whole_file": "Write every file", "diff": "unified diff", "search_replace": "SEARCH"}.items():
        with FakeLLM([EDIT]) as server:
            asking(server, "llm_diff", form=form).propose(a_brief())
        assert part in server.requests[0].last
        assert f"```\n{PROGRAM['train.py']}```" in server.requests[0].last
        assert "response_format" not in server.requests[0].body


def test_code_that_looks_like_a_header_or_a_thought_stays_code() -> None:
    code = "RATIONALE = {'params': 3}\nx = '''\n<think>no</think> and a rationale\n</think>\n'''\n"
    whole = f'{{"rationale": "yes"}}\n\ntrain.py\n```\n{code}```\n'
    for answer in (whole, f'{{"rationale": "a draft"}}\n{BLOCK}Yes.</think>\n\n{whole}'):
        found = proposed(answer, "llm_diff")
        assert (found.files, found.rationale) == ({"train.py": code}, "yes")


def test_best_of_n_sends_the_same_request_whatever_happened() -> None:
    told = {"pending": {9: Proposal(CHAMPIONS)}, "rejected": (Parked(9, Proposal(CHAMPIONS), 0.0, state="rejected"),)}
    told |= {"refusals": (Refusal("the same as trial 1 (discard)", "{}"),)}
    second = replace(a_brief(), earlier=a_history(), seed=77, **told)
    with FakeLLM([json.dumps(GOOD | {"expected": 5})] * 2) as server:
        proposer = asking(server, "best_of_n")
        one, two = proposer.propose(a_brief(history=a_history()[:1])), proposer.propose(second)

    assert server.requests[0].body == server.requests[1].body
    assert one is not None and two is not None and one.params == two.params == DEFAULTS | {"lr": 0.02}
    assert one.expected is two.expected is None  # the champion, with which it would be compared, was not told


def judged(wins: dict[str, Sequence[bool]]) -> History:
    """A history in which each model's trials were kept or not."""
    history, score = a_history(), 150.0
    for model, won in ((model, won) for model, outcomes in wins.items() for won in outcomes):
        score += 100 * won
        trial = tried(history, score if won else None, params=CHAMPIONS)
        history += (replace(trial, proposal=replace(trial.proposal, model=model)),)
    return history


def test_an_ensemble_asks_everybody_at_first_and_then_those_that_win() -> None:
    better = judged({"openai/one": [True] * 2 + [False] * 6, "openai/two": [True] * 4 + [False] * 2})
    for history, least, most in ((a_history(), 30, 70), (better, 80, 99)):  # the other one is still asked now and then
        first = [order(history, ("openai/one", "openai/two"), random.Random(trial))[0] for trial in range(100)]
        assert least <= first.count("openai/two") <= most


def test_a_model_that_is_not_available_is_passed_over_and_the_suggestion_names_the_other() -> None:
    def script(asked: Asked) -> Reply | str:
        return Reply("no such model", status=404) if asked.body["model"] == "two" else json.dumps(GOOD)

    brief = a_brief(history=judged({"openai/one": [False] * 20, "openai/two": [True] * 20}))
    with FakeLLM(script) as server:
        suggestion = asking(server, "ensemble").propose(brief)

    assert [asked.body["model"] for asked in server.requests] == ["two", "one"]
    assert suggestion is not None
    assert (suggestion.model, suggestion.params["lr"], suggestion.usage.calls) == ("openai/one", 0.02, 2)


def test_an_ensemble_has_two_models_each_of_which_is_asked_for_before_the_first_trial() -> None:
    with FakeLLM() as server:
        asking(server, "ensemble").preflight()
        with pytest.raises(Refused, match=r"two models.* 1"):
            asking(server, "ensemble", models=["one", "one"]).preflight()
    assert not server.requests


# Hybrid: which way it goes, told from the history alone, and whose suggestion a trial gets.


STALLED = ["discard"] * 3
EDIT_OF_FIT = (
    '{"rationale": "clip it"}\n\nfit.py\n<<<<<<< SEARCH\n'
    '(args.out / "model.json").write_text(json.dumps({"x": args.x}))\n=======\n'
    '(args.out / "model.json").write_text(json.dumps({"x": min(args.x, 1.1)}))\n>>>>>>> REPLACE\n'
)
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
            inbox="0001" if fate == "idea" else "",
        )
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
    assert Hybrid(**WAYS).mode(night(*fates)) == (way, why)


def quad(tmp_path: Path) -> environments.Environment:
    return environments.load(quadratic(tmp_path / "quad"))


def test_where_no_numbers_are_left_to_try_code_is_edited(tmp_path: Path) -> None:
    numbers = {"numeric": "grid", "numeric_options": {"points": 1}}
    first, second, *more = night(*STALLED, "edit keep")
    point = propose.load("grid", {"points": 1}).propose(brief_of(quad(tmp_path), (first,)))
    assert point is not None
    history = (first, replace(second, proposal=replace(second.proposal, params=dict(point.params))), *more)
    with FakeLLM([EDIT_OF_FIT]) as server:
        hybrid = asking(server, "hybrid", **WAYS, **numbers)
        assert isinstance(hybrid, Hybrid) and hybrid.mode(history)[1].startswith("back to numbers")
        found = hybrid.propose(brief_of(quad(tmp_path), history))
    assert found is not None and (found.proposer, found.switch) == ("llm_diff", ""), "it did not go back to numbers"


def test_code_and_what_goes_wrong_come_under_the_name_of_who_was_asked(tmp_path: Path) -> None:
    brief = brief_of(quad(tmp_path), night(*STALLED))
    with FakeLLM([EDIT.replace("train.py", "fit.py"), EDIT_OF_FIT, Reply("bad key", status=401)]) as server:
        hybrid = asking(server, "hybrid", **WAYS)
        with pytest.raises(Unusable) as unusable:
            hybrid.propose(brief)
        found = hybrid.propose(replace(brief, refusals=(unusable.value.refusal,)))
        with pytest.raises(Unavailable, match=r"^llm_diff: "):
            hybrid.propose(brief)
    assert unusable.value.refusal.proposer == "llm_diff"
    assert found is not None and found.proposer == "llm_diff"
    assert found.files == {"fit.py": FIT.replace('{"x": args.x}', '{"x": min(args.x, 1.1)}')}
    assert found.switch == "over to code: 3 trials of numbers in a row without a keep"
