"""Our own running servers, as status and `nightshift up` show them: where they are, and how to log in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from flows.views.terminal import short
from tasks.system.daemon import Daemon
from tasks.system.login import login_file

NO_LOGIN = "asks for no login: every user of this machine can use it"


@dataclass(frozen=True)
class OwnServer:
    name: str
    """`prefect` or `mlflow`."""
    url: str
    """Its API, which in MLflow's case is the address of its pages too."""
    login: str | None
    """The private file with its `user:password`; None: it asks for no login."""

    def serves(self, page: str) -> bool:
        """Whether a page's address is one of its own."""
        return urlsplit(page).netloc == urlsplit(self.url).netloc

    @property
    def environment(self) -> str:
        """The line for a shell, a notebook's too, in which other programs are to use it."""
        file = shlex.quote(short(Path(self.login))) if self.login else ""
        if self.name == "prefect":
            login = f' PREFECT_API_AUTH_STRING="$(cat {file})"'
            return f"export PREFECT_API_URL={self.url}{login if file else ''}"
        user, password = (f'"$(cut -d: -f{fields} {file})"' for fields in ("1", "2-"))
        login = f" MLFLOW_TRACKING_USERNAME={user} MLFLOW_TRACKING_PASSWORD={password}"
        return f"export MLFLOW_TRACKING_URI={self.url}{login if file else ''}"


def own_servers(home: Path) -> tuple[OwnServer, ...]:
    """Those that run now."""
    notes = {"prefect": "server", "mlflow": "mlflow"}
    living = {name: Daemon(home / ".prefect", note).living() for name, note in notes.items()}
    login = str(login_file(home))
    return tuple(OwnServer(name, note.url, login if note.auth else None) for name, note in living.items() if note)


def how_to_log_in(file: Path) -> str:
    """The command that prints the login of that file."""
    return f"cat {shlex.quote(short(file))}  (user:password; a page asks once)"


def login_steps(servers: Sequence[OwnServer]) -> dict[str, str]:
    """How to log in at their pages, and which lines other programs need, by label; nothing where none runs."""
    files = [server.login for server in servers if server.login]
    login = {"login": how_to_log_in(Path(files[0]))} if files else {}
    unprotected = {f"  {server.name}": f"{server.url} {NO_LOGIN}" for server in servers if not server.login}
    return login | unprotected | {f"for {server.name}": server.environment for server in servers}
