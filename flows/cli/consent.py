"""The question whether an environment or a spec file may have what it asks for (flows/spec/wishes.py).

What is asked for is always shown, on stderr. On a terminal a person is asked once; elsewhere `--trust` says yes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import environments
from environments.space import Value
from flows.spec import trust, wishes
from flows.spec.wishes import Wishes, shown
from tasks.system.home import home


def ask_about(reference: str, overrides: Mapping[str, Value], yes: bool) -> None:
    """Show what an environment asks for, and have it agreed to. Refused if it is not, or the environment is invalid.

    Args:
        overrides: Keys of environment.toml that the command or a spec lays over it.
        yes: Whether the command line says so.
    """
    environment = environments.named(reference, overrides)
    environment.check_files()
    _settle(environment.folder, trust.asked_by(environment), yes)


def ask_about_spec(asked: Mapping[str, Any], path: Path, yes: bool) -> None:
    """The same for a spec.toml, which may come with somebody's environment; that of a campaign was asked about."""
    if path.resolve().is_relative_to(home().resolve()):
        return
    wanted = wishes.of_spec(asked, path)
    if path.is_file():
        _settle(path, wanted, yes)
    elif wanted and not yes:  # a pipe, which has no name that could be remembered
        raise trust.refusal(path, wanted)


def _settle(subject: Path, asked: Wishes, yes: bool) -> None:
    if not asked:
        return
    agreed = trust.is_agreed(subject, asked)
    print(f"{shown(str(subject))} asks for{' (agreed)' if agreed else ''}:", file=sys.stderr)
    for wish in asked:
        print(f"  - {wish}", file=sys.stderr)
    if agreed:
        return
    if not yes and not _says_yes():
        raise trust.refusal(subject, asked)
    trust.agree(subject, asked)


def _says_yes() -> bool:
    """Ask on the terminal; no without one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("Look through its files before you agree. Agree? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
