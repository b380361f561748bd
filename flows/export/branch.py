"""A champion as a branch of the user's repository. Its working tree and index are not touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

from environments.plugins import Refused
from flows.export.folder import champion
from tasks.editing.patches import git_environment
from tasks.store.ledger import Ledger
from tasks.trial import Trial


def check_branch(ledger: Ledger, here: Path, branch: str) -> None:
    """Do all of `make_branch` but the last step, and change no branch.

    Raises:
        Refused: there is no champion, no repository around `here`, or git refuses the branch: its name, that it is
            checked out, or that it holds other commits.
    """
    _fetch(champion(ledger), ledger, here, branch, "--dry-run")


def make_branch(ledger: Ledger, here: Path, branch: str) -> str:
    """Make or fast-forward a branch whose tip is the champion's commit; returns a sentence.

    Raises:
        Refused: as `check_branch`.
    """
    trial = champion(ledger)
    _fetch(trial, ledger, here, branch)
    return f"branch {branch}: trial {trial.number} of {ledger.campaign.name}; git log {branch}"


def _fetch(trial: Trial, ledger: Ledger, here: Path, branch: str, *options: str) -> None:
    if _git(here, "rev-parse", "--git-dir").returncode:
        raise Refused(f"--git {branch}: {here} is in no git repository: change into yours, or make one with `git init`")
    if _git(here, "check-ref-format", "--branch", branch).returncode:
        raise Refused(f"--git {branch!r}: git allows no branch of that name")
    names = _git(here, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").stdout.splitlines()
    for other in names:  # a name is a path: it cannot be a file and a folder
        if branch.startswith(f"{other}/") or other.startswith(f"{branch}/"):
            raise Refused(f"--git {branch}: there is a branch {other}, beside which git allows none of that name")
    source, tip = str(ledger.path / "lineage.git"), f"refs/trials/{trial.number:04d}:refs/heads/{branch}"
    done = _git(here, "fetch", "--no-tags", "--quiet", *options, source, tip)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["git fetch failed"]
        raise Refused(f"--git {branch}: {lines[-1].strip()} (it exists with other commits, or is checked out)")


def _git(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, env=git_environment())
