"""A champion as a branch of the user's repository, and the description of a pull request for it.

The working tree and the index are not touched.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from environments.plugins import Refused
from flows.export.folder import champion
from flows.report import page
from flows.report.facts import Facts
from tasks.editing.patches import git_environment
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic

BODY = "pull-request.md"


def make_branch(ledger: Ledger, here: Path, branch: str) -> tuple[str, Path]:
    """Make or fast-forward a branch whose tip is the champion's commit; a sentence, and the pull request's body.

    Raises:
        Refused: there is no champion, or git refuses in its own words: there is no repository around `here`, or it
            allows no branch of that name, or the branch is checked out or holds other commits.
    """
    trial = champion(ledger)
    refs = f"refs/trials/{trial.number:04d}:refs/heads/{branch}"
    command = ["git", "-C", str(here), "fetch", "--no-tags", str(ledger.path / "lineage.git"), refs]
    done = subprocess.run(command, capture_output=True, text=True, env=git_environment())
    if done.returncode:
        why = next((line.strip() for line in done.stderr.splitlines() if not line.startswith("From ")), "git failed")
        raise Refused(f"--git {branch}: {why}")
    body = ledger.path / BODY
    write_atomic(body, page.pull_request(Facts.of(ledger).of_trial(trial), trial))
    return f"branch {branch}: trial {trial.number} of {ledger.campaign.name}; git log {branch}", body
