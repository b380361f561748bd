"""The environment that a campaign is asked for: found, checked, and named in a form that lasts."""

from __future__ import annotations

import shlex
from pathlib import Path

import environments
from environments import FILE, Environment, plugins
from environments.plugins import Refused
from environments.space import Value
from flows.spec import trust
from tasks import evaluate, train
from tasks.cancellers import Canceller

CANCELLERS = "tasks.cancellers"


def checked_environment(reference: str, overrides: dict[str, Value]) -> Environment:
    """Load an environment, and check everything that can be checked without training.

    A Gymnasium environment is made and reset once, in this process. Refused before that if it asks for more than its
    own folder and nobody has agreed (flows/spec/trust.py).
    """
    environment = environments.named(reference, overrides)
    environment.check_files()
    trust.require(environment)
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    for name, options in environment.cancel.items():
        try:
            plugins.make(CANCELLERS, name, Canceller, options)  # type: ignore[type-abstract]
        except Refused as wrong:
            raise Refused(f"{environment.folder / FILE}: cancel: {wrong}") from wrong
    return environment


def typed(environment: Environment) -> str:
    """What names an environment in a shell: the name of a bundled one, else its folder."""
    return environment.name if environments.is_bundled(environment.folder) else shlex.quote(str(environment.folder))


def source(reference: str) -> str:
    """An environment's lasting reference: the name of a bundled one, else an absolute path."""
    return reference if reference in environments.bundled() else str(Path(reference).expanduser().resolve())
