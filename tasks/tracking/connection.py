"""Where MLflow is, and a client of it.

mlflow reads its settings and the login from the environment. Only `MlflowClient` is used for runs: the fluent
interface keeps its current run per thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from environments.plugins import Refused
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from mlflow import MlflowClient

STORES = re.compile(
    r"databricks|(sqlite:///|(https?|(postgresql|mysql|mssql)(\+\w+)?|databricks)://).{2,}(?<!:memory:)"
)
"""Addresses of what keeps records: MLflow keeps nothing in plain folders any more."""
DATABASE = "mlflow.db"
"""A home's own database."""
URI = "MLFLOW_TRACKING_URI"
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # Traces are sent where `sync` can see what came of it.
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}
"""Read by mlflow at its import; the user's own settings win."""


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
        """A client, with which traces go to the same place while the block runs."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        import mlflow

        before = os.environ.get(URI, "")
        if self.uri.startswith("sqlite"):
            make_database(Path(self.uri.removeprefix("sqlite:///")))
        try:
            mlflow.set_tracking_uri(self.uri)  # for traces, which have no client of their own; it sets the variable
            yield mlflow.MlflowClient(self.uri)
        finally:
            os.environ[URI] = before  # emptied, never removed: another thread may be copying the environment


def locate(stated: str | None, home: Path) -> Store | None:
    """Where to record: as stated, else MLFLOW_TRACKING_URI, else sqlite in `home`; None: off.

    Raises:
        Refused: MLflow cannot record there.
    """
    uri = stated or os.environ.get(URI) or own_database(home)
    if uri == "off":
        return None
    if not STORES.fullmatch(uri):
        remedy = f"give {own_database(home)}, the http(s) address of a server, or off"
        raise Refused(f"tracking cannot go to {without_passwords(uri)!r}: {remedy}")
    if uri.startswith("sqlite"):  # a relative path would change with the working directory
        uri = f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
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


def without_credentials(uri: str) -> str:
    """The address without user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri
