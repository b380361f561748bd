"""TPE: an even start, then a search that learns; what a history becomes in Optuna; never a point twice."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import environments
from environments.space import Choice, Float, Int, Space
from tasks.proposers import tpe
from tasks.proposers.random_search import RandomSearch
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.proposing.observations import Observations
from tasks.sandbox.progress import Progress
from tasks.store import workspace
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import History, Params, Proposal, Run, Trial
from tests.support.histories import decided
from tests.support.lazy import LazyModule
from tests.support.spaces import PLANE, SWITCHES, cancelled, check, defaults, distance, scores, spaces, started
from tests.support.toy import SANDBOX, quadratic

if TYPE_CHECKING:
    import optuna
else:
    optuna = LazyModule("optuna")


def ask(space: Space, history: History, pending: dict[int, Proposal] | None = None, **options: Any) -> Params:
    """What is proposed next; the seed is as the engine would draw it, or the one in the options."""
    seed = options.pop("seed", derive(0, "propose", len(history) + len(pending or {}), 1))
    suggestion = Tpe(**options).propose(Brief(space, history, pending or {}, seed))
    assert suggestion is not None
    return suggestion.params


def study_of(space: Space, history: History, pending: dict[int, Proposal] | None = None) -> optuna.Study:
    return tpe.study_of(Observations.of(space, history, pending or {}), seed=0)


def test_the_first_points_fill_the_space_more_evenly_than_chance() -> None:
    space: Space = {name: Float(low=0.0, high=1.0, default=0.5) for name in "abcd"}

    def points(seed: int, count: int) -> list[list[float]]:
        history = started(space, seed=seed)
        for _ in range(count):
            history += (decided(history, 1.0, ask(space, history, startup=count)),)
        return [[float(value) for value in trial.proposal.params.values()] for trial in history[1:]]

    from scipy.stats import qmc

    ours = [qmc.discrepancy(points(seed, 8)) for seed in range(10)]
    chance = [qmc.discrepancy(np.random.default_rng(seed).random((8, 4))) for seed in range(10)]
    assert max(ours) < np.mean(chance)
    for column in zip(*points(3, 8), strict=True):
        assert sorted(int(8 * value) for value in column) == list(range(8)), "one point in each eighth"


def test_the_start_is_one_design_for_a_campaign_and_another_for_the_next() -> None:
    designs = []
    for seed in (1, 1, 2):
        history = started(PLANE, seed=seed)
        for number in range(1, 5):  # each trial with a seed of its own, which the design must not look at
            history += (decided(history, 1.0, ask(PLANE, history, seed=1000 * seed + number)),)
        designs.append([trial.proposal.params for trial in history[1:]])
    assert designs[0] == designs[1] != designs[2]


def test_the_start_has_whole_numbers_and_choices_in_equal_shares() -> None:
    space: Space = {
        "n": Int(low=1, high=4, default=1),
        "pick": Choice(values=("a", "b", "c", "d"), default="a"),
        "x": Float(low=0.0, high=1.0, default=0.0),
    }
    history = started(space)
    for _ in range(8):
        history += (decided(history, 1.0, ask(space, history, startup=8)),)
    for name, values in (("n", [1, 2, 3, 4]), ("pick", ["a", "b", "c", "d"])):
        assert sorted(trial.proposal.params[name] for trial in history[1:]) == sorted(values * 2)


def test_the_rationale_says_which_of_both_it_was_and_what_is_to_beat() -> None:
    history, said = started(PLANE), []
    for score in (5.0, None, 113.04, 7.0, 8.0):
        suggestion = Tpe(startup=4).propose(Brief(PLANE, history, {}, seed=1))
        assert suggestion is not None
        said.append(suggestion.rationale)
        history += (decided(history, score, suggestion.params),)
    assert said[2] == "Sobol point 3 of 4"
    assert said[4] == "TPE on 4 scored trials, best 113 (trial 3)"


def test_the_design_goes_on_while_nothing_has_a_score() -> None:
    history = started(PLANE, score=None)
    for _ in range(5):
        history += (decided(history, None, ask(PLANE, history, startup=2)),)
    suggestion = Tpe(startup=2).propose(Brief(PLANE, history, {}, seed=1))
    assert suggestion and suggestion.rationale == "Sobol point 6, as no trial has a score yet"
    assert len({repr(trial.proposal.params) for trial in history}) == 6


def climb(proposer: Tpe | RandomSearch, seed: int, higher: bool) -> float:
    """How near 20 trials come to the best point, told the distance or, where higher is better, its negative."""
    sign = -1.0 if higher else 1.0
    history = started(PLANE, sign * distance(defaults(PLANE)), seed, higher)
    for number in range(1, 21):
        suggestion = proposer.propose(Brief(PLANE, history, {}, derive(seed, "propose", number, 1)))
        assert suggestion is not None
        score = sign * distance(suggestion.params)
        history += (decided(history, score, suggestion.params, higher_is_better=higher),)
    return min(distance(trial.proposal.params) for trial in history)


@pytest.mark.slow
@pytest.mark.parametrize("higher", [True, False], ids=["maximise", "minimise"])
def test_it_comes_nearer_to_the_best_point_than_random_search(higher: bool) -> None:
    ours = [climb(Tpe(), seed, higher) for seed in range(20)]
    chance = [climb(RandomSearch(), seed, higher) for seed in range(20)]
    assert np.mean(ours) < np.mean(chance) / 1.5


def test_a_history_becomes_a_study_trial_by_trial() -> None:
    history: History = started(PLANE, 3.0)
    for score in (9.0, 1.0, None, 4.0, 5.0):
        history += (decided(history, score, {"x": len(history) / 10, "y": 0.5}),)
    early, mute = cancelled(history[4], 7.9, 2.5), cancelled(history[5], 3.0, None)
    pending = {6: Proposal({"x": 0.6, "y": 0.5}), 7: Proposal({"x": 9.9, "y": 0.5})}
    study = study_of(PLANE, (*history[:4], early, mute), pending)
    told = [(trial.state, trial.params["x"], trial.value) for trial in study.trials]
    assert told[:4] == [
        (optuna.trial.TrialState.COMPLETE, -0.9, 3.0),
        (optuna.trial.TrialState.COMPLETE, 0.1, 9.0),
        (optuna.trial.TrialState.COMPLETE, 0.2, 1.0),
        (optuna.trial.TrialState.COMPLETE, 0.3, 1.0),  # a crash, as bad as the worst
    ]
    assert told[6:] == [(optuna.trial.TrialState.RUNNING, 0.6, None)]
    pruned = study.get_trials(states=(optuna.trial.TrialState.PRUNED,))
    assert [trial.intermediate_values for trial in pruned] == [{7: 2.5}, {}]
    assert study.direction.name == "MAXIMIZE"
    assert study.sampler._constant_liar  # type: ignore[attr-defined]  # else what is under way would not count


def test_a_crash_is_as_bad_as_the_worst_score_also_where_less_is_better() -> None:
    history = started(PLANE, 3.0, higher=False)
    for score in (9.0, None, 1.0):
        history += (decided(history, score, {"x": len(history) / 10, "y": 0.5}, higher_is_better=False),)
    study = study_of(PLANE, history)
    assert [trial.value for trial in study.trials] == [3.0, 9.0, 9.0, 1.0]
    assert study.direction.name == "MINIMIZE"


@pytest.mark.parametrize("outside", [{"x": 5.0}, {"y": -1.0}, {"x": "much"}, {"x": float("nan")}, {"y": None}])
def test_a_trial_outside_the_space_is_left_out_and_stops_nothing(outside: dict[str, Any]) -> None:
    params = {name: value for name, value in ({"x": 0.1, "y": 0.1} | outside).items() if value is not None}
    history = started(PLANE)
    history += (decided(history, 99.0, params),)
    assert len(study_of(PLANE, history).trials) == 1
    suggestion = Tpe(startup=1).propose(Brief(PLANE, history, {}, seed=0))
    assert suggestion and suggestion.rationale == "TPE on 1 scored trial, best 1 (trial 0)"


def test_parameters_become_the_distributions_that_they_are() -> None:
    space: Space = {
        "log": Float(low=1e-4, high=1e-2, log=True, default=1e-3),
        "plain": Float(low=-1.0, high=1.0, default=0.0),
        "count": Int(low=2, high=10, default=2),
        "size": Int(low=16, high=512, log=True, default=64),
        "ordered": Choice(values=(0.99, 0.9, 0.999), default=0.9),
        "act": Choice(values=("tanh", "relu"), default="relu"),
        "flag": Choice(values=(False, True), default=False),
        "fixed": Choice(values=("only",), default="only"),
    }
    (trial,) = study_of(space, started(space)).trials
    assert trial.distributions == {
        "log": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "plain": optuna.distributions.FloatDistribution(-1.0, 1.0),
        "count": optuna.distributions.IntDistribution(2, 10),
        "size": optuna.distributions.IntDistribution(16, 512, log=True),
        "ordered": optuna.distributions.IntDistribution(0, 2),
        "act": optuna.distributions.CategoricalDistribution((0, 1)),
        "flag": optuna.distributions.CategoricalDistribution((0, 1)),
    }
    assert (trial.params["ordered"], trial.params["act"], trial.params["flag"]) == (0, 1, 0)


def test_the_best_quarter_counts_as_good_and_25_at_most() -> None:
    assert [tpe.good_ones(trials) for trials in (1, 4, 5, 8, 9, 100, 500)] == [1, 1, 2, 2, 3, 25, 25]
    assert study_of(PLANE, started(PLANE)).sampler._gamma is tpe.good_ones  # type: ignore[attr-defined]


def test_a_small_space_is_tried_out_once_and_then_there_is_nothing_left() -> None:
    history, seen = started(SWITCHES), {repr(defaults(SWITCHES))}
    while (suggestion := Tpe().propose(Brief(SWITCHES, history, {}, seed=len(history)))) is not None:
        params = defaults(SWITCHES) | suggestion.params
        assert repr(params) not in seen
        seen.add(repr(params))
        history += (decided(history, None if len(history) % 4 == 1 else len(history) % 3, params),)
    assert len(seen) == 4 * 3


def test_what_is_under_way_is_not_left_either() -> None:
    space: Space = {"flag": Choice(values=(False, True), default=False)}
    history = started(space)
    assert ask(space, history) == {"flag": True}
    assert Tpe().propose(Brief(space, history, {1: Proposal({"flag": True})}, seed=0)) is None


@pytest.mark.parametrize("space", [{}, {"only": Choice(values=(3,), default=3)}], ids=["empty", "fixed"])
def test_where_nothing_varies_there_is_nothing_to_try(space: Space) -> None:
    assert Tpe().propose(Brief(space, started(space), {}, seed=0)) is None


def test_when_tpe_insists_on_what_was_tried_another_point_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.proposing.optuna_study.ASKS", 0)
    two = (*started(SWITCHES), _second())
    suggestion = Tpe(startup=1).propose(Brief(SWITCHES, two, {}, seed=0))
    assert suggestion and suggestion.rationale.startswith("a random point: TPE on 2 scored trials")
    assert suggestion.params not in [trial.proposal.params for trial in two]


def _second() -> Trial:
    return decided(started(SWITCHES), 2.0, {"act": "relu", "layers": 1, "fixed": 7})


def test_trials_under_way_keep_the_next_ones_away() -> None:
    crowd = {25 + n: Proposal({"x": 0.28 + n / 100, "y": 0.01}) for n in range(4)}
    alone = crowded = 0
    for seed in range(2):
        history = started(PLANE, -2.4, seed)
        for _ in range(24):
            params = ask(PLANE, history, startup=24)
            history += (decided(history, -distance(params), params),)
        alone += sum(distance(ask(PLANE, history, seed=seed)) < 0.1 for seed in range(40))
        crowded += sum(distance(ask(PLANE, history, crowd, seed=seed)) < 0.1 for seed in range(40))
    assert crowded < alone / 4


def test_it_says_nothing_and_warns_of_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    history = started(PLANE)
    for _ in range(6):  # any warning is an error in these tests
        history += (decided(history, float(len(history)), ask(PLANE, history)),)
    assert capfd.readouterr() == ("", "")


def answers() -> list[Params]:
    """Twelve proposals in a row, some of them beside pending ones."""
    history, said = started(SWITCHES | PLANE, seed=11), []
    for number in range(12):
        pending = {number + 1: Proposal(said[0])} if number % 3 == 2 else {}
        said.append(ask(SWITCHES | PLANE, history, pending))
        history += (decided(history, None if number == 5 else number % 4, defaults(SWITCHES) | said[-1]),)
    return said


@pytest.mark.slow
def test_another_process_gives_the_same_answers() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from tests.proposers.test_tpe import answers; print(json.dumps(answers()))",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == answers()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Optuna, in spaces of 10^14
@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    space=spaces,
    outcomes=st.lists(scores, max_size=6),
    higher=st.booleans(),
    startup=st.integers(1, 5),
    seed=st.integers(0, 2**31 - 1),
)
def test_whatever_happened_a_proposal_is_new_and_lies_in_the_space(
    space: Space, outcomes: list[float | str | None], higher: bool, startup: int, seed: int
) -> None:
    history = started(space, 1.0, seed, higher)
    for outcome in outcomes:
        suggestion = Tpe(startup=startup).propose(Brief(space, history, {}, seed))
        if suggestion is None:
            break
        check(space, history, suggestion)
        score = None if isinstance(outcome, str) else outcome
        trial = decided(history, score, defaults(space) | suggestion.params, higher_is_better=higher)
        history += (cancelled(trial, 3.2, None) if isinstance(outcome, str) else trial,)
    pending = {99: Proposal({name: parameter.grid(2)[-1] for name, parameter in space.items()})}
    last = Tpe(startup=startup).propose(Brief(space, history, pending, seed))
    if last is not None:
        check(space, history, last)
        assert defaults(space) | last.params != pending[99].params or True in pending[99].params.values()


def test_a_run_remembers_the_last_value_that_was_reported_of_the_metric(tmp_path: Path) -> None:
    reports = [{"ready": True}, *({"step": n, "metrics": {"loss": 9.0 - n, "entropy": 1.0}} for n in (1, 2))]
    reports += [{"step": 3, "metrics": {"entropy": 2.0}}, {"step": 4}]
    lines = "".join(json.dumps(report) + "\n" for report in reports)
    program = (
        f"import sys\nout = sys.argv[-1]\nopen(out + '/m', 'w')\nopen(out + '/progress.jsonl', 'w').write({lines!r})"
    )
    folder = quadratic(tmp_path / "env", fit=program)
    place = TrialDir(tmp_path / "trials/0000")
    run = run_program("test/1", environments.load(folder), SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)
    assert (run.status, run.steps, run.reported) == ("finished", 4, 7.0)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "true", '"7"', "null", "[1]", "1" + "0" * 400])
def test_what_is_no_finite_number_is_not_taken_for_a_value(tmp_path: Path, value: str) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(
        f'{{"step": 1, "metrics": {{"loss": 3}}}}\n{{"step": 2, "metrics": {{"loss": {value}}}}}\n{{"step": 3, "metrics": 5}}\n'
    )
    progress = Progress(path, "loss")
    progress.read()
    assert (progress.steps, progress.reported) == (3, 3.0)


def test_a_trial_stored_before_runs_had_the_value_still_loads() -> None:
    (trial,) = started(PLANE)
    stored = json.loads(workspace.TRIAL.dump_json(trial))
    del stored["runs"][0]["reported"]
    assert workspace.TRIAL.validate_python(stored) == trial
    reported = dataclasses.replace(trial, runs=(Run("trials/0000", 0, 5.0, "finished", reported=2.5),))
    assert workspace.TRIAL.validate_json(workspace.TRIAL.dump_json(reported)) == reported
