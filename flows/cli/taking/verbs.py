"""The verbs that take a champion along: export, upload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import Json, switch


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
    """Write the champion of CAMPAIGN (default: the newest) to a folder, or to a branch of your repository.

    Example: nightshift export lunar_lander-1 --to champion
    """
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
        from flows.cli.arguments import writing
        from flows.export.folder import export as write
        from flows.views.terminal import short

        with writing(to, "--to"):
            written = write(ledger, to)
        print(short(written))
    if git is not None:
        print(make_branch(ledger, Path.cwd(), git))
    return 0


def upload(
    campaign: str | None = None,
    *,
    repo: Annotated[str, Parameter("--repo", help="Model repository, such as me/lander. Made if there is none.")],
    public: Annotated[
        bool, switch("--public", "Make a new repository public; without it, private. One that exists stays as it is.")
    ] = False,
    uncertified: Annotated[bool, switch("--uncertified", "Upload a champion that is not certified.")] = False,
    dry_run: Annotated[bool, switch("--dry-run", "Print what would be uploaded where, without any request.")] = False,
    list_: Annotated[bool, switch("--list", "List what was uploaded to the repository.")] = False,
    json: Json = False,
) -> int:
    """Upload the champion of CAMPAIGN (default: the newest) to a repository of the Hugging Face hub.

    Example: nightshift upload lunar_lander-1 --repo me/lander
    """
    from environments.plugins import Refused
    from flows.cli.taking import upload

    if list_ and (campaign or public or uncertified or dry_run):
        raise Refused("--list goes with --repo and --json alone: it lists a repository, whatever the campaign")
    if list_:
        upload.list_versions(repo, json)
    elif dry_run:
        upload.show_plan(campaign, repo, public, uncertified, json)
    else:
        upload.send(campaign, repo, public, uncertified, json)
    return 0
