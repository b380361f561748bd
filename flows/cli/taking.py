"""The verbs that take a champion along: export, upload."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from environments.plugins import Refused
from flows.cli.arguments import writing
from flows.cli.options import Json, switch
from flows.cli.seeing import newest
from flows.views.terminal import clean, print_json, short
from tasks.store.ledger import Ledger


def export(
    campaign: str | None = None,
    /,
    *,
    to: Annotated[
        Path | None, Parameter("--to", help="Write its program, checkpoint and model card to this folder.")
    ] = None,
    git: Annotated[
        str | None, Parameter("--git", help="Make this branch, of the repository here, at the champion's commit.")
    ] = None,
) -> int:
    """Write the champion of CAMPAIGN (default: the newest) to a folder, or to a branch of your repository.

    Example: nightshift export night --to ./champion
    """
    if to is None and git is None:
        raise Refused("say what to write: --to FOLDER, --git BRANCH, or both")
    ledger = Ledger.open(campaign or newest())
    from flows.export import branch, folder

    if to is not None:
        with writing(to, "--to"):
            folder.check_folder(to)
    if git is not None:  # git refuses before a folder is there; a branch without a folder is whole
        words, body = branch.make_branch(ledger, Path.cwd(), git)
        print(f"{words}\npull request: {short(body)}")
    if to is not None:
        with writing(to, "--to"):
            print(short(folder.export(ledger, to)))
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
    json: Json = False,
) -> int:
    """Upload the champion of CAMPAIGN (default: the newest) to a repository of the Hugging Face hub.

    Example: nightshift upload night --repo me/lander --dry-run
    """
    from flows.export import upload as hub

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    hub.library()  # refuses where it is not installed
    ledger = Ledger.open(campaign or newest())
    if dry_run:
        _print_plan(ledger, repo, public, uncertified, json)
        return 0
    done = hub.upload(ledger, repo, public=public, uncertified=uncertified, say=say)
    if json:
        print_json(done)
    elif done["again"]:
        print(f"version {done['version']} has all of it already, so nothing was uploaded: {done['url']}")
    else:
        print(f"version {done['version']} ({done['visibility']}): {done['url']}")
    return 0


def _print_plan(ledger: Ledger, repo: str, public: bool, uncertified: bool, as_json: bool) -> None:
    """Print what would be uploaded, without a request."""
    from flows.export.upload import BRANCH, CARD, endpoint, free_name, packed

    address, visibility = f"{endpoint()}/{repo}", "public" if public else "private"
    with packed(ledger, uncertified) as package:
        version = free_name(package.campaign, ())
        if as_json:
            print_json(
                {
                    "repository": address, "visibility_if_new": visibility, "branch": BRANCH, "version": version,
                    "message": package.title, "files": package.files, "left_out": package.left_out,
                    "card": package.card,
                }
            )  # fmt: skip
            return
        print(f"would upload to {address}, branch {BRANCH}, tag {version} (or -v2 where that is taken)")
        print(f"{visibility} if it is new; a repository that exists stays as it is")
        print(f"commit: {package.title}")
        width = max(map(len, package.files))
        for name, size in package.files.items():
            print(f"  {clean(name).ljust(width)}  {size:>13,} bytes")
        for name in package.left_out:
            print(f"left out: {clean(name)} (a link to a folder: the hub has no links)")
        print(f"{len(package.files)} files, {sum(package.files.values()):,} bytes; {CARD} begins:\n")
        for line in package.card.partition("\n## ")[0].splitlines():
            print(f"  {' ' * (len(line) - len(line.lstrip()))}{clean(line)}".rstrip())
