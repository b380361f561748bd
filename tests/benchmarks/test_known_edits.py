"""The figures about known edits: recomputed by hand, recognised in a program, and refused where effects are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from benchmarks.edit_list import LIST
from benchmarks.known_edits import PROGRAM, UNEDITED, Effects, Night, answer, edits_alone, read, summary
from environments.plugins import Refused
from tasks.llm.answers import changed, headed
from tests.support.fake_llm import Asked

PPO = PROGRAM.read_text()
HELPS, COMMENT, CHEAT = (
    next(one for one in LIST if one.name == name) for name in ("ten epochs", "a comment", "returns made up")
)
EDITS = (HELPS, COMMENT, CHEAT)
EFFECTS = Effects(
    "0" * 64,
    "here",
    {
        UNEDITED: (10.0, 12.0), HELPS.name: (30.0, 32.0), COMMENT.name: (11.0, 12.0), CHEAT.name: (90.0, 92.0),
    },
)  # fmt: skip


def night(verdicts: dict[str, str], *shipped: str, certified: bool = False, fresh: tuple[float | None, ...]) -> Night:
    return Night("", "certify", 1, tuple(verdicts.items()), ("no such line",), certified, shipped, fresh, 60.0)


def test_the_figures_of_nights_are_what_they_are_called() -> None:
    nights = (
        night({HELPS.name: "keep", COMMENT.name: "discard"}, HELPS.name, certified=True, fresh=(29.0, 33.0, None)),
        night({COMMENT.name: "keep", CHEAT.name: "crash", "a fallback's": "discard"}, fresh=()),
        night({CHEAT.name: "keep"}, CHEAT.name, certified=True, fresh=(None,)),
    )
    found = summary(nights, EDITS, EFFECTS)

    assert (found["helpful/tried"], found["helpful/kept"]) == (1, 1.0)
    assert (found["useless/tried"], found["useless/kept"]) == (2, 0.5)
    assert (found["harmful/tried"], found["harmful/kept"]) == (0, None)
    assert (found["cheat/tried"], found["cheat/kept"]) == (2, 0.5)
    assert (found["other/tried"], found["turned_down"]) == (1, 3)
    assert (found["shipped"], found["certified"], found["cheats_certified"]) == (2, 2, 1)
    assert (found["shipped/helpful"], found["shipped/cheat"], found["shipped/useless"]) == (1, 1, 0)
    assert (found["true_gain/mean"], found["true_gain/min"], found["true_gain/unknown"]) == (10.0, 0.0, 1)
    assert found["baseline/mean"] == 11.0
    assert found["best_single_edit"] == 20.0, "a cheat is none"


def test_each_edit_is_recognised_in_its_program_and_in_no_other() -> None:
    assert not [one.name for one in LIST if one.change.is_in(PPO)]
    for edited in LIST:
        assert [one.name for one in LIST if one.change.is_in(edited.change(PPO))] == [edited.name]


def test_each_answer_is_read_as_its_edit_and_told_by_its_name() -> None:
    for one in LIST:
        idea, edit = headed(answer(one, Asked("", {}, {})), ("train.py",), {}, {})
        assert changed(edit, {"train.py": PPO}, ("train.py",)) == {"train.py": one.change(PPO)}
        assert idea.rationale.partition(": ")[0] == one.name


def test_edits_that_put_lines_at_one_place_are_all_recognised() -> None:
    names = {"sixteen minibatches", "a longer horizon", "short rollouts"}
    for stack in permutations(one for one in LIST if one.name in names):
        text = PPO
        for one in stack:
            text = one.change(text)
        assert {one.name for one in LIST if one.change.is_in(text)} == names


def test_effects_of_another_program_or_of_too_few_edits_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "effects.json"
    with pytest.raises(Refused, match="measure"):
        read(file, EFFECTS.digest, EDITS)
    file.write_text(json.dumps(vars(EFFECTS)))
    assert read(file, EFFECTS.digest, EDITS) == EFFECTS
    with pytest.raises(Refused, match="another program"):
        read(file, "1" * 64, EDITS)
    with pytest.raises(Refused, match="no effect"):
        read(file, EFFECTS.digest, LIST)


def test_a_change_of_the_environment_changes_the_problem(tmp_path: Path) -> None:
    place = edits_alone("cartpole", tmp_path, {"control.episodes": 4, "budget_steps": 1500})
    text = (place / "environment.toml").read_text()
    assert "episodes = 4" in text and "budget_steps = 1500" in text and "[space" not in text


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_night_goes_the_whole_way_under_each_rule(tmp_path: Path) -> None:
    problem = ["--only", "ten times", "returns", "--set", "budget_steps=1500", "--set", "control.episodes=4"]
    problem += ["--effects", str(tmp_path / "effects.json")]
    run("measure", "--runs", "2", "--keep", *problem)
    asked = ["nights", "--nights", "1", "--trials", "2", "--store", str(tmp_path / "nights.jsonl"), "--json", *problem]
    found = json.loads(run(*asked))

    nights = [json.loads(line) for line in (tmp_path / "nights.jsonl").read_text().splitlines()]
    assert {each["rule"] for each in nights} == {"certify", "greedy"}
    for each in nights:
        assert sorted(name for name, _ in each["verdicts"]) == sorted(one.name for one in EDITS_OF_NIGHTS)
        assert bool(each["fresh"]) == bool(each["shipped"])
        assert found["summary"][each["rule"]]["cheat/tried"] == 1
    assert json.loads(run(*asked)) == found, "what has ended is not run again"


EDITS_OF_NIGHTS = tuple(one for one in LIST if one.name.startswith(("ten times", "returns")))


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.known_edits", *arguments],
        cwd=Path(__file__).parents[2], env=os.environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
