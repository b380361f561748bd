"""Places that hold keys and passwords, which no program of an environment may read."""

import os
import pwd
from contextlib import suppress
from pathlib import Path

NAMES = frozenset(
    {
        *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc"),
        *(".git-credentials", ".password-store", ".prefect", ".claude", ".codex", ".mozilla", ".vault-token"),
    }
)
"""Files and folders that programs keep their keys in, wherever they lie."""
BELOW_HOME = (*NAMES, ".config", ".local/share/keyrings", ".bash_history", ".cache/huggingface/token")
SYSTEM = (
    *("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh", "/etc/ssl/private"),
    *("/proc", "/dev", "/run/user", "/run/secrets", "/run/credentials", "/run/docker.sock", "/home", "/root"),
)
"""Also the parents of homes: one that contains them contains what is in them."""
PARENTS = ("/home", "/root")
"""Of the system's places those that a path may be inside of."""


def secret_place(path: Path) -> str:
    """The place with keys or passwords that a real path contains or is inside of; empty without one."""
    for part in path.parts:
        if part in NAMES:
            return str(Path(*path.parts[: path.parts.index(part) + 1]))
    for place in (*(Path(name) for name in SYSTEM), *(home / name for home in _homes() for name in BELOW_HOME)):
        around, inside = place.is_relative_to(path), path.is_relative_to(place)
        if around or (inside and str(place) not in PARENTS):
            return str(place)
    return next((str(path / name) for name in sorted(NAMES) if os.path.lexists(path / name)), "")


def _homes() -> tuple[Path, ...]:
    """The user's home, as its variable and as the system names it."""
    homes = {Path("~").expanduser().resolve()}
    with suppress(KeyError):  # a container may run as a bare number
        homes.add(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())
    return tuple(homes - {Path("/")})
