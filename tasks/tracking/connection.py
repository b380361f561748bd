"""Where MLflow is, and a client of it.

mlflow reads its settings and the login from the environment. Only `MlflowClient` is used for runs: the fluent
interface keeps its current run per thread. A process has one client at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from environments.plugins import Refused
from tasks.system.daemon import Daemon, running_at
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
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_served(self) -> bool:
        """Whether a server stands before the data, and knows where files belong."""
        return self.uri.startswith(("http", "databricks"))

    def __str__(self) -> str:
        """The address without a login; of the home's own database its name alone, since a home may be moved."""
        return DATABASE if self.uri == own_database(self.home) else without_credentials(self.uri)

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """A client, with this store's login in the environment while the block runs."""
        before = {name: os.environ.get(name) for name in (*CREDENTIALS, "MLFLOW_TRACKING_URI")}
        try:
            if secrets := self.secrets or own_login(self.uri, self.home):
                _set({name: secrets.get(name) for name in CREDENTIALS})
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
    """Where to record: as stated, else the Block "nightshift", MLFLOW_TRACKING_URI, or sqlite in `home`; None: off.

    Raises:
        Refused: MLflow cannot record there.
        ConnectionError: the Prefect server that may have the Block does not answer.
    """
    if stated:
        return _store(stated, home, {})
    if saved := _saved_block(home):
        return _store(*saved)
    return _store(os.environ.get("MLFLOW_TRACKING_URI") or own_database(home), home, {})


def own_database(home: Path) -> str:
    return f"sqlite:///{home.absolute() / DATABASE}"


def _store(uri: str, home: Path, secrets: Mapping[str, str]) -> Store | None:
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
    return Store(uri.rstrip("/"), home, secrets)


def make_database(path: Path) -> None:
    """Have MLflow make its tables, unless the file is there. One of another version gives MLflow's own message.

    They are made under another name, since a kill in the middle would leave a file that MLflow cannot open any more.
    """
    from filelock import FileLock

    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            from mlflow import MlflowClient

            fresh = path.with_name(f"{path.name}.new")
            fresh.unlink(missing_ok=True)
            MlflowClient(f"sqlite:///{fresh}").search_experiments()
            fresh.replace(path)


def api_with_blocks(home: Path) -> str | None:
    """The Prefect API that may have the Block: the stated one, else that of the home's own server while it runs."""
    if stated := os.environ.get("PREFECT_API_URL"):
        return stated
    note = Daemon(home / ".prefect", "server").living()
    return note.url if note else None


def _saved_block(home: Path) -> tuple[str, Path, dict[str, str]] | None:
    """Address, home and credentials in the Tracking Block; None without a Prefect server or Block."""
    api = api_with_blocks(home)
    if api is None:
        return None
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    from blocks.tracking import Tracking

    settings: dict[Any, Any] = {PREFECT_API_URL: api}
    if (ours := running_at(api.rstrip("/"), home, "server")) and ours.auth:
        settings[PREFECT_API_AUTH_STRING] = stored_login(home)
    try:
        # Prefect may have been imported before the address was set, and would start its own server.
        with temporary_settings(settings), get_client(sync_client=True) as client:
            saved = client.read_block_document_by_name("nightshift", Tracking.get_block_type_slug())
    except ObjectNotFound:
        return None
    except httpx.TransportError as error:
        stated = "PREFECT_API_URL" in os.environ
        where = f"PREFECT_API_URL={api}: start it, or unset it" if stated else f"{api}: `nightshift down` ends it"
        raise ConnectionError(f"no Prefect server answers at {where}") from error
    block = Tracking.model_validate(saved.data)
    secrets = (block.username, block.password, block.token)
    shown = (secret if isinstance(secret, str | None) else secret.get_secret_value() for secret in secrets)
    return block.uri, home, {name: value for name, value in zip(CREDENTIALS, shown, strict=True) if value}


def own_login(uri: str, home: Path) -> dict[str, str]:
    """The login of our own MLflow server, if it runs at this address and asks for one; else empty."""
    note = running_at(uri, home, "mlflow")
    login = split_login(stored_login(home)) if note and note.auth else None
    return dict(zip(CREDENTIALS, login, strict=False)) if login else {}


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def without_credentials(uri: str) -> str:
    """The address without user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri
