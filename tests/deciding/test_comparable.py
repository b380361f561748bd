"""Another machine: what ran elsewhere is compared with nothing that runs here, until it has run here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from environments import Environment
from environments.metric_guards import Guard
from environments.plugins import Refused
from environments.score import Score
from flows.rerun import check
from flows.views.status import document
from flows.views.tables import campaign_table
from tasks.decide import decide, weigh
from tasks.deciding.champion_estimate import champion_estimate, reference
from tasks.deciding.comparable import STRAYS, comparable, compared
from tasks.deciding.values import Again, JudgedTrial
from tasks.record import reconcile, settle
from tasks.rules import Rule
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.rules.race import Race
from tasks.store import ledger as ledgers
from tasks.store import workspace
from tasks.store.ledger import Ledger, machine
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict, best, machine_of, measured
from tests.support.histories import scored, tried
from tests.support.ledgers import created
from tests.support.toy import nightshift, quadratic, status

BEFORE, NOW = "linux-x86_64-8cpu", "linux-x86_64-64cpu-2x-nvidia-a100"
PLAIN = cast(Environment, SimpleNamespace(guards={}, allow_untrained=True))


def of(machine: str, trial: Trial) -> Trial:
    """A trial of a machine, its reruns too."""
    reruns = tuple(replace(one, run=replace(one.run, machine=machine)) for one in trial.reruns)
    return replace(trial, runs=tuple(replace(run, machine=machine) for run in trial.runs), reruns=reruns)


def night(machine: str = BEFORE) -> History:
    """Three runs of a baseline near 100, a champion at 130, and one that was worse."""
    history: History = (of(machine, tried((), 99.0, 100.0, 101.0, kind="keep")),)
    history += (of(machine, tried(history, 130.0, kind="keep")),)
    return (*history, of(machine, tried(history, 90.0, kind="discard")))


def came(history: History, value: float, machine: str = NOW) -> JudgedTrial:
    """A trial that has just been judged."""
    number = len(history)
    run = Run(f"trials/{number:04d}", number, 5.0, "finished", machine=machine)
    return JudgedTrial(number, Proposal({"lr": 0.5}), (run,), scored(value))


def again(one: JudgedTrial, number: int, value: float | None, machine: str = NOW) -> JudgedTrial:
    """The same, with a rerun more."""
    run = Run(f"trials/{one.number:04d}-again", 1, 5.0, "finished", machine=machine)
    return replace(one, reruns=(*one.reruns, Rerun(number, run, scored(value))))


def asked(
    history: History, one: JudgedTrial, values: dict[int, Sequence[float | None]], rule: Rule
) -> tuple[JudgedTrial, list[int]]:
    """What is asked before the verdict, answered with these scores by trial; the trial with them, and the questions."""
    left = {number: list(some) for number, some in values.items()}
    questions = []
    while isinstance(wanted := weigh(history, PLAIN, rule, one), Again):
        questions.append(wanted.of)
        one = again(one, wanted.of, left[wanted.of].pop(0), one.runs[-1].machine)
    assert isinstance(wanted, Verdict)
    return one, questions


def decided(history: History, one: JudgedTrial, rule: Rule) -> History:
    """The history with a trial that has nothing left to be asked."""
    verdict = weigh(history, PLAIN, rule, one)
    assert isinstance(verdict, Verdict), verdict
    made = Trial(one.number, 1, len(history), one.proposal, one.runs, one.score, verdict, 5.0, one.reruns)
    return (*history, made)


HERE: dict[int, Sequence[float | None]] = {0: (205.0, 200.0, 195.0), 1: (231.0,)}
"""What the baseline and the champion have on a faster machine."""


@pytest.mark.parametrize("rule", [Certify(), Greedy()])
def test_the_first_score_of_another_machine_has_the_baseline_and_the_champion_measured_there(rule: Rule) -> None:
    history = night()
    one, questions = asked(history, came(history, 210.0), HERE, rule)
    assert questions == [0, 0, 0, 1]
    verdict = weigh(history, PLAIN, rule, one)
    assert isinstance(verdict, Verdict) and verdict.kind == "discard", "210 beats every score of before, none of here"
    assert verdict.evidence["champion"] == 231.0 and verdict.evidence["champion_trial"] == 1


def test_once_they_are_measured_nothing_is_asked_again() -> None:
    history, rule = night(), Certify()
    one, _ = asked(history, came(history, 210.0), HERE, rule)
    history = decided(history, one, rule)
    two, questions = asked(history, came(history, 260.0), {}, rule)
    assert questions == []
    history = decided(history, two, rule)
    assert best(history) == history[-1], "260 beats the 231 of here"
    assert [score.value for score in measured(history, 0)] == [205.0, 200.0, 195.0]
    assert [score.value for score in measured(history, 1)] == [231.0]
    first, level = reference(history), champion_estimate(history)
    assert first is not None and first.score.value == 200.0
    assert level is not None and level.level > 200


def test_a_history_of_one_machine_and_one_of_before_machines_were_noted_are_seen_whole() -> None:
    for history in (night(), night("")):
        assert comparable(history, history[-1].runs[0].machine) is history
        assert asked(history, came(history, 95.0, BEFORE), {}, Certify())[1] == []
    mixed = (*night(""), of(NOW, tried(night(""), 95.0, kind="discard")))
    assert comparable(mixed, NOW) is mixed


def test_a_machine_that_comes_back_goes_on_with_its_own_scores() -> None:
    rule, history = Certify(), night()
    one, _ = asked(history, came(history, 260.0), HERE, rule)
    history = decided(history, one, rule)  # trial 3 is the champion, and ran on the other machine alone
    back, questions = asked(history, came(history, 120.0, BEFORE), {3: (150.0,)}, rule)
    verdict = weigh(history, PLAIN, rule, back)
    assert questions == [3]
    assert isinstance(verdict, Verdict) and verdict.evidence["champion"] == 150.0
    seen = comparable(decided(history, back, rule), BEFORE)
    assert [(trial.number, trial.score.value) for trial in seen] == [
        (0, 100.0),
        (1, 130.0),
        (2, 90.0),
        (3, 150.0),
        (4, 120.0),
    ]
    assert all(not trial.reruns for trial in seen)


def test_a_champion_that_does_not_run_here_leaves_the_bar_to_the_one_before() -> None:
    history, rule = night(), Greedy()
    one, questions = asked(history, came(history, 210.0), {**HERE, 1: (None,)}, rule)
    assert questions == [0, 0, 0, 1]
    verdict = weigh(history, PLAIN, rule, one)
    assert isinstance(verdict, Verdict) and verdict.kind == "keep" and verdict.evidence["champion_trial"] == 0
    history = decided(history, one, rule)
    assert asked(history, came(history, 205.0), {}, rule)[1] == [], "nor is it asked for by the next one"


def test_where_nothing_of_before_runs_the_first_score_begins_anew() -> None:
    history, rule = night(), Certify()
    one, questions = asked(history, came(history, 10.0), {0: (None,), 1: (None,)}, rule)
    assert questions == [0, 1]
    history = decided(history, one, rule)
    assert best(history) == history[-1] and history[-1].verdict.reason == "the first trial with a score"
    assert [trial.number for trial in comparable(history, NOW) if trial.score.value is not None] == [3]


def test_race_measures_trial_and_champion_where_the_trial_ran() -> None:
    history, rule = night(), Race(most=2)
    one, questions = asked(history, came(history, 262.0), {**HERE, 1: (231.0, 229.0, 230.0), 3: (259.0, 262.0)}, rule)
    assert questions[:4] == [0, 0, 0, 1] and set(questions[4:]) == {1, 3}
    verdict = weigh(history, PLAIN, rule, one)
    assert isinstance(verdict, Verdict) and verdict.kind == "keep" and verdict.level == "confirmed"


def test_a_trial_whose_reruns_land_elsewhere_is_given_up() -> None:
    history, rule = night(), Certify()
    one = came(history, 210.0)
    for _ in range(STRAYS):
        assert isinstance(weigh(history, PLAIN, rule, one), Again)
        one = again(one, 0, 100.0, BEFORE)
    verdict = weigh(history, PLAIN, rule, one)
    assert isinstance(verdict, Verdict) and verdict.kind == "discard" and "another machine" in verdict.reason


def test_a_crash_on_another_machine_asks_for_nothing() -> None:
    history = night()
    crashed = replace(came(history, 0.0), score=scored(None))
    verdict = weigh(history, PLAIN, Certify(), crashed)
    assert isinstance(verdict, Verdict) and verdict.kind == "crash"
    level = champion_estimate(decided(history, crashed, Certify()))
    assert level is not None and level.level > 100, "and where the campaign stands is still what is known of it"


def test_a_run_of_the_baseline_that_crashed_on_a_machine_is_no_score_of_it_there() -> None:
    """It was the last one, in a work pool with two kinds of machines."""
    two = of(BEFORE, tried((), 99.0, 101.0, kind="keep"))
    crash = Run("trials/0000-run-3", 3, 5.0, "crash", machine=NOW)
    score = Score.over([*two.score.each, scored(None)], fewest=2)
    history: History = (replace(two, runs=(*two.runs, crash), score=score),)
    assert machine_of(history) == BEFORE and champion_estimate(history) is not None
    one, questions = asked(history, came(history, 90.0), {0: (205.0, 200.0, 195.0)}, Certify())
    assert questions == [0, 0, 0], "else the first trial there would be kept, whatever it scores"
    verdict = weigh(history, PLAIN, Certify(), one)
    assert isinstance(verdict, Verdict) and verdict.kind == "discard"


def test_guards_compare_with_the_baseline_of_here() -> None:
    guarded = cast(Environment, SimpleNamespace(guards={"safe": Guard(margin=1.0)}, allow_untrained=True))
    history = night()
    first = replace(history[0], score=replace(history[0].score, also={"safe": 50.0}))
    one = replace(came(history, 300.0), score=replace(scored(300.0), also={"safe": 20.0}))
    for number, values in HERE.items():
        for value in values:
            one = again(one, number, value)
    one = replace(one, reruns=tuple(replace(r, score=replace(r.score, also={"safe": 20.5})) for r in one.reruns))
    verdict = weigh((first, *history[1:]), guarded, Certify(), one)
    assert isinstance(verdict, Verdict) and verdict.kind == "keep", verdict


def test_the_verdict_is_the_same_however_often_it_is_asked_for() -> None:
    history, rule = night(), Certify()
    one, _ = asked(history, came(history, 210.0), HERE, rule)
    assert decide.fn.__wrapped__(None, history, PLAIN, rule, one) == weigh(history, PLAIN, rule, one)  # type: ignore[arg-type]
    seen, left = compared(history, one)
    assert left.reruns == () and [trial.number for trial in seen] == [0, 1]
    assert compared(seen, left) == (seen, left)


def test_the_ledger_marks_what_no_longer_compares(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    history = reconcile(ledger)
    for trial in night():
        history = (*history, recorded(ledger, history, trial))
    assert [line["comparable"] for line in lines(ledger)] == ["yes"] * 3
    rule = Certify()
    one, _ = asked(history, came(history, 210.0), HERE, rule)
    recorded(ledger, history, decided(history, one, rule)[-1])
    marks = [(line["comparable"], line["machine"]) for line in lines(ledger)]
    assert marks == [("no", BEFORE)] * 3 + [("yes", NOW)]
    told = [event for event in ledger.events() if event["event"] == "machine"]
    assert [(event["before"], event["now"], event["not_comparable"]) for event in told] == [(BEFORE, NOW, 3)]
    reconcile(ledger)
    assert [line["comparable"] for line in lines(ledger)] == ["no"] * 3 + ["yes"]
    status = document(ledger)
    assert [row["comparable"] for row in status["trials"]] == [False, False, False, True]
    assert (status["baseline"]["score"], status["champion"]["score"], status["machine"]) == (200.0, 231.0, NOW)


def recorded(ledger: Ledger, history: History, trial: Trial) -> Trial:
    ledger.place(trial.number).workspace.mkdir(parents=True)
    return settle(ledger, history, trial)


def lines(ledger: Ledger) -> list[dict[str, str]]:
    """results.tsv."""
    names, *rows = [line.split("\t") for line in (ledger.path / "results.tsv").read_text().splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_table_marks_them_too(tmp_path: Path) -> None:
    from rich.console import Console

    ledger, history = created(tmp_path), night()
    reconcile(ledger)
    for index, trial in enumerate((*history, of(NOW, tried(history, 210.0, kind="keep")))):
        recorded(ledger, history[:index], trial)
    console = Console(width=110, file=StringIO())
    console.print(campaign_table(document(ledger), console))
    text = cast(StringIO, console.file).getvalue()
    assert text.count("elsewhere") == 3 + 1 and "does not compare" in text, text


def test_a_trial_of_another_machine_is_not_run_again_here(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    check(ledger, night(""), 1)
    check(ledger, night(machine()), 1)
    with pytest.raises(Refused, match=f"{BEFORE}.*{machine()}"):
        check(ledger, night(), 1)


def test_a_run_says_where_it_ran_and_an_older_one_nothing() -> None:
    trial = of(machine(), tried((), 1.0))
    assert workspace.TRIAL.validate_json(workspace.TRIAL.dump_json(trial)) == trial
    older = workspace.TRIAL.dump_json(tried((), 1.0)).replace(b',"machine":""', b"")
    assert b"machine" not in older and machine_of((workspace.TRIAL.validate_json(older),)) == ""


def test_the_name_of_a_machine_tells_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = machine()
    card = "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 152\nGPU UUID: \t GPU-1\n"
    monkeypatch.setattr(ledgers, "_graphics", lambda: [card, card])
    machine.cache_clear()
    try:
        assert machine() == f"{plain}-2x-nvidia-a100-sxm4-80gb"
    finally:
        machine.cache_clear()


ELSEWHERE = """
import sys, tasks.store.ledger
tasks.store.ledger.machine = lambda: "another-machine"
sys.argv = ["nightshift", *sys.argv[1:]]
from flows.cli import main
main()
"""
"""The command on a machine of another name."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_campaign_that_is_resumed_on_another_machine_measures_its_champion_there(tmp_path: Path, server: str) -> None:
    environment = quadratic(tmp_path / "quad")
    asked = ("--name", "c", "--proposer", "random_search", "--tracking", "off", "--seed", "1", "--cancel", "none")
    begun = nightshift("run", str(environment), "--trials", "3", *asked, server=server)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    before = status("c")
    moved = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, "resume", "c", "--trials", "5"],
        env={**os.environ, "PREFECT_API_URL": server}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert "elsewhere" in moved.stdout
    found = status("c")
    champion, trials = before["champion"]["trial"], found["trials"]
    assert [row["comparable"] for row in trials] == [False] * 4 + [True] * 2
    assert found["machine"] == "another-machine"
    again = [rerun["of"] for rerun in trials[4]["reruns"]]
    assert again[:2] == [0, 0] and set(again) == {0, champion} and not trials[5]["reruns"]
    assert found["baseline"]["score"] == before["baseline"]["score"], "the program is the same, and deterministic"
