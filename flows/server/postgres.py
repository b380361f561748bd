"""`nightshift up --production`: the Prefect server on PostgreSQL, which stands what a file of SQLite does not.

Its address is stated (--database, NIGHTSHIFT_DATABASE), or it is a cluster of our own in runs/.prefect/postgres, on
127.0.0.1, with a password that is drawn once. `nightshift down` ends our own; its data stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from environments.plugins import Refused
from flows.server.connect import port_of
from tasks.system.daemon import HOST, Daemon, Note, free_port

VARIABLE = "NIGHTSHIFT_DATABASE"
SCHEME = "postgresql+asyncpg://"
FIRST_PORT = 5433
"""5432 is left to a PostgreSQL that the machine may have already."""
USER, DATABASE = "nightshift", "prefect"
START_SECONDS = 60.0
ATTEMPTS = 3
"""After a kill the processes of the last life may need a moment to leave, and it does not start before."""
FIRST_VERSION = 14
"""Of PostgreSQL, for Prefect 3."""
UNPRIVILEGED = "postgres"
"""Whom our own cluster runs as where we are root, which PostgreSQL refuses to be. Never `nobody`: trials are that."""


def address(directory: Path, given: str | None) -> str:
    """The database that the Prefect server is to use; our own cluster is started for it, if none is stated.

    Raises:
        Refused: it cannot be used, or there is no PostgreSQL to start.
    """
    if url := stated(given):
        return url
    url = Cluster(directory).start()
    check(url, "our own PostgreSQL")
    return url


def stated(given: str | None) -> str | None:
    """The database that is stated, on the command line or else in the environment; None where none is.

    Raises:
        Refused: it cannot be used.
    """
    where, url = ("--database", given) if given else (VARIABLE, os.environ.get(VARIABLE))
    if not url:
        return None
    if not url.startswith(SCHEME):
        raise Refused(f"{where} must begin with {SCHEME} (then user:password@host:port/name)")
    check(url, where)
    return url


def check(url: str, where: str) -> None:
    """Refuse a database that Prefect cannot work with.

    Raises:
        Refused: nobody answers, we are not let in, it is too old, or pg_trgm is missing; never with the password.
    """
    import asyncpg  # type: ignore[import-untyped]  # comes with Prefect

    async def ask() -> tuple[int, bool]:
        connection = await asyncpg.connect("postgresql://" + url.removeprefix(SCHEME), timeout=10)
        try:
            found = await connection.fetchval("select 1 from pg_available_extensions where name = 'pg_trgm'")
            return connection.get_server_version().major, bool(found)
        finally:
            await connection.close()

    try:
        version, searches = asyncio.run(ask())
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as why:
        raise Refused(
            f"{where}: PostgreSQL does not let us in there: {type(why).__name__}; look at its log"
        ) from why
    if version < FIRST_VERSION:
        raise Refused(f"{where}: PostgreSQL {version} is too old for Prefect: {FIRST_VERSION} or newer")
    if not searches:
        raise Refused(f"{where}: its extension pg_trgm is missing: install postgresql-contrib there")


class Cluster:
    """PostgreSQL of our own: its data, its password and its process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "postgres"
        self.daemon = Daemon(directory, "postgres")
        self._password = directory / "postgres.password"

    def start(self) -> str:
        """Start it unless it runs, make it if it is not there; the address for Prefect.

        Raises:
            Refused: there are no programs, there is nobody to run it as, or it did not come up.
        """
        note = self.daemon.living()
        if note is None:
            programs, user = _programs(), _runs_as(self.directory)
            if not (self.data / "PG_VERSION").exists():
                self._make(programs, user)
            died = self.daemon.died()
            port = free_port((died and port_of(died.url)) or FIRST_PORT)
            if died:
                self._release(died)
            self._launch(programs, user, port)
        note = self.daemon.living()
        assert note is not None, "it has just answered"
        password = self._password.read_text().strip()
        return f"{SCHEME}{USER}:{password}@{HOST}:{port_of(note.url)}/{DATABASE}"

    def end(self) -> bool:
        """Have it write everything down and end; whether it was running."""
        return self.daemon.end(signal.SIGINT)  # `fast`: it does not wait for who is connected

    def _make(self, programs: Path, user: str | None) -> None:
        """A new cluster, beside its place until it is whole."""
        private = os.open(self._password, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(private, "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        half, read = self.data.with_name("postgres.new"), self.directory / "postgres.read"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700)
        shutil.copy2(self._password, read)  # for whoever reads it once, which may be somebody else
        if user:
            for path in (half, read):
                os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        command = [
            str(programs / "initdb"), "-D", str(half), "--username", USER, "--pwfile", str(read),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8",
        ]  # fmt: skip
        with self.daemon.log.open("ab") as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                user=user,
                group=_group(user),
                extra_groups=_groups(user, self.directory),
                check=False,
            )
        read.unlink()
        if done.returncode:
            raise Refused(f"initdb ended with status {done.returncode}; see {self.daemon.log}")
        half.rename(self.data)

    def _release(self, died: Note) -> None:
        """Remove the lock of a life that is over for sure.

        PostgreSQL goes by the number alone, which may be somebody else's after a reboot, and then does not start. As
        long as a process of that life works on the data the lock stays: it keeps a second life from them.
        """
        lock = self.data / "postmaster.pid"
        if not lock.exists() or lock.read_text().split("\n")[0] != str(died.pid):
            return
        if not any(_works_in(process, self.data) for process in psutil.process_iter()):
            lock.unlink()

    def _launch(self, programs: Path, user: str | None, port: int) -> None:
        settings = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "60",
        }
        command = [str(programs / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        for _ in range(ATTEMPTS):
            process = self.daemon.launch(
                command,
                _environment(),
                f"postgresql://{HOST}:{port}",
                stays=True,
                user=user,
                groups=_groups(user, self.directory) or (),
            )
            if self._comes_up(process, port):
                process.returncode = 0  # whoever ends it does so by its number
                return
            self.end()
            time.sleep(1)
        raise Refused(f"PostgreSQL did not come up; see {self.daemon.log}:\n{self.daemon.last_words()}")

    def _comes_up(self, process: subprocess.Popen[bytes], port: int) -> bool:
        """Wait until it takes questions, and make the database of Prefect in it; whether it did."""
        import asyncpg

        password = self._password.read_text().strip()

        async def make() -> None:
            connection = await asyncpg.connect(
                host=HOST, port=port, user=USER, password=password, database="postgres", timeout=5
            )
            try:
                with contextlib.suppress(asyncpg.DuplicateDatabaseError):
                    await connection.execute(f"create database {DATABASE}")
            finally:
                await connection.close()

        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                asyncio.run(make())
            except (OSError, TimeoutError, asyncpg.CannotConnectNowError):
                time.sleep(0.2)
            else:
                return True
        return False


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()) == folder.resolve()
    except psutil.Error:  # it ends just now, has ended, or is none of ours
        return False


def _programs() -> Path:
    """The folder of PostgreSQL's programs, the newest where there are several.

    Raises:
        Refused: there is none.
    """
    for folder in _folders():
        if all((folder / name).exists() for name in ("postgres", "initdb")):
            return folder
    raise Refused(
        "PostgreSQL is not installed here (postgres and initdb): install it (apt install postgresql), or state a "
        f"database of yours: --database {SCHEME}user:password@host/name"
    )


def _folders() -> Iterator[Path]:
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin")  # Debian's: on nobody's PATH
    yield from sorted(versions, key=lambda path: int(path.parent.name.partition(".")[0]), reverse=True)


def _runs_as(directory: Path) -> str | None:
    """Whom our own cluster runs as; None: as we do.

    Raises:
        Refused: we are root, and there is nobody else, or nobody else can reach the folder.
    """
    if os.geteuid() != 0:
        return None
    remedy = f"start it as an ordinary user, or state a database: --database {SCHEME}user:password@host/name"
    if not _exists(UNPRIVILEGED):
        raise Refused(f"PostgreSQL does not run as root, and there is no user {UNPRIVILEGED} here: {remedy}")
    closed = [folder for folder in directory.parent.parents if not folder.stat().st_mode & 0o001]
    if closed:
        raise Refused(
            f"PostgreSQL does not run as root, and the user {UNPRIVILEGED} cannot pass {closed[-1]}: set "
            f"NIGHTSHIFT_HOME to a folder that others can pass, or {remedy}"
        )
    # Our group may pass them, and PostgreSQL is in it as well; nobody can read more than before.
    for folder in (directory, directory.parent):
        folder.chmod(folder.stat().st_mode | 0o010)
    return UNPRIVILEGED


def _groups(user: str | None, directory: Path) -> tuple[int, ...] | None:
    """The group that may pass our folders, for somebody else who has to."""
    return None if user is None else tuple({directory.stat().st_gid, directory.parent.stat().st_gid})


def _environment() -> dict[str, str]:
    """What PostgreSQL gets of ours: none of our keys, least of all where it is somebody else."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
