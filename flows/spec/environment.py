"""The environment that a campaign is asked for, checked as far as it can be without training."""

from __future__ import annotations

import environments
from environments import FILE, Environment
from environments.plugins import Refused
from environments.space import Value
from flows.spec import permissions
from tasks import evaluate, train
from tasks.store.workspace import baseline_files
from tasks.system.redact import capped


def checked_environment(reference: str, overrides: dict[str, Value], trust: bool = False) -> Environment:
    """Load an environment, and check everything that can be checked without training.

    A Gymnasium environment is made and reset once. Refused before that if it asks for more than its own folder and
    nobody has agreed (flows/spec/permissions.py). (trust: agrees)
    """
    environment = environments.named(reference, overrides)
    environment.check_files()
    permissions.require(environment, trust)
    check(environment)
    return environment


def check(environment: Environment) -> None:
    """Refuse an environment whose judge or program cannot be started."""
    environment.check()
    train.check(environment)
    evaluate.check(environment)


def check_editable(environment: Environment) -> None:
    """Refuse a program of which no file may be edited: edits would make files that nothing runs."""
    files = [name for _, name in baseline_files(environment)]  # none of one that is trained elsewhere
    if files and not {*files} & {*environment.editable}:
        raise Refused(
            f"{environment.folder / FILE}: editable = {list(environment.editable)}, and none of these is a file of its "
            f"program ({capped(', '.join(files), 200)}): list those that a proposer may change"
        )
