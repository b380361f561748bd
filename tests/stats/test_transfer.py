"""A champion in another environment: its changes are laid over that environment's own baseline."""

from __future__ import annotations

import pytest

from environments import Environment
from environments.plugins import Refused
from environments.space import Choice, Float
from tasks.stats.transfer import arms_there
from tests.support.histories import tried, undemanding

FIRST = tried((), 1.0, params={"lr": 0.1, "size": 8, "only_here": 1.0, "same": 3})


def there(**fixed: float) -> Environment:
    space = {
        "lr": Float(type="float", low=0.0, high=1.0, default=0.5),
        "size": Choice(type="choice", values=(16, 32), default=16),
        "same": Choice(type="choice", values=(3, 4), default=4),
    }
    own = {name: parameter for name, parameter in space.items() if name not in fixed}
    return undemanding().model_copy(update={"name": "there", "space": own, "fixed": fixed})


def test_what_the_champion_changed_replaces_the_defaults_there_and_the_rest_stays_theirs() -> None:
    champion = tried((FIRST,), 2.0, params={"lr": 0.2, "size": 32, "only_here": 2.0, "same": 3})
    arms = arms_there(champion, FIRST, there())
    assert arms.baseline.params == {"lr": 0.5, "size": 16, "same": 4}
    assert arms.champion.params == {"lr": 0.2, "size": 32, "same": 4}, "it never changed `same`"
    assert arms.changed == {"lr": 0.2, "size": 32}
    assert arms.left_out == ("only_here does not exist",)
    assert arms.of("champion") is arms.champion and arms.of("baseline") is arms.baseline


def test_a_value_that_is_not_allowed_there_or_is_fixed_is_left_out_and_said() -> None:
    champion = tried((FIRST,), 2.0, params={"lr": 3.0, "size": 64, "only_here": 1.0, "same": 4})
    with pytest.raises(Refused) as refused:
        arms_there(champion, FIRST, there(size=16))
    words = str(refused.value)
    assert words.startswith("--on there: nothing that trial 1 changed can be tried there")
    assert "lr must be" in words and "size is fixed at 16" in words
