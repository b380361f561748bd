"""Trust: for which folders and spec files a person has said yes to what they ask for (flows/spec/wishes.py).

The answers are in one file of the home, readable by its owner alone, as the sentences that were shown. A yes holds for
its folder and for all sentences of one question together, so for fewer of them as well; anything new is asked again.
Environments that come with Nightshift are never asked about. A campaign whose environment is frozen was asked about at
its start, and is not asked again.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

import environments
from environments import Environment
from environments.plugins import Refused
from flows.spec import wishes
from flows.spec.wishes import Wishes, shown
from tasks.system.home import home

FILE = ".trusted.json"
ANSWERS = TypeAdapter(dict[str, list[list[str]]])
"""The sets of wishes that were agreed to, by folder or spec file."""


def asked_by(environment: Environment) -> Wishes:
    """What an environment asks a person for; nothing where it comes with Nightshift. Raises Refused, as `wishes.of`."""
    return () if environments.is_bundled(environment.folder) else wishes.of(environment)


def require(environment: Environment) -> None:
    """Refuse an environment that asks for what nobody has agreed to."""
    asked = asked_by(environment)
    if not is_agreed(environment.folder, asked):
        raise refusal(environment.folder, asked)


def is_agreed(subject: Path, asked: Wishes) -> bool:
    """Whether somebody has said yes to all of that, for this folder or spec file."""
    return not asked or any(set(asked) <= set(agreed) for agreed in _read().get(_key(subject), []))


def agree(subject: Path, asked: Wishes) -> None:
    """Remember a yes."""
    with FileLock(home() / f"{FILE}.lock"):
        answers = _read()
        kept = [agreed for agreed in answers.get(_key(subject), []) if not set(agreed) <= set(asked)]
        answers[_key(subject)] = [*kept, sorted(asked)]
        temporary = home() / f"{FILE}.{secrets.token_hex(4)}"
        private = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(private, "w") as file:
            file.write(json.dumps(answers, indent=2) + "\n")
        temporary.replace(home() / FILE)


def refusal(subject: Path, asked: Wishes) -> Refused:
    """What is asked for, and how to say yes."""
    validate = f" (for a deployment: `nightshift env validate {shlex.quote(shown(str(subject)))} --trust`)"
    return Refused(
        f"{shown(str(subject))} asks for more than an environment has by itself: {'; '.join(asked)}. Nothing was "
        f"started. Look through it, and if you agree, say so once with --trust{validate if subject.is_dir() else ''}"
    )


def _key(subject: Path) -> str:
    return shown(os.path.realpath(subject))


def _read() -> dict[str, list[list[str]]]:
    path = home() / FILE
    try:
        return ANSWERS.validate_json(path.read_bytes()) if path.is_file() else {}
    except ValidationError as broken:
        raise Refused(f"{path} cannot be read: remove it, and say yes again to what you trust") from broken
