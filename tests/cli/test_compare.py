"""`nightshift compare`: what a side may name, where the two meet, and what their runs say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.cli.comparing import Match, difference, in_words, parse, prepare
from tasks.system import file_trees
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, settled
from tests.support.question_pool import pool
from tests.support.toy import nightshift, quadratic
from tests.support.trusting import trusted

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


def ready(a: str, b: str, on: Path | None = None, runs: int | None = 3, seed: int | None = 7) -> Match:
    """Two sides, laid out and not yet run."""
    sides = [parse("a", a), parse("b", b)]
    return prepare(sides, str(on) if on else None, runs, [], seed, "auto", allow_unsandboxed=True)


def run(match: Match) -> Any:
    """The content of comparison.json after the last run."""
    return match.play(quiet=True)


def params(match: Match) -> list[Any]:
    return [arm.proposal.params for arm in match.arms]


def edited(match: Match) -> list[bool]:
    return [arm.proposal.edit is not None for arm in match.arms]


def program(match: Match, name: str) -> str:
    """A side's program, once it has run."""
    return (match.stage.folder / "trials" / f"{name}-1" / "workspace" / "draw.py").read_text()


def scores(*values: float | None, higher_is_better: bool = True) -> list[Score]:
    return [
        Score.missing("exited with status 3\nits log", higher_is_better)
        if value is None
        else Score.of([value], higher_is_better)
        for value in values
    ]


def test_a_clear_difference_is_found_and_stored_run_by_run(tmp_path: Path, home: Path) -> None:
    match = ready("baseline", '{"x": 90}', noisy(tmp_path / "noisy"), runs=4)
    found = run(match)
    assert found["words"].startswith("B is better by ")
    assert found["low"] < found["gain"] < found["high"] < 0 and found["p"] == pytest.approx(2 / 70)
    assert sorted((row["arm"], row["number"]) for row in found["runs"]) == [
        (arm, n) for arm in "AB" for n in (1, 2, 3, 4)
    ]
    assert len({row["seed"] for row in found["runs"]}) == 8, "fresh training seeds"
    folder = home / ".comparisons/noisy/0001"
    assert json.loads((folder / "comparison.json").read_text()) == found
    assert {path.name for path in folder.iterdir()} == {"environment", "program", "trials", "comparison.json"}
    assert all((Path(row["directory"]) / "log.txt").is_file() for row in found["runs"])


@pytest.mark.slow
def test_the_same_seed_trains_the_same_and_is_judged_on_other_units(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    first, second = (run(ready("baseline", "baseline", folder, runs=2))["runs"] for _ in range(2))
    assert [(row["arm"], row["seed"]) for row in first] == [(row["arm"], row["seed"]) for row in second]
    assert [row["score"] for row in first] != [row["score"] for row in second]


@pytest.mark.slow
def test_each_run_is_judged_on_units_of_its_own(tmp_path: Path) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    found = run(ready("baseline", "baseline", noisy(tmp_path / "noisy", still)))
    assert len({row["score"] for row in found["runs"]}) == 6
    assert found["words"].startswith("no difference shown: ")
    assert (found["units"], "on fresh units" in found["words"]) == ("fresh", True)


@pytest.mark.slow
def test_runs_share_out_the_questions_for_confirm_of_a_finite_pool(tmp_path: Path, home: Path) -> None:
    folder = pool(tmp_path / "pool", judge=SHARING, command="{out} {result} {prepared} {use} {block}").folder
    toml = folder / "environment.toml"
    toml.write_text(toml.read_text().replace("questions = 3", "questions = 5"))
    trusted(folder)
    found = run(ready("baseline", '{"x": 1.0}', folder, runs=2))
    asked = [
        json.loads((Path(row["directory"]) / "judged/result.json").read_text())["also"]["question"]
        for row in found["runs"]
    ]
    assert sorted(asked) == [10, 11, 12, 13], "search has 5 to 9, report 15 to 19"
    assert found["units"] == "disjoint" and "questions like those of the pool" in found["words"]
    with pytest.raises(Refused, match="--runs 3: the pool for confirm has 5 questions"):
        ready("baseline", "baseline", folder, runs=3)


@pytest.mark.slow
def test_a_comparison_on_the_same_units_says_that_it_is_about_these_alone(tmp_path: Path) -> None:
    found = run(ready("baseline", '{"x": 1.0}', quadratic(tmp_path / "quad"), runs=2))
    assert found["units"] == "same" and "this is about these units" in found["words"]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((1.0, 3.0), (2.0, 2.5), "no difference shown: B is ahead by 0.25"),
        ((1.0, 3.0), (3.0, 1.0), "no difference shown: both have the same mean"),
        ((10.0, 10.2, 10.1, 10.3), (1.0, 1.1, 1.2, 0.9), "A is better by 9.1"),
        ((10.0, 10.2), (1.0, 1.1), "no difference shown: A is ahead by 9.05 (too few runs for an interval"),
    ],
)
def test_the_words_name_who_is_ahead_and_whether_that_shows(
    a: tuple[float, ...], b: tuple[float, ...], words: str
) -> None:
    first, second = scores(*a), scores(*b)
    assert in_words(difference(first, second), first, second).startswith(words)


def test_where_runs_do_not_differ_that_proves_something_only_if_nothing_is_random() -> None:
    first, second = scores(1.0, 1.0), scores(2.0, 2.0)
    assert "B is better by 1" in in_words(difference(first, second, deterministic=True), first, second)
    assert "no difference shown" in in_words(difference(first, second), first, second)


def test_a_smaller_loss_is_better() -> None:
    a, b = (scores(*values, higher_is_better=False) for values in ((10.0, 10.2, 10.1, 10.3), (1.0, 1.1, 1.2, 0.9)))
    found = difference(a, b)
    assert found is not None and found.gain == pytest.approx(-9.1)
    words = in_words(found, a, b)
    told = re.match(r"B is better by 9.1 \(95 % interval (\S+?)\.\.(\S+), 4 v 4 fresh runs, p = \S+ two-sided\)", words)
    assert told is not None
    assert 0 < float(told[1]) < 9.1 < float(told[2]), "an interval of what B is better by"


def test_p_is_two_sided_and_1_where_nothing_differs() -> None:
    one, other = scores(1.0, 2.0, 3.0), scores(2.5, 3.0, 3.5)
    forth, back = difference(one, other), difference(other, one)
    assert forth is not None and back is not None
    assert forth.p == back.p == pytest.approx(2 * 3 / 20), "three of the twenty ways show as much"
    same = difference(scores(1.0, 1.0), scores(1.0, 1.0))
    assert same is not None and same.p == 1.0


def test_crashed_runs_are_told_and_left_out() -> None:
    a, b = scores(1.0, None, 1.2), scores(5.0, 5.1, 5.2)
    words = in_words(difference(a, b), a, b)
    assert "2 v 3 fresh runs" in words
    assert "1 of 3 runs of A crashed (exited with status 3): the comparison leaves them out" in words
    alone = scores(None, None, 1.0)
    assert difference(alone, b) is None
    assert in_words(None, alone, b).splitlines() == [
        "nothing to compare: each side needs two runs with a score",
        "2 of 3 runs of A crashed (exited with status 3)",
    ]


@pytest.mark.slow
def test_a_side_without_a_score_is_told_with_the_reason_and_ends_with_1(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n")
    done = nightshift("compare", "baseline", "baseline", "--on", str(folder), "--runs", "4", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["gain"], found["low"], found["p"], found["a"]["score"]) == (None, None, None, None)
    assert "4 of 4 runs of A crashed (exited with status 1" in found["words"]


def test_a_program_that_ignores_its_seed_is_found_out(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy", DRAW.replace('config["seed"]', "1"))
    found = run(ready("baseline", '{"x": 1}', folder, runs=2))
    assert [row["error"] is None for row in found["runs"] if row["arm"] == "A"] == [True, False]
    assert "ignores its seed" in str([row["error"] for row in found["runs"]])


def test_where_nothing_is_drawn_at_random_two_runs_are_enough(tmp_path: Path) -> None:
    found = run(ready("baseline", '{"x": 1.0}', quadratic(tmp_path / "quad"), runs=None))
    assert (len(found["runs"]), found["gain"], found["p"]) == (4, -2.25, 0.0)


def test_parameters_and_edits_are_taken_from_files(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    (tmp_path / "good.json").write_text('{"x": 2.5}')
    (tmp_path / "good.diff").write_text(BETTER)
    (tmp_path / "good.patch").write_text(BETTER)
    match = ready(str(tmp_path / "good.json"), str(tmp_path / "good.diff"), folder, runs=2)
    assert params(match) == [{"x": 2.5}, {"x": 0.0}] and edited(match) == [False, True]
    assert "B is ahead by " in run(match)["words"]
    assert program(match, "a") == DRAW and "bonus = 50.0" in program(match, "b")
    patched = ready("baseline", str(tmp_path / "good.patch"), folder)
    assert patched.arms[1].proposal.edit == match.arms[1].proposal.edit


@pytest.mark.slow
def test_a_campaign_gives_its_champion_its_baseline_and_each_trial_with_its_program(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    for values, edit, kind in (({}, None, "keep"), ({"x": 3.0}, BETTER, "keep"), ({"x": 5.0}, None, "discard")):
        settled(ledger, values, edit, kind)
    noisy(tmp_path / "noisy", "changed meanwhile\n")
    champion = ready("night", "night/baseline", runs=2)
    assert params(champion) == [{"x": 3.0}, {"x": 0.0}] and edited(champion) == [True, False]
    again = ready("night/champion", "night/2")
    assert again.arms[0].proposal.edit == champion.arms[0].proposal.edit
    assert params(again)[1] == {"x": 5.0} and edited(again) == [True, False]
    plain = ready("night/0", '{"x": 9}')
    assert params(plain) == [{"x": 0.0}, {"x": 9.0}] and edited(plain) == [False, False]
    file_trees.remove(ledger.place(1).workspace)  # as prune may do
    found = run(champion)
    assert "A is ahead by " in found["words"] and found["environment"] == "noisy"
    assert "bonus = 50.0" in program(champion, "a")
    assert program(champion, "b") == DRAW, "the baseline is the campaign's, as it was frozen"


def test_a_trial_can_be_taken_to_another_environment(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    settled(ledger, {})
    settled(ledger, {"x": 3.0}, BETTER)
    other = noisy(tmp_path / "other", toml=TOML.replace("budget_seconds = 5", "budget_seconds = 4"))
    match = ready("night", "baseline", other, runs=2)
    assert (match.stage.environment.name, match.stage.environment.budget_seconds) == ("other", 4)
    assert params(match)[0] == {"x": 3.0} and edited(match) == [True, False]
    run(match)
    assert "bonus = 50.0" in program(match, "a")


def test_two_campaigns_meet_only_where_their_scores_mean_the_same(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    for name in ("one", "two"):
        settled(campaign(folder, name), {})
    assert ready("one", "two").stage.environment.name == "noisy"
    noisy(folder, toml=TOML.replace("budget_seconds = 5", "budget_seconds = 4"))
    settled(campaign(folder, "three"), {})
    with pytest.raises(Refused, match=r"'one' and 'three' .*--on"):
        ready("one", "three")
    assert ready("one", "three", folder).stage.environment.budget_seconds == 4


@pytest.mark.parametrize(
    ("a", "why"),
    [
        ("basline", "unknown side of a comparison 'basline'. Did you mean 'baseline'?"),
        ("nigth/3", "unknown side of a comparison 'nigth'. Did you mean 'night'?"),
        ("nigth", "A side is baseline, a JSON object of parameters, a file *.json"),
        ("night/7", "campaign 'night' has no finished trial 7: it has 0 to 0"),
        ("night/best", "campaign 'night' has no finished trial best: it has 0 to 0. Give night/champion"),
        ("night", "campaign 'night' has no champion, for no trial has a score: name night/baseline"),
        ("young/0", "campaign 'young' has no finished trial 0: it has none yet"),
        ("{x: 1}", "parameters '{x: 1}' is not JSON"),
        ('{"x": null}', "give a JSON object of numbers, texts and booleans"),
        ("no.json", "parameters in no.json: No such file or directory"),
        ("no.diff", "the edit no.diff: No such file or directory"),
    ],
)
def test_a_side_that_is_none_is_refused_with_what_there_is(tmp_path: Path, a: str, why: str) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit(3)\n")
    settled(campaign(folder), {}, kind="crash")
    campaign(folder, "young")
    with pytest.raises(Refused, match=re.escape(why)):
        parse("a", a)


def test_what_cannot_meet_is_refused_and_leaves_nothing(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {})
    (tmp_path / "bad.diff").write_text(BETTER.replace("bonus = 0.0", "bonus = 7.0"))
    sides = [parse("a", "night"), parse("b", "baseline")]
    with pytest.raises(Refused, match="--set needs --on"):
        prepare(sides, None, 2, ["budget_seconds=4"], 1, "auto", allow_unsandboxed=False)
    cases = {
        ("baseline", '{"x": 1}'): (None, "give --on ENVIRONMENT"),
        ("baseline", '{"y": 1}'): (folder, "unknown parameter 'y'"),
        ("baseline", '{"x": 1000}'): (folder, "parameter 'x' must be a number in -100.0..100.0"),
        ("baseline", str(tmp_path / "bad.diff")): (
            folder,
            "bad.diff: the edit does not apply: the old lines of a hunk are not in draw.py",
        ),
        ("baseline", "night"): (tmp_path / "nowhere", "has no environment.toml"),
    }
    for (a, b), (on, why) in cases.items():
        with pytest.raises(Refused, match=re.escape(why)):
            ready(a, b, on)
    assert not (home / ".comparisons").exists() or list((home / ".comparisons").glob("*/*")) == []


def test_an_edited_program_does_not_run_without_a_sandbox_unless_that_is_allowed(tmp_path: Path, home: Path) -> None:
    (tmp_path / "good.diff").write_text(BETTER)
    sides = [parse("a", "baseline"), parse("b", str(tmp_path / "good.diff"))]
    on = str(noisy(tmp_path / "noisy"))
    with pytest.raises(Refused, match="the edit is refused"):
        prepare(sides, on, 2, [], 1, "none", allow_unsandboxed=False)
    assert prepare(sides, on, 2, [], 1, "none", allow_unsandboxed=True).stage.isolation.level == "none"


def test_fewer_runs_than_can_show_anything_are_refused_before_one_is_made(tmp_path: Path, home: Path) -> None:
    done = nightshift("compare", "baseline", "baseline", "--runs", "3", "--on", str(noisy(tmp_path / "noisy")))
    assert done.returncode == 2 and "give at least 4 of each side" in done.stderr
    assert not list(home.glob(".comparisons/*/*/trials/*"))


@pytest.mark.slow
def test_the_command_tells_each_run_and_then_who_is_better(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {"x": 50.0})
    done = nightshift("compare", "night", '{"x": -50}', "--runs", "4", "--set", "budget_seconds=4", "--on", str(folder))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["A: night", 'B: {"x": -50}', "4 fresh runs of each in noisy, of 4 s at most"]
    assert sorted(line[:3] for line in lines[3:11]) == [f"{arm} {n}" for arm in "AB" for n in (1, 2, 3, 4)]
    assert lines[11].startswith("A is better by ") and lines[13] == f"see {home / '.comparisons/noisy/0001'}"


@pytest.mark.slow
def test_with_json_there_is_one_document_and_nothing_else(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    arguments = ("compare", "baseline", '{"x": 90}', "--runs", "4", "--on", str(folder), "--json", "--seed", "3")
    done = nightshift(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.keys() == {
        "a", "b", "environment", "metric", "direction", "seed", "runs", "gain", "low", "high", "p", "units", "words",
        "directory",
    }  # fmt: skip
    assert found["gain"] == pytest.approx(found["a"]["score"] - found["b"]["score"])
    assert found["runs"][0].keys() == {
        "arm", "number", "seed", "score", "se", "n", "seconds", "error", "directory",
    }  # fmt: skip
    assert found == json.loads((home / ".comparisons/noisy/0001/comparison.json").read_text())
    assert found["words"].startswith("B is better by ")
