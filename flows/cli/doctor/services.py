"""Checks of Prefect and MLflow: where a campaign would find them, and whether they answer.

The rules are those of flows/server/server_process.py and tasks/tracking/connection.py, followed without importing
Prefect or MLflow, which takes seconds. Users, passwords and queries of addresses are never shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx

from environments.plugins import Refused
from flows.cli.doctor.machine import Check
from flows.server import mlflow_process, server_process
from tasks.system.daemon import Daemon, answers, is_encrypted, page_of
from tasks.system.redact import without_passwords
from tasks.tracking.connection import api_with_blocks, locate, own_database, without_credentials

ASK_SECONDS = 3.0
BLOCK = "/block_types/slug/nightshift-tracking/block_documents/name/nightshift"
"""Path of the saved block of blocks/tracking.py in Prefect's API. The answer holds no secrets."""
SERVICES = (("server", "Prefect", server_process.FIRST_PORT), ("mlflow", "MLflow", mlflow_process.FIRST_PORT))


def ports(home: Path) -> Check:
    """The ports of `nightshift up`: used by its own servers, free, or held by another program."""
    facts, details, problem = [], [], ""
    for name, what, first in SERVICES:
        daemon = Daemon(home / ".prefect", name)
        note, port = daemon.living(), None
        if note is not None:
            facts.append(f"{what} of this home runs at {note.url.removesuffix('/api')}")
        else:
            try:
                port = daemon.port(first, stays=True)
                facts.append(f"{port} is free for {what}")
            except Refused as taken:
                facts.append(str(taken))
                problem = problem or "end the program that has it, or have another port chosen"
        details.append({"service": name, "port": port, "url": note and note.url})
    return Check("ports", "bad" if problem else "ok", "; ".join(facts), problem, {"ports": details})


def prefect(home: Path) -> Check:
    """The Prefect server that a campaign would use."""
    stated = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if stated:
        return _stated_prefect(stated, home)
    url = page_of(home, "server")
    if url is None:
        fact = "none runs: a campaign starts its own server and stops it at its end"
        return Check("prefect", "ok", fact, details={"url": None, "version": None})
    version = prefect_version(url, home)
    details = {"url": url, "version": version}
    if version is None:
        fact = f"the server of this home at {url} runs but does not answer"
        return Check("prefect", "note", fact, "if it remains, `nightshift up` restarts it", details)
    return Check("prefect", "ok", f"the server of this home at {url} answers, {version}", details=details)


def _stated_prefect(url: str, home: Path) -> Check:
    where, details = f"PREFECT_API_URL = {public(url)}", {"url": public(url), "version": None}
    if not answers(url, ASK_SECONDS):
        remedy = "start it (its address ends in /api), or unset PREFECT_API_URL: campaigns start their own"
        return Check("prefect", "bad", f"{where}: no Prefect server answers there", remedy, details)
    answer = _get(url, "/admin/version", home)
    if answer is not None and answer.status_code == 401:
        remedy = "set PREFECT_API_AUTH_STRING to its user:password"
        return Check("prefect", "bad", f"{where}: it requires a login", remedy, details)
    version = _version_in(answer)
    if version is None:
        remedy = "a Prefect server's address ends in /api"
        return Check("prefect", "bad", f"{where}: not a Prefect API", remedy, details)
    fact = f"{where}: answers, {version}"
    return Check("prefect", "ok", fact, details={**details, "version": version})


def prefect_version(url: str, home: Path) -> str | None:
    """The version of a Prefect server; None when it does not answer or is another program."""
    return _version_in(_get(url, "/admin/version", home)) if answers(url, ASK_SECONDS) else None


def _version_in(answer: httpx.Response | None) -> str | None:
    if answer is None or answer.status_code != 200:
        return None
    try:
        version = answer.json()
    except ValueError:
        return None
    return version if isinstance(version, str) else None


def _get(url: str, path: str, home: Path) -> httpx.Response | None:
    """A server's answer; None without one. The reason is not shown: it may hold the address."""
    try:
        login = server_process.credentials(url, home)
        return httpx.get(f"{url}{path}", auth=login, timeout=ASK_SECONDS, verify=is_encrypted(url))
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return None


def mlflow(home: Path) -> Check:
    """The MLflow store that a campaign would use."""
    try:
        uri, source = where_recorded(home)
    except ConnectionError as silent:
        return Check("mlflow", "note", f"its address is unknown: {silent}", "fix prefect first", {"uri": None})
    details = {"uri": public(uri), "source": source}
    by = f", set by {source}" if source else ""
    if uri == "off":
        return Check("mlflow", "ok", f"trials are not recorded in MLflow{by}", details=details)
    where = f"trials are recorded at {public(uri)}{by}"
    if why := problem(uri, home):
        remedy = f"start it, or change {source}" if source else "repair the file, or move it away"
        return Check("mlflow", "bad", f"{where}; {why}", remedy, details)
    return Check("mlflow", "ok", where, details=details)


def remote(home: Path) -> Check:
    """Trials on other machines that no process follows, for which somebody may pay."""
    from tasks.remote import jobs

    left = jobs.unfollowed()
    if not left:
        return Check("remote", "ok", "no trial on another machine is left alone")
    keys = [job.key for job in left]
    fact = f"{len(left)} trial{'s' * (len(left) > 1)} on other machines that nobody follows: {', '.join(keys[:3])}"
    remedy = "`nightshift resume` goes on with those of its campaign, `nightshift prune` removes all"
    return Check("remote", "note", fact, remedy, {"keys": keys})


def where_recorded(home: Path) -> tuple[str, str]:
    """The tracking URI of a campaign that states none, and where it is set (empty: nowhere).

    Raises:
        ConnectionError: the Prefect server that may hold the block does not answer.
    """
    if stated := api_with_blocks(home):
        api = stated.rstrip("/")
        answer = _get(api, BLOCK, home)
        if answer is None or answer.status_code not in (200, 404):
            raise ConnectionError(f"the Prefect server at {public(api)} does not answer")
        if answer.status_code == 200:
            return str(answer.json()["data"]["uri"]), "the saved block nightshift"
    if stated := os.environ.get("MLFLOW_TRACKING_URI"):
        return stated, "MLFLOW_TRACKING_URI"
    return own_database(home), ""


def problem(uri: str, home: Path) -> str:
    """Why nothing can be recorded at an address; empty when nothing is known against it."""
    try:
        store = locate(uri, home)
    except Refused as fault:
        return str(fault).replace(without_passwords(uri), public(uri))
    if store is None or not uri.startswith(("http", "sqlite")):
        return ""
    if store.is_served:
        try:
            answer = httpx.get(f"{without_credentials(store.uri)}/health", timeout=ASK_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as silent:
            return f"no MLflow server answers there: {silent}"
        return f"it answers {answer.status_code}" if answer.status_code >= 500 else ""  # a proxy may want a login
    path = Path(store.uri.removeprefix("sqlite:///"))
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    return "" if os.access(above, os.W_OK) else f"it cannot be written: {above} is not writable"


def public(uri: str) -> str:
    """An address without user, password and query.

    A password may hold any character unquoted, so everything up to the last @ is removed.
    """
    if uri.startswith("sqlite"):
        return uri
    scheme = re.match(r"[\w+.-]+://", uri)
    begin = scheme.end() if scheme else 0
    host, query, _ = uri[begin:].rpartition("@")[2].partition("?")
    return f"{uri[:begin]}{host}{'?...' if query else ''}"
