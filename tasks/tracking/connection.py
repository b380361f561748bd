"""Where MLflow is, and a client of it.

mlflow reads its settings and the login from the environment. Only `MlflowClient` is used for runs: the fluent
interface keeps its current run per thread. A process has one client at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from environments.plugins import Refused
from tasks.system.daemon import running_at
from tasks.system.login import split_login, stored_login
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from mlflow import MlflowClient

SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
DATABASE = "mlflow.db"
"""A home's own database."""
CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # Traces are sent where `sync` can see what came of it.
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}
"""Read by mlflow at its import; the user's own settings win."""


class NotRecorded(Exception):
    """MLflow does not have a record, for a reason that we know; others may still go through."""


@dataclass(frozen=True)
class Store:
    """An MLflow server or database. Nothing is opened, nor mlflow imported, before `client`."""

    uri: str
    home: Path

    @property
    def is_served(self) -> bool:
        """Whether a server stands before the data, and knows where files belong."""
        return self.uri.startswith(("http", "databricks"))

    def __str__(self) -> str:
        """The address without a login; of the home's own database its name alone, since a home may be moved."""
        return DATABASE if self.uri == own_database(self.home) else without_credentials(self.uri)

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """A client; while the block runs, the environment has the login of our own server, if it is that."""
        before = {name: os.environ.get(name) for name in (*CREDENTIALS, "MLFLOW_TRACKING_URI")}
        try:
            if login := own_login(self.uri, self.home):
                _set({name: login.get(name) for name in CREDENTIALS})
            for name, value in SETTINGS.items():
                os.environ.setdefault(name, value)
            import mlflow

            if self.uri.startswith("sqlite"):
                make_database(Path(self.uri.removeprefix("sqlite:///")))
            mlflow.set_tracking_uri(self.uri)  # for traces, which have no client of their own
            yield mlflow.MlflowClient(self.uri)
        finally:
            _set(before)


def locate(stated: str | None, home: Path) -> Store | None:
    """Where to record: as stated, else MLFLOW_TRACKING_URI, else sqlite in `home`; None: off.

    Raises:
        Refused: MLflow cannot record there.
    """
    uri = stated or os.environ.get("MLFLOW_TRACKING_URI") or own_database(home)
    if uri == "off":
        return None
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.partition("+")[0] not in SCHEMES or re.fullmatch(r"sqlite\W*(:memory:)?", uri):
        raise Refused(
            f"tracking cannot go to {without_passwords(uri)!r}: MLflow keeps nothing in plain folders any more. Give "
            f"{own_database(home)}, the http(s) address of a server, or off"
        )
    if scheme == "sqlite":  # a relative path would change with the working directory
        uri = f"sqlite:///{Path(rest[1:]).absolute()}"
    return Store(uri.rstrip("/"), home)


def own_database(home: Path) -> str:
    return f"sqlite:///{home.absolute() / DATABASE}"


def make_database(path: Path) -> None:
    """Have MLflow make its tables, unless the file is there. One of another version gives MLflow's own message.

    They are made under another name, since a kill in the middle would leave a file that MLflow cannot open any more.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            from mlflow import MlflowClient

            fresh = path.with_name(f"{path.name}.new")
            fresh.unlink(missing_ok=True)
            MlflowClient(f"sqlite:///{fresh}").search_experiments()
            fresh.replace(path)


def own_login(uri: str, home: Path) -> dict[str, str]:
    """The login of our own MLflow server, if it runs at this address and asks for one; else empty."""
    note = running_at(uri, home, "mlflow")
    login = split_login(stored_login(home)) if note and note.auth else None
    return dict(zip(CREDENTIALS, login, strict=False)) if login else {}


def without_credentials(uri: str) -> str:
    """The address without user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
