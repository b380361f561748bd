"""The login of this home's own servers, Prefect's and MLflow's: one `user:password`, generated once and then kept.

It is stored in a private file, which our own commands read. No campaign's file and no trial's variable has it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def login_file(home: Path) -> Path:
    """The private file."""
    return home / ".prefect/auth"


def make_login(home: Path) -> str:
    """The login, drawn at the first call; of several at once, one draws it."""
    path = login_file(home)
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        drawn = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"nightshift:{secrets.token_urlsafe(18)}\n")
        with suppress(FileExistsError):  # as a whole, since an empty password would admit everyone
            path.hardlink_to(drawn)
        drawn.unlink()
    return stored_login(home)


def stored_login(home: Path) -> str:
    """The login, empty if none was drawn yet."""
    path = login_file(home)
    return path.read_text().strip() if path.is_file() else ""
