"""The storage of an Optuna study: recognised and opened so that nothing is written to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from environments.plugins import Refused
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

DIALECT = re.compile(r"(sqlite|postgresql|mysql|mariadb|oracle|mssql)(\+\w+)?://")
SQLITE, SQLITE_HEAD = re.compile(r"sqlite(\+\w+)?:///([^?]*)"), b"SQLite format 3\0"


def parted(place: str) -> tuple[str, str]:
    """A storage and the name of a study in it, which may be empty."""
    where, _, name = place.partition("#")
    return (place, "") if Path(place).exists() else (where, name)


def _storage(where: str) -> BaseStorage:
    """The storage, opened so that nothing is written to it."""
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    url = SQLITE.match(where)
    path = Path(url[2]) if url else None
    if not DIALECT.match(where):
        with Path(where).open("rb") as file:
            if not file.read(len(SQLITE_HEAD)).startswith(SQLITE_HEAD):
                return JournalStorage(JournalFileBackend(where))
        path = Path(where)
    if path is None:
        return RDBStorage(where, skip_table_creation=True)
    if not path.is_file():
        raise Refused(f"there is no {path}: give the path of an SQLite file, or a storage URL")
    return RDBStorage(f"sqlite:///file:{quote(str(path.resolve()))}?mode=ro&uri=true", skip_table_creation=True)


def study_of(where: str, name: str) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    shown = without_passwords(where)
    try:
        storage = _storage(where)
        names = [one.study_name for one in storage.get_all_studies()]
    except Refused:
        raise
    except Exception as broken:  # of a driver that is missing, a server that is away, a schema of another version
        said = without_passwords(str(broken)).partition("\n")[0]
        raise Refused(f"{shown}: Optuna cannot read it: {type(broken).__name__}: {said[:300]}") from broken
    if not names:
        raise Refused(f"{shown} holds no study")
    if (name and name not in names) or (not name and len(names) > 1):
        which = f"no study {name!r}" if name else f"{len(names)} studies"
        raise Refused(f"{shown} holds {which}: name one, as in {shown}#{names[0]}. It has {', '.join(names[:20])}")
    return optuna.load_study(study_name=name or names[0], storage=storage)
