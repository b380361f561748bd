"""A champion as a branch of the user's repository. Its working tree and index are not touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

from environments.plugins import Refused
from flows.export.folder import champion
from tasks.editing.patches import git_environment
from tasks.store.ledger import Ledger


def make_branch(ledger: Ledger, here: Path, branch: str) -> str:
    """Make or fast-forward a branch whose tip is the champion's commit; returns a sentence.

    Raises:
        Refused: there is no champion, no repository around `here`, or git refuses the branch: its name, that it is
            checked out, or that it holds other commits.
    """
    trial = champion(ledger)
    if _git(here, "rev-parse", "--git-dir").returncode:
        raise Refused(f"--git {branch}: {here} is in no git repository: change into yours, or make one with `git init`")
    if _git(here, "check-ref-format", "--branch", branch).returncode:
        raise Refused(f"--git {branch!r}: git allows no branch of that name")
    source = str(ledger.path / "lineage.git")
    done = _git(here, "fetch", "--no-tags", "--quiet", source, f"refs/trials/{trial.number:04d}:refs/heads/{branch}")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["git fetch failed"]
        raise Refused(f"--git {branch}: {lines[-1].strip()} (it exists with other commits, or is checked out)")
    return f"branch {branch}: trial {trial.number} of {ledger.campaign.name}; git log {branch}"


def _git(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, env=git_environment())
