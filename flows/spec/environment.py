"""The environment that a campaign is asked for, checked as far as it can be without training."""

from __future__ import annotations

from environments import Environment
from environments.space import Value
from flows.spec import permissions
from tasks import evaluate, imports, train


def checked_environment(
    reference: str, overrides: dict[str, Value], trust: bool = False, here: bool = True
) -> Environment:
    """Load an environment, and check everything that can be checked without training.

    A Gymnasium environment is made and reset once. Refused before that if it asks for more than its own folder and
    nobody has agreed (flows/spec/permissions.py). (trust: agrees; here: its programs are started on this machine)
    """
    environment = permissions.require_named(reference, overrides, trust)
    check(environment, here)
    return environment


def check(environment: Environment, here: bool = True) -> None:
    """Refuse an environment whose judge or program cannot be started."""
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    if here:
        imports.check_commands(environment)
