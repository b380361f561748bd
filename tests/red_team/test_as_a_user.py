"""The red team again as an ordinary user, who has neither control groups nor another user to hide behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.levels import SANDBOXED

CHECKOUT = Path(__file__).resolve().parents[2]
SUBJECTS = ("processes", "network", "limits")
ATTACKS = [f"tests/red_team/test_{name}.py" for name in SUBJECTS]
USER = 4242
"""Nobody on this machine."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif("bwrap" not in SANDBOXED, reason="bubblewrap does not work here")
def test_red_team_fails_against_an_ordinary_user() -> None:
    """In a view of this machine in which a user that it does not know may execute root's Python."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, USER, USER)
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        done = red_team(*opened(), *user, folder=folder)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def red_team(*before: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run the attacks with this home, behind other commands."""
    names = {"HOME": folder, "TMPDIR": folder, "NIGHTSHIFT_HOME": f"{folder}/runs"}
    variables = [f"{name}={value}" for name, value in names.items()]
    command = [*before, "env", "PYTHONDONTWRITEBYTECODE=1", *variables, sys.executable, "-m", "pytest"]
    command += ["-q", "-m", "", "-p", "no:cacheprovider", *ATTACKS]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)


def opened() -> list[str]:
    """bubblewrap's view of this machine, with a way for others to Python and to the checkout through closed folders."""
    needed = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, CHECKOUT)}
    closed = {path: above for path in needed for above in [first_closed(path)] if above}
    command = ["bwrap", "--dev-bind", "/", "/", "--cap-add", "ALL"]
    for above in sorted(set(closed.values())):
        command += ["--perms", "0755", "--tmpfs", str(above)]
    for path, above in closed.items():
        for folder in (folder for folder in reversed(path.parents) if above in folder.parents):
            command += ["--perms", "0755", "--dir", str(folder)]
        command += ["--ro-bind", str(path), str(path)]
    return [*command, "--"]


def first_closed(path: Path) -> Path | None:
    """The first folder on the way there that only its owner may enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)
