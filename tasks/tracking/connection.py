"""Opening MLflow safely. Knows nothing of campaigns.

A client that meets a dead server hangs for minutes, so the server's health is asked first. Two processes that open a
fresh sqlite store at once crash, and a kill while the tables are made leaves half a schema; so a fresh store is built
under another name, by one process, and renamed. mlflow reads its settings from the environment at import.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import socket
import sqlite3
import ssl
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tasks.system.daemon import running_at
from tasks.system.login import split_login, stored_login

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from mlflow import MlflowClient
    from mlflow.entities import Run

PROBE_SECONDS = 3.0
TEMPORARY = (401, 403, 408, 429)
"""HTTP client errors that are no fault of the record."""
_ENVIRONMENT = threading.RLock()
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""The usual ones, by kind of database."""
ADDRESSES = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "source"), ("model_versions", "storage_location"), ("trace_tags", "value"),
)  # fmt: skip
"""Tables and columns in which MLflow keeps the paths of files."""
CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}


class Unreachable(Exception):
    """MLflow did not take or give what was asked; the record has to wait. The message says why."""


class RecordRejected(Unreachable):
    """MLflow is up and rejects this record; others may still go through."""


class Store:
    """One MLflow server or database. Nothing is opened, nor mlflow imported, before the first `reach`."""

    def __init__(self, uri: str, home: Path, secrets: Mapping[str, str]) -> None:
        self.uri = uri
        self.home = home
        self.served = not re.match(rf"(sqlite|{'|'.join(DATABASE_PORTS)})\b", uri)
        """Whether a server stands before the data, and knows the artifact root."""
        self._secrets = secrets
        self._database = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:") else None
        self._client: MlflowClient | None = None

    def __str__(self) -> str:
        return without_credentials(self.uri)

    @contextmanager
    def reach(self) -> Iterator[MlflowClient]:
        """The client of a store that answers; Unreachable for whatever mlflow raises, here or in the body."""
        self._probe()
        prepare_mlflow()
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with _logged_in(self._secrets or own_login(self.uri, self.home)):
                yield self._open()
        except MlflowException as error:
            status: int = error.get_http_status_code()  # type: ignore[no-untyped-call]
            kind = RecordRejected if 400 <= status < 500 and status not in TEMPORARY else Unreachable
            raise kind(self.problem(error)) from error
        except (SQLAlchemyError, OSError) as error:
            raise Unreachable(self.problem(error)) from error

    @contextmanager
    def uploading(self) -> Iterator[None]:
        """Turn any failure into Unreachable: the artifact store is a plug-in of MLflow, and may raise anything.

        Where MLflow itself still answers, other records may go through: RecordRejected.
        """
        try:
            yield
        except Exception as error:
            self._probe()
            raise RecordRejected(self.problem(error)) from error

    def lock(self, seconds: float = 10) -> BaseFileLock:
        """A lock for looking up and creating in one step, shared by all processes of this home or database."""
        from filelock import FileLock

        path = Path(f"{self._database}.lock") if self._database else self.home / "mlflow.lock"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock(path, timeout=seconds)

    def _first(self) -> BaseFileLock:
        """A lock for opening a database that a server of its own keeps; not the one that records wait for."""
        from filelock import FileLock

        import_module("mlflow.store.tracking.sqlalchemy_store")  # takes seconds, which others need not wait for
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock(self.home / "mlflow-opening.lock", timeout=60)

    def problem(self, error: Exception) -> str:
        """The error in one line, without credentials."""
        first_line = str(error).partition("\n")[0][:500]
        return f"MLflow at {self} does not take records: {first_line}".replace(self.uri, str(self))

    def _probe(self) -> None:
        if self.uri.startswith("http"):
            probe_server(str(self))
        elif self._database is not None and self._database.exists():
            probe_database(self._database)
        elif self._database is not None and self._client is not None:
            # mlflow would keep writing into the deleted file without an error.
            raise Unreachable(f"{self} was deleted while it was in use: start again to make a new one")
        elif not self.served and self._database is None:
            probe_port(self.uri)

    def _open(self) -> MlflowClient:
        if self._client is None:
            from mlflow import MlflowClient

            if self._database is not None:
                with self.lock(seconds=60):
                    build_database(self._database)
            # Any client of a database makes its tables, and two processes that do so at once fail.
            with nullcontext() if self.served or self._database else self._first():
                self._client = MlflowClient(self.uri)
        return self._client


def probe_server(uri: str) -> None:
    """Return if something answers at an MLflow server's address within PROBE_SECONDS; else Unreachable.

    Any answer but a server error will do: a proxy may ask for credentials, and certificates are checked by mlflow,
    with its own settings.
    """
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=PROBE_SECONDS):
            return
    except urllib.error.HTTPError as answer:
        answer.close()
        reason: object = answer if answer.code >= 500 else None
    except urllib.error.URLError as error:
        reason = None if isinstance(error.reason, ssl.SSLError) else error.reason
    except (OSError, http.client.HTTPException) as error:
        reason = error
    if reason is not None:
        raise Unreachable(f"no MLflow server answers at {uri}: {reason}")


def probe_port(uri: str) -> None:
    """Return if something listens where a database server is said to be, within PROBE_SECONDS; else Unreachable.

    Its driver would try for minutes. A local socket is left to the driver.
    """
    scheme, _, rest = uri.partition("://")
    _, at, behind = rest.partition("@")  # a password may hold any other character
    host, _, port = re.split(r"[/?]", behind if at else rest, maxsplit=1)[0].partition(":")
    if not host:
        return
    try:
        with socket.create_connection((host, int(port or DATABASE_PORTS[scheme.partition("+")[0]])), PROBE_SECONDS):
            return
    except (OSError, ValueError) as silent:
        raise Unreachable(f"no database answers there: {silent}") from silent


def probe_database(path: Path) -> None:
    """Return if an sqlite database can be written within PROBE_SECONDS; else Unreachable."""
    try:
        where = f"{path.absolute().as_uri()}?mode=rw"
        opened = sqlite3.connect(where, uri=True, timeout=PROBE_SECONDS, isolation_level=None)
        with closing(opened) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise Unreachable(f"cannot write to {path}: {error}") from error


def build_database(path: Path) -> None:
    """Make a fresh MLflow store at `path`, or correct the addresses in the one there. Call it under the lock."""
    if path.exists() and path.stat().st_size:
        follow(path)
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for leftover in path.parent.glob(f"{path.name}.*.new*"):
        leftover.unlink()
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    # By default the files of MLflow's first experiment would lie in the working directory.
    artifacts = (path.parent.absolute() / "artifacts").as_uri()
    SqlAlchemyStore(f"sqlite:///{fresh}", artifacts)  # type: ignore[no-untyped-call]
    fresh.replace(path)


def follow(path: Path) -> None:
    """Correct the addresses of files in a store that was moved together with its folder `artifacts`.

    MLflow keeps whole paths, so it would not find the files, and put new ones where the home was before.
    """
    here = path.absolute().with_name("artifacts")
    try:
        with closing(sqlite3.connect(path, timeout=PROBE_SECONDS, isolation_level=None)) as store:
            before = _artifacts_of(store)
            if not here.is_dir() or not before.startswith("file:///") or _is_same(before, here):
                return
            store.execute("BEGIN IMMEDIATE")
            for table, column in ADDRESSES:
                if column in {row[1] for row in store.execute(f"PRAGMA table_info({table})")}:
                    store.execute(
                        f"UPDATE {table} SET {column} = :here || substr({column}, :size + 1) "
                        f"WHERE substr({column}, 1, :size + 1) = :before || '/'",
                        {"here": here.as_uri(), "before": before, "size": len(before)},
                    )
            store.execute("COMMIT")
    except sqlite3.Error as error:
        raise Unreachable(f"cannot write to {path}: {error}") from error


def _is_same(address: str, folder: Path) -> bool:
    """Whether an address is that of a folder, by whatever name."""
    other = Path(url2pathname(urlsplit(address).path))
    return address == folder.as_uri() or (other.is_dir() and other.samefile(folder))


def _artifacts_of(store: sqlite3.Connection) -> str:
    """The folder of files that a store of ours was made with, as an address; empty for any other store."""
    if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
        return ""
    first = store.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    folder, _, name = str(first[0] if first else "").rpartition("/")
    return folder if name == "0" and folder.endswith("/artifacts") else ""


def ensure_experiment(client: MlflowClient, name: str, location: str | None) -> str:
    """The id of an experiment, created if missing; RecordRejected if somebody deleted it."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, location)
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another machine was first
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        restore = f"mlflow experiments restore --experiment-id {found.experiment_id}"
        raise RecordRejected(f"experiment {name} was deleted in MLflow: restore it ({restore}) or purge it (mlflow gc)")
    return found.experiment_id


def find_run(client: MlflowClient, experiment: str, key: str) -> Run | None:
    """The run with this `idempotency_key`, unless it was deleted."""
    found = client.search_runs([experiment], f"tags.idempotency_key = '{key}'", max_results=1)
    return found[0] if found else None


def own_login(uri: str, home: Path) -> dict[str, str]:
    """The login of our own MLflow server, if it runs at this address and asks for one; else empty."""
    note = running_at(uri, home, "mlflow")
    login = split_login(stored_login(home)) if note and note.auth else None
    return dict(zip(CREDENTIALS, login, strict=False)) if login else {}


@contextmanager
def _logged_in(secrets: Mapping[str, str]) -> Iterator[None]:
    """Have mlflow use this login, and no other, within the block: the next store may be somebody else's."""
    with _ENVIRONMENT:  # of the whole process: a login set by another thread would go to this store
        before = {name: os.environ[name] for name in CREDENTIALS if name in os.environ}
        try:
            if secrets:
                _set_credentials(secrets)
            yield
        finally:
            if secrets:
                _set_credentials(before)


def _set_credentials(secrets: Mapping[str, str]) -> None:
    for name in CREDENTIALS:
        os.environ.pop(name, None)
    os.environ.update(secrets)


def prepare_mlflow() -> None:
    """Set what mlflow reads from the environment, which programs of trials never see; the user's own settings win."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # It prints a traceback for each error that it also raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def without_credentials(uri: str) -> str:
    """The address without user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri
