"""Whole prompts, as a model reads them: the files in tests/llm/prompts. Read them again where a change is wanted.

NIGHTSHIFT_WRITE_PROMPTS=1 python -m pytest tests/llm/test_whole_prompts.py
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from environments.space import Choice, Float, Int, Space
from tasks.llm.prompt_parts import told
from tasks.llm.prompts import render
from tasks.proposing.brief import Brief, Problem, RejectedProposal, RemainingBudget, Suggestion
from tasks.rules.certify import Certify
from tasks.trial import History, Proposal, Trial, Verdict
from tests.support.histories import tried

FOLDER = Path(__file__).with_name("prompts")
SPACE: Space = {
    "lr": Float(low=1e-6, high=1e-3, log=True, default=5e-6),
    "group": Int(low=4, high=16, default=8),
    "loss": Choice(values=("grpo", "max_rl"), default="grpo"),
}
START = {"lr": 5e-6, "group": 8, "loss": "grpo"}
PROBLEM = Problem(
    name="sums", title="Sums", metric="pass@1", budget="600 s on cuda, 20 steps at most", budget_steps=20,
    guards=("truncated/share (minimize), may get worse by 0.1",), program_md="# Sums\n\nA model learns to add.",
    editable=("train.toml",), fixed={"max_tokens": 1024},
)  # fmt: skip
PROGRAM = {"train.toml": "[trainer.optim]\nmax_norm = 1.0\n"}
OOM = "exited with status 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB"


def trial(history: History, score: float | None, rationale: str, **changes: object) -> Trial:
    """The next trial, with what a language model would say of it."""
    seen = len(history)
    made = tried(history, score, params={**START, **changes.pop("params", {})}, wall=720.0)  # type: ignore[dict-item]
    return replace(made, proposal=replace(made.proposal, rationale=rationale, seen=seen, proposer="llm", **changes))  # type: ignore[arg-type]


def night() -> History:
    """A baseline of which one run failed, a keep, a discard, an edit that crashed, and a trial stopped early."""
    first = tried((), 0.40, 0.44, 0.42, params=dict(START), wall=720.0)
    broken = replace(first.runs[2], status="crash", error="stalled: no metrics for 300 s after step 9")
    first = replace(first, runs=(*first.runs[:2], broken))
    history: History = (
        replace(first, score=replace(first.score, also={"pass@1/greedy": 0.47, "truncated/share": 0.02})),
    )
    better = trial(history, 0.51, "A larger step.", params={"lr": 2e-5}, category="learning rate", expected=0.05)
    history += (replace(better, score=replace(better.score, also={"pass@1/greedy": 0.53, "truncated/share": 0.01})),)
    history += (trial(history, 0.33, "Larger still.", params={"lr": 2e-4}, category="learning rate", expected=0.06),)
    diff = "--- a/train.toml\n+++ b/train.toml\n@@ -1,2 +1,2 @@\n [trainer.optim]\n-max_norm = 1.0\n+max_norm = 0.1\n"
    crash = trial(history, None, "Clip harder.", params={"lr": 2e-5}, edit=diff, category="clipping", expected=0.02)
    run = replace(crash.runs[0], status="crash", error=OOM)
    history += (replace(crash, runs=(run,), verdict=Verdict("crash", OOM)),)
    for number, (lr, group, score) in enumerate([(1e-5, 4, 0.45), (4e-5, 16, 0.48), (3e-5, 12, 0.50)], 4):
        proposer = f"Sobol point {number}"
        history += (trial(history, score, proposer, params={"lr": lr, "group": group}, expected=0.01),)
    return history


def brief() -> Brief:
    history = night()
    curve = {"pass@1": (0.2, 0.3, 0.35, 0.4, 0.45), "kl/mean": (0.001, 0.002, 0.01, 0.05, 0.2)}
    late = {**curve, "entropy/mean": (None, None, 0.9, 0.5, 0.1)}
    return Brief(
        SPACE, history, {7: Proposal({**START, "group": 4}, rationale="smaller groups")}, problem=PROBLEM, files=PROGRAM,
        rejected=(RejectedProposal(8, Proposal({**START, "lr": 1e-3}, rationale="much faster"), "too hot"),),
        hint=Suggestion({**START, "lr": 2.4e-5}, "TPE on 6 scored trials"),
        left=RemainingBudget(trials=9, seconds=7200, usd=1.25), keep_rule=Certify().in_words(history),
        curves={0: curve, 1: late, 6: late},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["researcher", "parameters", "edit", "agent"])
def test_a_whole_prompt_is_as_it_was_read(name: str) -> None:
    asked = brief()
    said = render(name, None, problem=asked.problem, told=told(asked), count=1, form="search_replace", reason="")
    file = FOLDER / f"{name}.md"
    if os.environ.get("NIGHTSHIFT_WRITE_PROMPTS"):
        file.write_text(said)
    assert said == file.read_text()


def test_what_a_model_has_to_know_of_a_night_is_in_both_questions() -> None:
    for name in ("parameters", "edit"):
        said = (FOLDER / f"{name}.md").read_text()
        for part in (
            "is kept when it scores above 0.51",
            "1 of its 3 runs failed",
            "stalled: no metrics for 300 s",
            "pass@1/greedy 0.53",
            "| kl/mean: 0.001, 0.002, 0.01, 0.05, 0.2",
            "trial 2: expected +0.06, measured -0.18",
            "- loss was never changed",
            "A trial takes about 720 s",
            "max_norm = 1.0",
        ):
            assert part in said, (name, part)
    numbers = (FOLDER / "parameters.md").read_text()
    assert "step size" in numbers and "correlations:" in numbers and '"expected": CHANGE' in numbers
    assert "EXPECTED: by how much `pass@1`" in (FOLDER / "edit.md").read_text()


def test_with_several_slots_more_trials_fit_and_those_under_way_are_not_left() -> None:
    one = brief()
    under_way = dict.fromkeys((*one.pending, 90), one.history[0].proposal)
    two = replace(one, left=replace(one.left, slots=2), pending=under_way)
    said = told(two).left
    assert "its verdict, 2 run at the same time, so time is left for about 20" in said
    assert f"{9 - len(under_way)} trials, 2.0 hours" in said


def test_crashes_within_seconds_do_not_tell_how_long_a_trial_takes() -> None:
    asked, history = brief(), night()
    for _ in range(4):
        history += (replace(trial(history, None, "Too much."), wall_seconds=3.0),)
    assert told(replace(asked, history=history)).left == told(asked).left


@pytest.mark.parametrize(("steps", "part"), [(20, "ends after 20 steps"), (0, "is worth as much")])
def test_speed_is_praised_only_where_time_is_the_budget(steps: int, part: str) -> None:
    asked = replace(brief(), problem=replace(PROBLEM, budget_steps=steps))
    said = render("researcher", None, problem=asked.problem, told=told(asked))
    assert part in said and ("is worth as much" in said) == (steps == 0)
