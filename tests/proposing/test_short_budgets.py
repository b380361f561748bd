"""What is proposed where short budgets come first, and what a search learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.score import Score
from tasks import propose
from tasks.cancellers.curve import ByCurve
from tasks.decide import weigh
from tasks.deciding.champion_estimate import champion_estimate, reference, run_sd
from tasks.deciding.guards import guard_noise
from tasks.deciding.values import JudgedTrial
from tasks.propose import Nothing
from tasks.proposers import Proposer
from tasks.proposing.brief import RemainingBudget
from tasks.proposing.observations import Observations
from tasks.rules.certify import Certify
from tasks.trial import History, Params, Proposal, Run, Trial, Verdict, in_full
from tests.support.histories import decided
from tests.support.proposals import brief_of, desk_of
from tests.support.toy import QUADRATIC, quadratic

SHARE = 0.3
GRID = QUADRATIC[: QUADRATIC.index("[space.x]")] + '[space.x]\ntype = "choice"\nvalues = [1, 2, 3]\ndefault = 2\n'


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return environments.load(quadratic(tmp_path / "quad"))


def proposed(
    environment: Environment,
    history: History,
    proposer: str = "tpe",
    left: float | None = None,
    pending: Mapping[int, Proposal] | None = None,
) -> Proposal:
    found = next_one(environment, history, proposer, left, pending)
    assert isinstance(found, Proposal)
    return found


def next_one(
    environment: Environment,
    history: History,
    proposer: str = "tpe",
    left: float | None = None,
    pending: Mapping[int, Proposal] | None = None,
) -> Proposal | Nothing:
    brief = brief_of(environment, history, 10 + len(history), pending)
    brief = replace(brief, share=SHARE, left=RemainingBudget(trials=left))
    numeric = propose.load(proposer, {})
    return propose.next_proposal(desk_of(environment), numeric, numeric, brief)


def ended(environment: Environment, history: History, proposal: Proposal, value: float | None) -> History:
    """The history with a trial of this proposal; lower is better."""
    score = Score.missing("crashed", False) if value is None else Score(value, n=1, higher_is_better=False)
    run = Run(f"trials/{len(history):04d}", len(history), 1.0, "finished", reported=value, curve=(value,) * 20)
    tried = JudgedTrial(len(history), proposal, (run,), score)
    verdict = weigh(history, environment, Certify(), tried)
    assert isinstance(verdict, Verdict)
    return (*history, Trial(len(history), 1, len(history), proposal, (run,), score, verdict))


def searched(environment: Environment, proposer: str, trials: float) -> History:
    """A campaign whose short scores are a thousand times the full ones."""
    history: History = (decided((), 2.25, environment.defaults, higher_is_better=False),)
    while (left := trials - sum(trial.proposal.share for trial in history[1:])) >= 1 - 1e-6:
        proposal = proposed(environment, history, proposer, left)
        value = (float(proposal.params["x"]) - 1) ** 2
        history = ended(environment, history, proposal, 1000 * value if proposal.is_short else value)
    return history


@pytest.mark.parametrize("proposer", ["tpe", "cmaes", "random_search"])
def test_a_search_promotes_its_best_points_whatever_the_scale_of_short_scores(
    environment: Environment, proposer: str
) -> None:
    history = searched(environment, proposer, 7)
    short = [trial for trial in history if trial.proposal.is_short]
    full = [trial for trial in history[1:] if not trial.proposal.is_short]
    assert len(short) >= 10 and len(full) >= 2
    assert all(trial.verdict.kind == "discard" and "30% of the budget" in trial.verdict.reason for trial in short)
    taken: list[int] = []
    for trial in full:
        rest = [one for one in short if one.number < trial.number and one.number not in taken]
        best = max(rest, key=lambda one: one.score)
        assert (trial.proposal.promotes, trial.proposal.proposer) == (best.number, proposer)
        assert trial.proposal.params == best.proposal.params
        taken.append(best.number)
    assert len({trial.proposal.params["x"] for trial in short}) == len(short), "no point twice"
    assert history == searched(environment, proposer, 7), "a function of the history and the seeds"


def test_a_proposer_observes_short_scores_alone_and_does_not_try_the_baseline_again(environment: Environment) -> None:
    history = searched(environment, "tpe", 4)
    seen = Observations.of(environment.space, history, {})
    assert seen.decided and all(trial.proposal.is_short for trial, _ in seen.decided)
    assert seen.made == len(seen.decided)
    assert (2.5,) in seen.tried, "the baseline's point"
    promotion = proposed(environment, history[:6], left=1)
    assert promotion.promotes is not None
    assert Observations.of(environment.space, history[:6], {6: promotion}).under_way == ()


def test_where_nothing_is_left_to_try_the_best_of_the_rest_run_in_full(tmp_path: Path) -> None:
    environment = environments.load(quadratic(tmp_path / "grid", toml=GRID))
    history: History = (decided((), 1.0, environment.defaults, higher_is_better=False),)
    for value in (5.0, 4.0):
        history = ended(environment, history, proposed(environment, history, "grid"), value)
    assert [trial.proposal.share for trial in history[1:]] == [SHARE, SHARE]
    for number in (2, 1):
        one = proposed(environment, history, "grid")
        assert one.promotes == number and one.share == 1
        history = ended(environment, history, one, 0.5 * number)
    assert next_one(environment, history, "grid") == Nothing()


def test_the_last_budget_runs_a_point_in_full_even_if_none_ran_short(environment: Environment) -> None:
    history: History = (decided((), 2.25, environment.defaults, higher_is_better=False),)
    assert proposed(environment, history, left=1.0).share == 1
    assert proposed(environment, history, left=2.0).share == SHARE


def with_short(environment: Environment, history: History, *values: float) -> History:
    for value in values:
        params: Params = environment.complete({"x": 0.01 * len(history)})
        history = ended(environment, history, Proposal(params, share=SHARE, seen=len(history)), value)
    return history


def test_champion_noise_and_comparison_know_full_trials_only(environment: Environment) -> None:
    alone: History = (decided((), 2.25, environment.defaults, higher_is_better=False),)
    both = with_short(environment, alone, 1e-9, 1e-8, 0.5)
    both = (both[0], replace(both[1], score=Score.over([both[1].score, both[2].score])), *both[2:])
    assert all(trial.verdict.kind == "discard" for trial in both[1:]), "however good"
    first, second = champion_estimate(alone), champion_estimate(both)
    assert first is not None and second is not None and (first.level, first.sd) == (second.level, second.sd)
    assert reference(both) is both[0] and in_full(both) == alone
    assert run_sd(both) == 0 and guard_noise({}, both) == {}


def test_a_full_run_is_compared_with_curves_of_full_runs_only(environment: Environment) -> None:
    history: History = (decided((), 2.25, environment.defaults, higher_is_better=False),)
    history = with_short(environment, history, *[0.001] * 6)
    seen = in_full(history)
    assert ByCurve().look(seen, (5.0,) * 8, higher_is_better=False) is None


def test_a_short_trial_that_crashed_is_a_crash(environment: Environment) -> None:
    history: History = (decided((), 2.25, environment.defaults, higher_is_better=False),)
    proposal = Proposal(environment.defaults, share=SHARE)
    assert ended(environment, history, proposal, None)[-1].verdict.kind == "crash"


def test_proposers_say_whether_they_can_rank() -> None:
    can = {name: propose.load(name, {}).ranks for name in ("tpe", "cmaes", "gp", "grid", "random_search", "learned")}
    assert [name for name in can if not can[name]] == ["learned"]
    assert not Proposer.ranks
