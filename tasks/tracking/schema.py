"""The schema of an sqlite store, compared with the installed MLflow's before anything opens it.

MLflow opens a store of its own version only. Its command upgrades an older one, for good: an older MLflow elsewhere
could no longer open it, so that is left to the user. The revisions are read from MLflow's migration files, since
importing MLflow takes seconds.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from environments.plugins import Refused

REVISION = re.compile(r"""^(revision|down_revision)\s*=\s*['"](\w+)['"]""", re.MULTILINE)


@dataclass(frozen=True)
class Mismatch:
    fact: str
    remedy: str


def check(database: Path) -> None:
    """Refuse a store of another version of MLflow. A file that is missing or unreadable passes: opening it tells."""
    if wrong := mismatch(database):
        raise Refused(f"{wrong.fact}: {wrong.remedy}")


def mismatch(database: Path) -> Mismatch | None:
    """Why the installed MLflow cannot open a store; None when nothing is known against it."""
    found, (known, newest) = revision(database), revisions()
    if found is None or found == newest or not newest:
        return None
    installed = f"the installed MLflow {importlib.metadata.version('mlflow')}"
    if found in known:
        command = f"mlflow db upgrade {shlex.quote(f'sqlite:///{database.absolute()}')}"
        fact = f"{database} is of an older MLflow (schema {found}, {installed} has {newest})"
        return Mismatch(fact, f"keep a copy, then run `{command}`")
    fact = f"{database} is of a newer MLflow ({installed} does not know its schema {found})"
    return Mismatch(fact, "install that MLflow, or record elsewhere (--tracking)")


def revision(database: Path) -> str | None:
    """The revision of a store; None if there is no store, or it cannot be read."""
    if not database.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row else None


def revisions() -> tuple[frozenset[str], str]:
    """The revisions that the installed MLflow knows, and the newest of them."""
    spec = importlib.util.find_spec("mlflow")
    places = spec.submodule_search_locations if spec else None
    files = [file for place in places or () for file in Path(place, "store/db_migrations/versions").glob("*.py")]
    pairs = [dict(REVISION.findall(file.read_text(encoding="utf-8"))) for file in files]
    known = frozenset(pair["revision"] for pair in pairs if "revision" in pair)
    heads = set(known) - {pair.get("down_revision") for pair in pairs}
    return known, heads.pop() if len(heads) == 1 else ""
