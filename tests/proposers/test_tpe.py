"""TPE: an even start, then a search that learns; what a history becomes in Optuna; never a point twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from environments.space import Choice, Space
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.store.seeds import derive
from tasks.trial import History, Params, Proposal
from tests.support.histories import decided
from tests.support.lazy import LazyModule
from tests.support.spaces import PLANE, started

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


def test_the_start_is_one_design_for_a_campaign_and_another_for_the_next() -> None:
    designs = []
    for seed in (1, 1, 2):
        history = started(PLANE, seed=seed)
        for number in range(1, 5):  # each trial with a seed of its own, which the design must not look at
            history += (decided(history, 1.0, ask(PLANE, history, seed=1000 * seed + number)),)
        designs.append([trial.proposal.params for trial in history[1:]])
    assert designs[0] == designs[1] != designs[2]


def test_the_design_goes_on_while_nothing_has_a_score() -> None:
    history = started(PLANE, score=None)
    for _ in range(5):
        history += (decided(history, None, ask(PLANE, history, startup=2)),)
    suggestion = Tpe(startup=2).propose(Brief(PLANE, history, {}, seed=1))
    assert suggestion and "Sobol" in suggestion.rationale
    assert len({repr(trial.proposal.params) for trial in history}) == 6


@pytest.mark.parametrize("space", [{}, {"only": Choice(values=(3,), default=3)}], ids=["empty", "fixed"])
def test_where_nothing_varies_there_is_nothing_to_try(space: Space) -> None:
    assert Tpe().propose(Brief(space, started(space), {}, seed=0)) is None
