"""`nightshift compare`: what a side may name, where the two meet, and what their runs say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.cli.comparing import opened, prepare, with_more
from flows.cli.comparison_words import sentence, verdict
from flows.cli.match import LEVEL, Declaration, Match, difference
from flows.cli.sides import certified_campaign, parse
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


def ready(a: str, b: str, on: Path | None = None, runs: int | None = 4, seed: int | None = 7) -> Match:
    """Two sides, laid out and not yet run."""
    sides = [parse("a", a), parse("b", b)]
    counts = (runs, runs) if runs else None
    return prepare(sides, str(on) if on else None, counts, [], seed, "auto", allow_unsandboxed=True)


def run(match: Match) -> Any:
    """The content of comparison.json after the last run."""
    return match.play(lambda line: None)


def params(match: Match) -> list[Any]:
    return [arm.proposal.params for arm in match.declared.arms]


def edited(match: Match) -> list[bool]:
    return [arm.proposal.edit is not None for arm in match.declared.arms]


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
    assert {path.name for path in folder.iterdir()} >= {"environment", "program", "trials", "match.json"}
    assert all((Path(row["directory"]) / "log.txt").is_file() for row in found["runs"])


@pytest.mark.slow
def test_the_same_seed_trains_the_same_and_is_judged_on_other_units(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    first, second = (run(ready("baseline", "baseline", folder))["runs"] for _ in range(2))
    assert [(row["arm"], row["seed"]) for row in first] == [(row["arm"], row["seed"]) for row in second]
    assert [row["score"] for row in first] != [row["score"] for row in second]


@pytest.mark.slow
def test_each_run_is_judged_on_units_of_its_own(tmp_path: Path) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    found = run(ready("baseline", "baseline", noisy(tmp_path / "noisy", still)))
    assert len({row["score"] for row in found["runs"]}) == 8
    assert found["words"].startswith("no difference shown: ")
    assert (found["units"], "on fresh units" in found["words"]) == ("fresh", True)


@pytest.mark.slow
def test_runs_share_out_the_questions_for_confirm_of_a_finite_pool(tmp_path: Path, home: Path) -> None:
    folder = pool(tmp_path / "pool", judge=SHARING, command="{out} {result} {prepared} {use} {block}").folder
    toml = folder / "environment.toml"
    toml.write_text(toml.read_text().replace("questions = 3", "questions = 8"))
    trusted(folder)
    found = run(ready("baseline", '{"x": 1.0}', folder))
    asked = [
        json.loads((Path(row["directory"]) / "judged/result.json").read_text())["also"]["question"]
        for row in found["runs"]
    ]
    assert sorted(asked) == [*range(16, 24)], "search has 8 to 15, report 24 to 31"
    assert found["units"] == "disjoint" and "questions like those of the pool" in found["words"]
    with pytest.raises(Refused, match="the pool for confirm has 8 questions"):
        ready("baseline", "baseline", folder, runs=5)


@pytest.mark.slow
def test_a_comparison_on_the_same_units_says_that_it_is_about_these_alone(tmp_path: Path) -> None:
    found = run(ready("baseline", '{"x": 1.0}', quadratic(tmp_path / "quad"), runs=None))
    assert found["units"] == "same" and "this is about these units" in found["words"]


def said(a: list[Score], b: list[Score], deterministic: bool = False) -> tuple[str, str]:
    """The verdict and the sentence after one group of runs."""
    groups = [tuple([score.utility for score in arm if score.n] for arm in (a, b))]
    found = difference(groups, [0.025], deterministic)  # type: ignore[arg-type]
    judgement = verdict(found, a, b, 0.05)
    return judgement, sentence(found, judgement, ("tuned", "default"), a, b, "fresh")


@pytest.mark.parametrize(
    ("a", "b", "judgement", "words"),
    [
        ((1.0, 3.0), (2.0, 2.5), "not shown", "no difference shown: B is ahead by 0.25"),
        ((1.0, 3.0), (3.0, 1.0), "not shown", "no difference shown: both have the same mean"),
        ((10.0, 10.2, 10.1, 10.3), (1.0, 1.1, 1.2, 0.9), "better", "A is better by 9.1, at least "),
        ((1.0, 1.1, 1.2), (10.0, 10.2, 10.1, 10.3, 10.2), "worse", "B is better by "),
        ((10.0, 10.2), (1.0, 1.1), "not shown", "no difference shown: A is ahead by 9.05 (2 v 2 fresh runs"),
    ],
)
def test_the_words_name_who_is_ahead_and_whether_that_shows(
    a: tuple[float, ...], b: tuple[float, ...], judgement: str, words: str
) -> None:
    found = said(scores(*a), scores(*b))
    assert found[0] == judgement and found[1].startswith(words)
    assert ("beats" in found[1]) == (judgement != "not shown")


def test_where_runs_do_not_differ_that_proves_something_only_if_nothing_is_random() -> None:
    first, second = scores(1.0, 1.0), scores(2.0, 2.0)
    assert said(first, second, deterministic=True)[0] == "worse"
    assert said(first, second)[0] == "not shown"


def test_a_smaller_loss_is_better_and_the_bound_is_of_what_is_better() -> None:
    a, b = (scores(*values, higher_is_better=False) for values in ((10.0, 10.2, 10.1, 10.3), (1.0, 1.1, 1.2, 0.9)))
    judgement, words = said(a, b)
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


def test_a_side_with_a_crashed_run_is_told_and_not_shown_to_be_better() -> None:
    a, b = scores(1.0, None, 1.2, 1.1, 1.0, 1.2), scores(5.0, 5.1, 5.2, 5.1)
    assert said(a, b)[0] == "worse" and "1 of 6 runs of A crashed (exited with status 3): it is" in said(a, b)[1]
    assert said(b, a)[0] == "better"
    assert said(scores(5.0, 5.1, None, 5.2, 5.1), scores(1.0, 1.1, 1.2))[0] == "not shown"


@pytest.mark.slow
def test_a_side_without_a_score_is_told_with_the_reason_and_ends_with_1(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n")
    done = nightshift("compare", "baseline", "baseline", "--on", str(folder), "--runs", "4", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["gain"], found["low"], found["p"], found["a"]["score"]) == (None, None, None, None)
    assert "nothing to compare: no run of A has a score: exited with status 1" in found["words"]
    assert len(found["runs"]) < 8, "further runs would crash like the first two"


def test_a_program_that_ignores_its_seed_is_found_out(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy", DRAW.replace('config["seed"]', "1"))
    found = run(ready("baseline", '{"x": 1}', folder))
    assert found["verdict"] == "not shown" and "ignores its seed" in found["words"]
    assert len(found["runs"]) < 8, "all that follow are one and the same run"


def test_where_nothing_is_drawn_at_random_two_runs_are_enough(tmp_path: Path) -> None:
    found = run(ready("baseline", '{"x": 1.0}', quadratic(tmp_path / "quad"), runs=None))
    assert (len(found["runs"]), found["gain"], found["p"]) == (4, -2.25, 0.0)


def test_parameters_and_edits_are_taken_from_files(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    (tmp_path / "good.json").write_text('{"x": 2.5}')
    (tmp_path / "good.diff").write_text(BETTER)
    (tmp_path / "good.patch").write_text(BETTER)
    match = ready(str(tmp_path / "good.json"), str(tmp_path / "good.diff"), folder)
    assert params(match) == [{"x": 2.5}, {"x": 0.0}] and edited(match) == [False, True]
    assert "B is better by " in run(match)["words"]
    assert program(match, "a") == DRAW and "bonus = 50.0" in program(match, "b")
    patched = ready("baseline", str(tmp_path / "good.patch"), folder)
    assert patched.declared.arms[1].proposal.edit == match.declared.arms[1].proposal.edit


@pytest.mark.slow
def test_a_campaign_gives_its_champion_its_baseline_and_each_trial_with_its_program(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    for values, edit, kind in (({}, None, "keep"), ({"x": 3.0}, BETTER, "keep"), ({"x": 5.0}, None, "discard")):
        settled(ledger, values, edit, kind)
    noisy(tmp_path / "noisy", "changed meanwhile\n")
    champion = ready("night", "night/baseline")
    assert params(champion) == [{"x": 3.0}, {"x": 0.0}] and edited(champion) == [True, False]
    again = ready("night/champion", "night/2")
    assert again.declared.arms[0].proposal.edit == champion.declared.arms[0].proposal.edit
    assert params(again)[1] == {"x": 5.0} and edited(again) == [True, False]
    assert certified_campaign([parse("a", "night"), parse("b", "night/baseline")], None) == "night"
    assert certified_campaign([parse("a", "night/2"), parse("b", "night/baseline")], None) is None
    plain = ready("night/0", '{"x": 9}')
    assert params(plain) == [{"x": 0.0}, {"x": 9.0}] and edited(plain) == [False, False]
    file_trees.remove(ledger.place(1).workspace)  # as prune may do
    found = run(champion)
    assert "A is better by " in found["words"] and found["environment"] == "noisy"
    assert "bonus = 50.0" in program(champion, "a")
    assert program(champion, "b") == DRAW, "the baseline is the campaign's, as it was frozen"


def test_a_comparison_in_a_campaign_keeps_what_was_set_when_it_is_opened_again(tmp_path: Path) -> None:
    settled(campaign(noisy(tmp_path / "noisy"), budget_seconds=4), {})
    match = ready("night/0", '{"x": 9}')
    assert opened(match.stage.folder, "auto", True).stage.environment.budget_seconds == 4


def test_a_trial_can_be_taken_to_another_environment(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    settled(ledger, {})
    settled(ledger, {"x": 3.0}, BETTER)
    other = noisy(tmp_path / "other", toml=TOML.replace("budget_seconds = 5", "budget_seconds = 4"))
    match = ready("night", "baseline", other)
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
        prepare(sides, None, (4, 4), ["budget_seconds=4"], 1, "auto", allow_unsandboxed=False)
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
        prepare(sides, on, (4, 4), [], 1, "none", allow_unsandboxed=False)
    assert prepare(sides, on, (4, 4), [], 1, "none", allow_unsandboxed=True).stage.isolation.level == "none"


def test_fewer_runs_than_can_show_anything_are_refused_before_one_is_made(tmp_path: Path, home: Path) -> None:
    done = nightshift("compare", "baseline", "baseline", "--runs", "3", "--on", str(noisy(tmp_path / "noisy")))
    assert done.returncode == 2 and "so few runs cannot show a difference" in done.stderr
    assert not list(home.glob(".comparisons/*/*/trials/*"))


@pytest.mark.slow
def test_the_command_tells_each_run_and_then_who_is_better(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {"x": 50.0})
    done = nightshift("compare", "night", '{"x": -50}', "--runs", "4", "--set", "budget_seconds=4", "--on", str(folder))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["A: night", 'B: {"x": -50}'] and lines[2].startswith("8 fresh runs in noisy, of 4 s at most")
    assert sorted(line[:3] for line in lines[3:11]) == [f"{arm} {n}" for arm in "AB" for n in (1, 2, 3, 4)]
    assert lines[14].startswith("A is better by ")
    assert lines[-1] == f"see {home / '.comparisons/noisy/0001/comparison.png'}"


@pytest.mark.slow
def test_with_json_there_is_one_document_and_nothing_else(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    arguments = ("compare", "baseline", '{"x": 90}', "--runs", "4", "--on", str(folder), "--json", "--seed", "3")
    done = nightshift(*arguments)
    assert (done.returncode, done.stderr) == (3, "")
    found = json.loads(done.stdout)
    assert found.keys() == {
        "a", "b", "environment", "metric", "direction", "seed", "runs", "gain", "low", "high", "p", "units", "words",
        "level", "verdict", "directory",
    }  # fmt: skip
    assert found["gain"] == pytest.approx(found["a"]["score"] - found["b"]["score"])
    assert found["runs"][0].keys() == {
        "arm", "number", "seed", "score", "se", "n", "seconds", "error", "directory",
    }  # fmt: skip
    assert found == json.loads((home / ".comparisons/noisy/0001/comparison.json").read_text())
    assert found["words"].startswith("B is better by ")


def test_the_same_comparison_goes_on_and_more_runs_are_added_under_what_is_left_of_the_error(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    match = ready("baseline", '{"x": 0.5}', folder, seed=None)
    first = run(match)
    again = ready("baseline", '{"x": 0.5}', folder, seed=None)
    assert again.stage.folder == match.stage.folder and again.missing == []
    more = with_more(again, (4, 4))
    assert more.declared.levels[0] < more.declared.levels[1] < LEVEL
    found = run(more)
    assert len(found["runs"]) == 16 and found["runs"][:8] == first["runs"]
    assert (found["level"] > first["level"]) and opened(match.stage.folder, "auto", True).declared == more.declared


def test_so_few_runs_that_none_could_show_a_difference_are_refused() -> None:
    empty = Declaration("", {}, ("", ""), (None, None), "", 0, 0, (), ())  # type: ignore[arg-type]
    assert empty.with_more((5, 3), deterministic=False).groups == ((5, 3),)
    for counts, deterministic in (((3, 3), False), ((1, 1), True)):
        with pytest.raises(Refused, match="so few runs cannot show a difference"):
            empty.with_more(counts, deterministic)
