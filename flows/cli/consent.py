"""The question whether an environment or a spec file may have the permissions that it needs.

They are always shown, on stderr. On a terminal a person is asked once; elsewhere `--trust` grants them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import environments
from environments.space import Value
from flows.spec import permissions
from flows.spec.permissions import Permissions, printable
from tasks.system.home import home


def ask_about(reference: str, overrides: Mapping[str, Value], yes: bool) -> None:
    """Show what an environment needs, and have it granted. Refused if it is not, or the environment is invalid.

    Args:
        overrides: Keys of environment.toml that the command or a spec lays over it.
        yes: Whether the command line grants it.
    """
    environment = environments.named(reference, overrides)
    environment.check_files()
    _settle(environment.folder, permissions.needed(environment), yes)


def ask_about_spec(stated: Mapping[str, Any], path: Path, yes: bool) -> None:
    """The same for a spec.toml, which may come with somebody's environment; that of a campaign was asked about."""
    if not path.resolve().is_relative_to(home().resolve()):
        _settle(path, permissions.of_spec(stated), yes)


def _settle(subject: Path, need: Permissions, yes: bool) -> None:
    if not need:
        return
    granted = permissions.is_granted(subject, need)
    print(f"{printable(str(subject))} needs{' (granted)' if granted else ''}:", file=sys.stderr)
    for sentence in need:
        print(f"  - {sentence}", file=sys.stderr)
    if granted:
        return
    if not yes and not _says_yes():
        raise permissions.refusal(subject, need)
    permissions.grant(subject, need)


def _says_yes() -> bool:
    """Ask on the terminal; no without one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("Look through its files before you agree. Agree? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
