"""The login of this home's own servers, Prefect's and MLflow's: one `user:password`, generated once and then kept.

It is stored in a private file, which our own commands read. No campaign's file and no trial's variable has it.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from filelock import FileLock

from tasks.system.files import write_atomic


def login_file(home: Path) -> Path:
    """The private file."""
    return home / ".prefect/auth"


def make_login(home: Path) -> str:
    """The login, drawn at the first call; of several at once, one draws it."""
    path = login_file(home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            write_atomic(path, f"nightshift:{secrets.token_urlsafe(18)}\n", mode=0o600)
    return stored_login(home)


def stored_login(home: Path) -> str:
    """The login, empty if none was drawn yet."""
    path = login_file(home)
    return path.read_text().strip() if path.is_file() else ""
