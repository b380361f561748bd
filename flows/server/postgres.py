"""The address of a PostgreSQL database for the Prefect server, from --database or NIGHTSHIFT_DATABASE."""

from __future__ import annotations

import asyncio
import os

from environments.plugins import Refused

VARIABLE = "NIGHTSHIFT_DATABASE"
SCHEME = "postgresql+asyncpg://"
FIRST_VERSION = 14
"""The oldest PostgreSQL that Prefect 3 supports."""


def stated(option: str | None) -> str | None:
    """The database address from --database, else from the environment, once it was connected to; None without one.

    No refusal contains the password.
    """
    source, url = ("--database", option) if option else (VARIABLE, os.environ.get(VARIABLE))
    if not url:
        return None
    if not url.startswith(SCHEME):
        raise Refused(f"{source} must begin with {SCHEME} (then user:password@host:port/name)")
    import asyncpg  # type: ignore[import-untyped]  # comes with Prefect

    async def inspect() -> tuple[int, bool]:
        connection = await asyncpg.connect("postgresql://" + url.removeprefix(SCHEME), timeout=10)
        try:
            trigram = await connection.fetchval("select 1 from pg_available_extensions where name = 'pg_trgm'")
            return connection.get_server_version().major, bool(trigram)
        finally:
            await connection.close()

    try:
        version, has_trigram = asyncio.run(inspect())
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as why:
        raise Refused(
            f"{source}: cannot connect to PostgreSQL ({type(why).__name__}): check the address and PostgreSQL's log"
        ) from why
    if version < FIRST_VERSION:
        raise Refused(f"{source}: PostgreSQL {version} is too old: Prefect needs {FIRST_VERSION} or newer")
    if not has_trigram:
        raise Refused(f"{source}: the extension pg_trgm is missing: install postgresql-contrib on its server")
    return url
