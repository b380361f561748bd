"""The verbs that take a champion along: export, upload."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from flows.cli.options import Json
from flows.cli.seeing import newest
from flows.views.terminal import clean, print_json, short
from tasks.store.ledger import Ledger
from tasks.system.redact import clean as lines


def export(campaign: str | None = None, /, *, to: Path | None = None, git: str | None = None) -> int:
    """Write the champion of CAMPAIGN (default: the newest) to a folder, or to a branch of your repository.

    Example: nightshift export night --to ./champion

    Args:
        to: Write its program, checkpoint and model card to this folder.
        git: Make this branch, of the repository here, at the champion's commit.
    """
    if to is None and git is None:
        raise Refused("say what to write: --to FOLDER, --git BRANCH, or both")
    ledger = Ledger.open(campaign or newest())
    from flows.export import branch, folder

    if to is not None:
        folder.check_folder(to)
    if git is not None:  # git refuses before a folder is there; a branch without a folder is whole
        words, body = branch.make_branch(ledger, Path.cwd(), git)
        print(f"{words}\npull request: {short(body)}")
    if to is not None:
        print(short(folder.export(ledger, to)))
    return 0


def upload(
    campaign: str | None = None,
    /,
    *,
    repo: str,
    public: bool = False,
    uncertified: bool = False,
    dry_run: bool = False,
    json: Json = False,
) -> int:
    """Upload the champion of CAMPAIGN (default: the newest) to a repository of the Hugging Face hub.

    Example: nightshift upload night --repo me/lander --dry-run

    Args:
        repo: Model repository, such as me/lander. Made if there is none.
        public: Make a new repository public; without it, private. One that exists stays as it is.
        uncertified: Upload a champion that is not certified.
        dry_run: Print what would be uploaded where, without any request.
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
    from flows.export.upload import BRANCH, endpoint, free_name, packed

    with packed(ledger, uncertified) as package:
        plan: dict[str, Any] = {
            "repository": f"{endpoint()}/{repo}", "visibility_if_new": "public" if public else "private",
            "branch": BRANCH, "version": free_name(package.campaign, ()), "message": package.title,
            "files": package.files, "left_out": package.left_out, "card": package.card,
        }  # fmt: skip
        head = package.card.partition("\n## ")[0]
    if as_json:
        print_json(plan)
        return
    print(f"would upload to {plan['repository']} ({plan['visibility_if_new']} if it is new), branch {BRANCH}")
    print(f"tag {plan['version']} (or -v2 where that is taken): {plan['message']}")
    for name, size in plan["files"].items():
        print(f"  {clean(name)}  {size:,} bytes")
    for name in plan["left_out"]:
        print(f"left out: {clean(name)} (a link to a folder: the hub has no links)")
    print("\n".join(["the card begins:\n", *lines(head)]))
