"""`nightshift compare`: what a side may name, where the two meet, and what their runs say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.cli import comparing
from flows.cli.comparing import Match, declare, difference, reopen
from flows.cli.single_runs import Question, Side, attempt, between, isolated
from flows.spec.campaign_spec import checked_environment
from tasks.system import file_trees
from tests.support.ledgers import trusted
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, settled
from tests.support.question_pool import pool
from tests.support.toy import nightshift, quadratic, stated

SHARING = """\
import json, pathlib, sys

out, result, prepared, use, block = sys.argv[1:]
x = json.loads(pathlib.Path(out, "model.json").read_text())["x"]
number, of = map(int, block.split("/"))
lines = pathlib.Path(prepared, "judge", f"{use}.jsonl").read_text().splitlines()[number - 1 :: of]
also = {"question": int(json.loads(lines[0])["id"], 16)}
pathlib.Path(result).write_text(json.dumps({"units": [(x - 1) ** 2] * len(lines), "also": also}))
"""
"""A judge that asks the questions of its block alone, and tells the first."""
ONE_SLOT = stated('device = "cpu"', f"cores = {len(os.sched_getaffinity(0))}", toml=TOML)
"""One run at a time."""
AHEAD, BEHIND = (10.0, 10.2, 10.1, 10.3), (1.0, 1.1, 1.2, 0.9)


def ready(a: str, b: str, on: Path | None = None, runs: int | None = 4) -> Match:
    """Two sides, laid out and not yet run."""
    question = between(a, b, str(on) if on else None, {}, trust=False)
    return declare(question, (runs, runs) if runs else None, isolated("auto", allow_unsandboxed=True))


def laid_out(match: Match) -> list[Any]:
    """The parameters of both sides, and whether they are edited."""
    return [(side.params, side.edit is not None) for side in match.declared.sides.values()]


def program(match: Match, name: str) -> str:
    """A side's program, once it has run."""
    return (match.stage.folder / "trials" / f"{name}-1" / "workspace" / "draw.py").read_text()


def scores(*values: float | None, up: bool = True) -> list[Score]:
    why = "exited with status 3\nits log"
    return [Score.missing(why, up) if value is None else Score.of([value], up) for value in values]


def test_a_clear_difference_is_found_and_stored_run_by_run(tmp_path: Path, home: Path) -> None:
    match = ready("baseline", '{"x": 90}', noisy(tmp_path / "noisy"))
    found = match.play()
    assert found["words"].startswith("B is better by ") and comparing.show(match, as_json=True) == 3
    assert found["low"] < found["gain"] < found["high"] < 0 and found["p"] == pytest.approx(2 / 70)
    assert {(row["arm"], row["number"]) for row in found["runs"]} == {(arm, n) for arm in "AB" for n in (1, 2, 3, 4)}
    assert len({row["seed"] for row in found["runs"]}) == 8, "fresh training seeds"
    with pytest.raises(Refused, match="were compared with 4v4 runs: --more"):
        ready("baseline", '{"x": 90}', tmp_path / "noisy", runs=6)
    folder = home / ".comparisons/noisy/0001"
    assert json.loads((folder / "comparison.json").read_text()) == found
    assert all((Path(row["directory"]) / "log.txt").is_file() for row in found["runs"])


@pytest.mark.slow
def test_runs_share_out_the_questions_for_confirm_of_a_finite_pool(tmp_path: Path, home: Path) -> None:
    folder = pool(tmp_path / "pool", judge=SHARING, command="{out} {result} {prepared} {use} {block}").folder
    toml = folder / "environment.toml"
    toml.write_text(toml.read_text().replace("questions = 3", "questions = 8"))
    trusted(folder)
    match = ready("baseline", '{"x": 1.0}', folder)
    found = match.play()
    asked = [
        json.loads((Path(row["directory"]) / "judged/result.json").read_text())["also"]["question"]
        for row in found["runs"]
    ]
    assert sorted(asked) == [*range(16, 24)], "search has 8 to 15, report 24 to 31"
    assert found["units"] == "disjoint" and "questions like those of the pool" in found["words"]
    with pytest.raises(Refused, match="the pool for confirm has 8 questions"):
        ready("baseline", '{"x": 0.5}', folder, runs=5)
    with pytest.raises(Refused, match="has 0 questions left"):
        match.with_more((4, 4))


@pytest.mark.slow
def test_where_nothing_is_drawn_at_random_two_runs_on_the_same_units_are_enough(tmp_path: Path) -> None:
    found = ready("baseline", '{"x": 1.0}', quadratic(tmp_path / "quad"), runs=None).play()
    assert (len(found["runs"]), found["gain"], found["p"]) == (4, -2.25, 0.0)
    assert found["units"] == "same" and "this is about these units" in found["words"]


def said(a: list[Score], b: list[Score], deterministic: bool = False) -> tuple[str, str]:
    """The verdict and the sentence after one group of runs."""
    mine, theirs = ([score.utility for score in arm if score.n] for arm in (a, b))
    found = difference([(mine, theirs)], [0.025], deterministic)
    return comparing.judged(found, ("tuned", "default"), a, b, 0.05, "fresh")


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (AHEAD, BEHIND, "better"), (BEHIND, AHEAD, "worse"),
        (AHEAD[:2], BEHIND[:2], "not shown"),  # two against two are too few
        ((1.0, 1.0), (2.0, 2.0), "not shown"),  # no spread, which proves something where nothing is drawn at random
        ((*BEHIND, 1.0, None), AHEAD, "worse"), (AHEAD, (*BEHIND, 1.0, None), "better"),
        ((*AHEAD, None), BEHIND, "not shown"),  # of a side that crashes only the lucky runs are known
    ],
)  # fmt: skip
def test_a_verdict_needs_enough_runs_with_a_spread_and_no_crash_of_the_better(
    a: list[float], b: list[float], verdict: str
) -> None:
    assert said(scores(*a), scores(*b))[0] == verdict


def test_a_smaller_loss_is_better_and_the_bound_is_of_what_is_better_and_crashes_are_told() -> None:
    assert said(scores(1.0, 1.0), scores(2.0, 2.0), deterministic=True)[0] == "worse"
    assert (
        "1 of 4 runs of A crashed (exited with status 3: its log): it is"
        in said(scores(*AHEAD[:3], None), scores(*BEHIND))[1]
    )
    judgement, words = said(scores(*AHEAD, up=False), scores(*BEHIND, up=False))
    told = re.match(r"B is better by 9.1, at least (\S+) \(95 % interval (\S+?)\.\.(\S+), 4 v 4 fresh runs", words)
    assert told is not None and judgement == "worse"
    assert 0 < float(told[2]) < 9.1 < float(told[3]) and told[1] == told[2]


def test_p_is_two_sided_and_counts_what_would_have_passed_before() -> None:
    one, other = [1.0, 2.0, 3.0], [2.5, 3.0, 3.5]
    forth, back = difference([(one, other)], [0.025]), difference([(other, one)], [0.025])
    assert forth is not None and back is not None
    assert forth.p == back.p == pytest.approx(2 * 3 / 20), "three of the twenty ways show as much"
    twice = difference([([5.0] * 4, [1.0] * 4), ([5.0] * 4, [1.0] * 4)], [0.024, 0.0245])
    assert twice is not None and 0.024 < twice.p <= 2 * 0.0245


def test_a_side_without_a_score_is_told_with_the_reason(tmp_path: Path) -> None:
    found = ready("baseline", "baseline", noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n", ONE_SLOT)).play()
    assert (found["verdict"], found["gain"], found["p"]) == ("not shown", None, None)
    assert re.match("nothing to compare: no run of [AB] has a score: exited with status 1", found["words"])
    assert len(found["runs"]) < 8, "further runs would crash like the first two"


def test_a_program_that_ignores_its_seed_is_found_out(tmp_path: Path) -> None:
    draw = DRAW.replace('config["seed"]', "1")
    found = ready("baseline", '{"x": 1}', noisy(tmp_path / "noisy", draw, ONE_SLOT)).play()
    assert found["verdict"] == "not shown" and "ignores its seed" in found["words"]
    assert len(found["runs"]) < 8, "all that follow are one and the same run"


def test_parameters_and_edits_are_taken_from_files(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    (tmp_path / "good.json").write_text('{"x": 2.5}')
    (tmp_path / "good.diff").write_text(BETTER)
    match = ready(str(tmp_path / "good.json"), str(tmp_path / "good.diff"), folder)
    assert laid_out(match) == [({"x": 2.5}, False), ({"x": 0.0}, True)]
    assert "B is better by " in match.play()["words"]
    assert program(match, "a") == DRAW and "bonus = 50.0" in program(match, "b")


@pytest.mark.slow
def test_a_campaign_gives_its_champion_its_baseline_and_each_trial_with_its_program(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"), overrides={"budget_seconds": 4})
    settled(ledger, {})
    settled(ledger, {"x": 3.0}, BETTER)
    settled(ledger, {"x": 5.0}, kind="discard")
    noisy(tmp_path / "noisy", "changed meanwhile\n")
    other = noisy(tmp_path / "other", toml=TOML.replace("budget_seconds = 5", "budget_seconds = 7"))
    champion, baseline, elsewhere = ready("night", "night/0"), ({"x": 0.0}, False), ready("night", "baseline", other)
    assert laid_out(champion) == laid_out(elsewhere) == [({"x": 3.0}, True), baseline]
    assert laid_out(ready("night/baseline", "night/2")) == [baseline, ({"x": 5.0}, False)]
    assert elsewhere.stage.environment.budget_seconds == 7
    again = reopen(champion.stage.folder, champion.stage.isolation)
    assert again.stage.environment.budget_seconds == 4, "what was set in the campaign"
    file_trees.remove(ledger.place(1).workspace)  # as prune may do
    assert "A is better by " in again.play()["words"]
    assert "bonus = 50.0" in program(champion, "a")
    assert program(champion, "b") == DRAW, "the baseline is the campaign's, as it was frozen"


def test_what_cannot_meet_is_refused_and_leaves_nothing(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {})
    (tmp_path / "good.diff").write_text(BETTER)
    (tmp_path / "bad.diff").write_text(BETTER.replace("bonus = 0.0", "bonus = 7.0"))
    with pytest.raises(Refused, match="--set: the environment of a campaign is frozen"):
        between("night", "baseline", None, {"budget_seconds": 4}, trust=False)
    question = between("baseline", str(tmp_path / "good.diff"), str(folder), {}, trust=False)
    with pytest.raises(Refused, match="the edit is refused"):
        declare(question, (4, 4), isolated("none", allow_unsandboxed=False))
    cases = {
        ("baseline", '{"x": 1}'): (None, "give --on ENVIRONMENT"),
        ("baseline", '{"y": 1}'): (folder, "unknown parameter 'y'"),
        ("baseline", str(tmp_path / "bad.diff")): (folder, "bad.diff: the edit does not apply"),
        ("baseline", "night"): (tmp_path / "nowhere", "has no environment.toml"),
        ("nigth/3", "night"): (None, "unknown side of a comparison 'nigth'. Did you mean 'night'?"),
        ("night/7", "night"): (None, "unknown trial of campaign 'night' '7'. Available: 0, champion, baseline"),
        ("{x: 1}", "night"): (None, "parameters: Invalid JSON: key must be a string"),
    }
    for (a, b), (on, why) in cases.items():
        with pytest.raises(Refused, match=re.escape(why)):
            ready(a, b, on)
    with pytest.raises(Refused, match="so few runs cannot show a difference"):
        ready("baseline", "baseline", folder, runs=3)
    assert list((home / ".comparisons").glob("*/*")) == []


# `nightshift try`: what several runs say of the noise, and what a campaign can take over.


def test_every_run_is_judged_on_units_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    question = Question({"run": Side()}, checked_environment(str(noisy(tmp_path / "noisy", still)), {}), {})
    assert attempt(question, 3, 1, isolated("auto", allow_unsandboxed=False), as_json=True) == 0
    assert len({run["score"] for run in json.loads(capsys.readouterr().out)["runs"]}) == 3


@pytest.mark.slow
def test_in_a_campaign_the_program_and_parameters_are_run_in_its_frozen_environment(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {"x": 50.0})
    noisy(folder, "changed meanwhile\n")
    (tmp_path / "better.diff").write_text(BETTER)
    told = ("--params", '{"x": 3}', "--diff", str(tmp_path / "better.diff"), "--runs", "2")
    done = nightshift("try", "--in", "night", *told)
    assert done.returncode == 0, done.stderr
    assert "reward 5" in done.stdout


@pytest.mark.slow
def test_with_json_there_is_one_document_and_a_crash_says_why(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    crashing = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n", ONE_SLOT)
    cases = ((folder, "--seed", "7"), (folder, "--runs", "3"), (crashing, "--runs", "4"))
    done = [nightshift("try", str(place), *options, "--json") for place, *options in cases]
    assert [one.returncode for one in done] == [0, 0, 1], [one.stderr for one in done]
    once, several, crashed = (json.loads(one.stdout) for one in done)
    assert once.items() >= {"environment": "quad", "metric": "loss", "score": 2.25, "seed": 7}.items()
    assert [row["score"] for row in several["runs"]] == [2.25] * 3 and several["score"] == 2.25
    assert several["sd"] == 0.0 and several["detectable"]["gain"] == 0.0
    assert "no idea" in crashed["error"] and (crashed["score"], crashed["sd"]) == (None, None)
    assert len(crashed["runs"]) < 4, "the first crash ends it"
