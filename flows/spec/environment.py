"""The environment that a campaign is asked for: found, checked, and named in a form that lasts."""

from __future__ import annotations

from pathlib import Path

import environments
from environments import Environment
from environments.space import Value
from tasks import evaluate, train


def checked_environment(reference: str, overrides: dict[str, Value]) -> Environment:
    """Load an environment and check everything that can be checked without running it."""
    environment = environments.named(reference, overrides)
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    return environment


def source(reference: str) -> str:
    """An environment's lasting reference: the name of a bundled one, else an absolute path."""
    return reference if reference in environments.bundled() else str(Path(reference).expanduser().resolve())
