"""The verbs that take a champion along: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def export(
    campaign: str | None = None,
    *,
    to: Annotated[
        Path | None, Parameter("--to", help="Write its program, checkpoint and model card to this folder.")
    ] = None,
    git: Annotated[
        str | None, Parameter("--git", help="Make this branch, of the repository here, at the champion's commit.")
    ] = None,
) -> int:
    from environments.plugins import Refused
    from flows.cli.seeing.status import newest
    from tasks.store.ledger import Ledger

    if to is None and git is None:
        raise Refused("say what to write: --to FOLDER, --git BRANCH, or both")
    ledger = Ledger.open(campaign or newest())
    if git is not None:
        from flows.export.branch import check_branch, make_branch

        check_branch(ledger, Path.cwd(), git)  # all is checked before anything is written
    if to is not None:
        from flows.export.folder import export as write
        from flows.views.terminal import short

        print(short(write(ledger, to)))
    if git is not None:
        print(make_branch(ledger, Path.cwd(), git))
    return 0
