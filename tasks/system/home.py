"""The home directory, which holds the campaigns; the login of its own servers; and the folder of the four packages."""

import os
import secrets
from pathlib import Path

from tasks.system.files import write_atomic

CODE = Path(__file__).parents[2]
"""A checkout, or the `site-packages` that a wheel is installed in."""


def home_path() -> Path:
    """NIGHTSHIFT_HOME, else `runs/` in the checkout, else `nightshift` in the XDG data folder. Nothing is created."""
    if stated := os.environ.get("NIGHTSHIFT_HOME"):
        return Path(stated).expanduser().absolute()
    if is_checkout():
        return CODE / "runs"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # By the XDG specification a relative path is invalid, and ignored.
    return (data if data.is_absolute() else Path("~/.local/share").expanduser()) / "nightshift"


def home() -> Path:
    """The home directory, created with mode 0700 if it is missing; Refused if it cannot be."""
    path = home_path()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        from environments.plugins import Refused  # takes long to load, and is hardly ever needed

        remedy = "set NIGHTSHIFT_HOME to a writable folder"
        raise Refused(f"the home {path} cannot be created ({fault.strerror}): {remedy}") from fault
    return path


def is_checkout() -> bool:
    """Whether the packages lie in a checkout, else they are installed."""
    return (CODE / "prefect.yaml").is_file()


def login_file(home: Path) -> Path:
    """The private file with the `user:password` of Prefect's and MLflow's servers, which our own commands read. No
    campaign's file and no trial's variable has it.
    """
    return home / ".prefect/auth"


def make_login(home: Path) -> str:
    """The login, drawn at the first call and then kept."""
    path = login_file(home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    from filelock import FileLock  # which the process that reads foreign text does not have

    with FileLock(f"{path}.lock"):
        if not path.exists():
            write_atomic(path, f"nightshift:{secrets.token_urlsafe(18)}\n", mode=0o600)
    return stored_login(home)


def stored_login(home: Path) -> str:
    """The login, empty if none was drawn yet."""
    path = login_file(home)
    return path.read_text().strip() if path.is_file() else ""
