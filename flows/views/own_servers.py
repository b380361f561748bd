"""Our own running servers: where they are, for the status, and how to log in, for `nightshift up`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.views.terminal import short
from tasks.system.daemon import Daemon
from tasks.system.login import login_file

Server = Mapping[str, str]
"""{name, url, login}: `prefect` or `mlflow`; its API, which in MLflow's case is the address of its pages too; and the
private file with its `user:password`."""


def own_servers(home: Path) -> list[Server]:
    """Those that run now."""
    notes = {"prefect": "server", "mlflow": "mlflow"}
    living = {name: Daemon(home / ".prefect", note).living() for name, note in notes.items()}
    login = str(login_file(home))
    return [{"name": name, "url": note.url, "login": login} for name, note in living.items() if note]


def login_steps(servers: Sequence[Server]) -> dict[str, str]:
    """How to log in at their pages, and the lines for a shell in which other programs, a notebook too, use them."""
    steps = {}
    for server in servers:
        url, file = server["url"], shlex.quote(short(Path(server["login"])))
        steps["login"] = f"cat {file}  (user:password; a page asks once)"
        if server["name"] == "prefect":
            line = f'export PREFECT_API_URL={url} PREFECT_API_AUTH_STRING="$(cat {file})"'
        else:
            user, password = (f'"$(cut -d: -f{fields} {file})"' for fields in ("1", "2-"))
            line = (
                f"export MLFLOW_TRACKING_URI={url} MLFLOW_TRACKING_USERNAME={user} MLFLOW_TRACKING_PASSWORD={password}"
            )
        steps[f"for {server['name']}"] = line
    return steps
