"""A campaign as the engine would run it under rule greedy, without the engine: who was champion after which trial."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import TYPE_CHECKING

from environments import Environment, plugins
from environments.score import Score
from environments.space import Choice, Int, Space
from tasks.decide import weigh
from tasks.deciding.values import JudgedTrial
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief
from tasks.rules.greedy import Greedy
from tasks.store.seeds import derive
from tasks.trial import History, Params, Proposal, Run, Trial, Verdict, best

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

PLACE = "tasks.proposers"
Ask = Callable[[History], Params]
Measure = Callable[[int, Params], tuple[Run, Score]]
"""Trial number, parameters -> how its training ended, and its score."""


def champions(ask: Ask, measure: Measure, environment: Environment, defaults: Params, trials: int) -> list[Params]:
    """The champion's parameters after the baseline, and after each of so many trials.

    Raises:
        RuntimeError: the baseline has no score.
    """
    found: list[Params] = []
    history: History = ()
    for number in range(trials + 1):
        params = {**defaults, **ask(history)} if history else defaults
        run, score = measure(number, params)
        history += (decided(history, environment, params, run, score),)
        champion = best(history)
        if champion is None:
            raise RuntimeError(f"the baseline has no score: {history[0].score.error}")
        found.append(champion.proposal.params)
    return found


def decided(history: History, environment: Environment, params: Params, run: Run, score: Score) -> Trial:
    """The trial after `history`, as the engine would write it down."""
    number, proposal = len(history), Proposal(params)
    verdict = weigh(history, environment, Greedy(), JudgedTrial(number, proposal, (run,), score))
    assert isinstance(verdict, Verdict), "nothing else is asked for under this rule"
    return Trial(number, 1, number, proposal, (run,), score, verdict)


def asker(lane: str, space: Space, repetition: int) -> Ask:
    """What a lane would try next: a proposer of ours, or Optuna as it comes."""
    if lane == "optuna":
        return _optuna(space, repetition)
    proposer = proposer_of(lane)

    def ask(history: History) -> Params:
        seed = derive(repetition, "propose", len(history), 1)
        suggestion = proposer.propose(Brief(space, history, {}, seed))
        assert suggestion is not None, "these spaces are not tried out so soon"
        return suggestion.params

    return ask


def proposer_of(lane: str) -> Proposer:
    """The proposer of a lane, which is written as its name, or as `NAME:OPTION=VALUE,OPTION=VALUE`.

    Raises:
        Refused: no such proposer, or an option that it does not take.
    """
    name, _, options = lane.partition(":")
    values = tomllib.loads(options.replace(",", "\n"))
    return plugins.make(PLACE, name, Proposer, values)  # type: ignore[type-abstract]


def _optuna(space: Space, repetition: int) -> Ask:
    """Optuna's TPE with all of its defaults, which is told the baseline too."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, BaseDistribution] = {}
    for name, parameter in space.items():
        if isinstance(parameter, Choice):
            distributions[name] = CategoricalDistribution(parameter.values)
        else:
            kind = IntDistribution if isinstance(parameter, Int) else FloatDistribution
            distributions[name] = kind(parameter.low, parameter.high, log=parameter.log)  # type: ignore[arg-type]
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=repetition))
    study.enqueue_trial({name: parameter.default for name, parameter in space.items()})
    asked = study.ask(distributions)

    def ask(history: History) -> Params:
        nonlocal asked
        value = history[-1].score.value  # a crash is told as a failure, which Optuna leaves out
        study.tell(asked, value, state=None if value is not None else optuna.trial.TrialState.FAIL)
        asked = study.ask(distributions)
        return dict(asked.params)

    return ask
