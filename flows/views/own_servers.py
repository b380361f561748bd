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


@dataclass(frozen=True)
class OwnServer:
    name: str
    """`prefect` or `mlflow`."""
    url: str
    """Its API, which in MLflow's case is the address of its pages too."""
    login: str
    """The private file with its `user:password`."""

    def serves(self, page: str) -> bool:
        """Whether a page's address is one of its own."""
        return urlsplit(page).netloc == urlsplit(self.url).netloc

    @property
    def environment(self) -> str:
        """The line for a shell, a notebook's too, in which other programs are to use it."""
        file = shlex.quote(short(Path(self.login)))
        if self.name == "prefect":
            return f'export PREFECT_API_URL={self.url} PREFECT_API_AUTH_STRING="$(cat {file})"'
        user, password = (f'"$(cut -d: -f{fields} {file})"' for fields in ("1", "2-"))
        login = f"MLFLOW_TRACKING_USERNAME={user} MLFLOW_TRACKING_PASSWORD={password}"
        return f"export MLFLOW_TRACKING_URI={self.url} {login}"


def own_servers(home: Path) -> tuple[OwnServer, ...]:
    """Those that run now."""
    notes = {"prefect": "server", "mlflow": "mlflow"}
    living = {name: Daemon(home / ".prefect", note).living() for name, note in notes.items()}
    login = str(login_file(home))
    return tuple(OwnServer(name, note.url, login) for name, note in living.items() if note)


def login_steps(servers: Sequence[OwnServer]) -> dict[str, str]:
    """How to log in at their pages, and which lines other programs need, by label; nothing where none runs."""
    if not servers:
        return {}
    login = f"cat {shlex.quote(short(Path(servers[0].login)))}  (user:password; a page asks once)"
    return {"login": login} | {f"for {server.name}": server.environment for server in servers}
