"""The verbs about this machine: up, down, doctor, prune, sync."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import Json, switch


def up(
    *,
    auth: Annotated[bool, switch("--auth", "Have Prefect and MLflow ask for a login.", "--no-auth")] = True,
    database: Annotated[
        str | None,
        Parameter("--database", help="PostgreSQL for the server's data, postgresql+asyncpg://... Default: a file."),
    ] = None,
) -> int:
    from flows.cli.machine import up

    return up.up(auth, database)


def down(*, now: Annotated[bool, switch("--now", "Interrupt campaigns that run on it.")] = False) -> int:
    from flows.cli.machine import up

    return up.down(now)


def doctor(*, json: Json = False) -> int:
    from flows.cli.doctor import report

    return report.doctor(json)


def prune(
    campaign: str | None = None,
    *,
    keep: Annotated[
        Literal["champions", "kept"],
        Parameter("--keep", help="Trials whose files stay: champions only, or all that were kept."),
    ] = "champions",
    dry_run: Annotated[bool, switch("--dry-run", "Only print what would be deleted.")] = False,
    json: Json = False,
) -> int:
    from flows.cli.machine import prune

    return prune.prune(campaign, keep, dry_run, json)


def sync(campaign: str | None = None, *, json: Json = False) -> int:
    from flows.cli.machine import sync

    return sync.sync(campaign, json)
