"""Trust: for which folders and spec files a person has granted what they need (flows/spec/permissions.py).

The grants are in one file of the home, as the sentences that were shown. A grant holds for its folder and for all
sentences of one question together, so for fewer of them as well. Environments that come with Nightshift need none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

import environments
from environments import Environment
from environments.plugins import Refused
from flows.spec import permissions
from flows.spec.permissions import Permissions, printable
from tasks.system.files import write_atomic
from tasks.system.home import home

FILE = ".trusted.json"
GRANTS = TypeAdapter(dict[str, list[list[str]]])
"""The sets of permissions that were granted together, by folder or spec file."""


def needed(environment: Environment) -> Permissions:
    """What an environment needs a person for; nothing where it comes with Nightshift. Raises Refused, as in `of`."""
    return () if environments.is_bundled(environment.folder) else permissions.of(environment)


def require(environment: Environment) -> None:
    """Refuse an environment that needs what nobody has granted."""
    need = needed(environment)
    if not is_granted(environment.folder, need):
        raise refusal(environment.folder, need)


def is_granted(subject: Path, need: Permissions) -> bool:
    """Whether somebody has granted all of that, for this folder or spec file."""
    return not need or any(set(need) <= set(granted) for granted in _grants().get(_key(subject), []))


def grant(subject: Path, need: Permissions) -> None:
    """Remember that all of that was granted."""
    with FileLock(home() / f"{FILE}.lock"):
        grants = _grants()
        grants.setdefault(_key(subject), []).append(sorted(need))
        write_atomic(home() / FILE, json.dumps(grants, indent=2) + "\n")


def refusal(subject: Path, need: Permissions) -> Refused:
    """What is needed, and how to grant it."""
    return Refused(
        f"{printable(str(subject))} needs more than an environment has by itself: {'; '.join(need)}. Nothing was "
        "started. Look through it, and if you agree, say so once with --trust (for a deployment: `nightshift env "
        "validate FOLDER --trust`)"
    )


def _key(subject: Path) -> str:
    return printable(os.path.realpath(subject))


def _grants() -> dict[str, list[list[str]]]:
    path = home() / FILE
    try:
        return GRANTS.validate_json(path.read_bytes()) if path.is_file() else {}
    except ValidationError as broken:
        raise Refused(f"{path} cannot be read: remove it, and grant again what you trust") from broken
