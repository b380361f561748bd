"""The login of this home's own servers, Prefect's and MLflow's: one `user:password`, generated once and then kept.

It is stored in a private file, which our own commands read. No campaign's file and no trial's variable has it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


def login_file(home: Path) -> Path:
    """The private file."""
    return home / ".prefect/auth"


def make_login(home: Path) -> str:
    """The login, drawn at the first call; of several at once, one draws it."""
    path = login_file(home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # By the standard library alone, since the reader of foreign text imports this too.
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored_login(home):
            # As a whole: an empty password would admit everyone.
            temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"nightshift:{secrets.token_urlsafe(18)}\n")
            temporary.replace(path)
        return stored_login(home)


def stored_login(home: Path) -> str:
    """The login, empty if none was drawn yet."""
    path = login_file(home)
    return path.read_text().strip() if path.is_file() else ""


def split_login(login: str | None) -> tuple[str, str] | None:
    """User and password; None without a login."""
    user, _, password = (login or "").partition(":")
    return (user, password) if user else None
