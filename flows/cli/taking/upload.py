"""`nightshift upload`: a champion on the Hugging Face hub, what would be uploaded, and what was."""

from __future__ import annotations

import sys

from flows.cli.seeing import newest
from flows.export.hub import BRANCH, check_repository_name, endpoint
from flows.export.package import CARD, Package, packed
from flows.export.upload import upload, versions
from flows.views import terminal
from tasks.store.ledger import Ledger


def list_versions(repository: str, as_json: bool) -> None:
    found = versions(repository, _say)
    if as_json:
        terminal.print_json([one.document for one in found])
        return
    rows = [
        (one.version.name, one.version.campaign, one.version.trial, one.version.gain, f"{one.created:%Y-%m-%d %H:%M}")
        for one in found
    ]
    heads = ("version", "campaign", "trial", "certified gain", "date")
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(terminal.clean(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not found:
        print(f"nothing of Nightshift's is in {repository} yet")


def show_plan(campaign: str | None, repository: str, public: bool, uncertified: bool, as_json: bool) -> None:
    """Print what would be uploaded, without a request."""
    check_repository_name(repository)
    address = f"{endpoint()}/{repository}"
    visibility = "public" if public else "private"
    with packed(_ledger(campaign), uncertified) as package:
        if as_json:
            terminal.print_json(
                {
                    "repository": address, "visibility_if_new": visibility, "branch": BRANCH,
                    "version": package.version.name, "message": package.version.title,
                    "content": package.version.content, "files": package.files, "left_out": package.left_out,
                    "card": package.card,
                }
            )  # fmt: skip
            return
        print(f"would upload to {address}, branch {BRANCH}, tag {package.version.name} (or -v2 where that is taken)")
        print(f"{visibility} if it is new; a repository that exists stays as it is")
        print(f"commit: {package.version.title}")
        _print_files(package)
        print(f"\n{CARD} begins:\n")
        print("\n".join(_indented(line) for line in _beginning(package.card)))


def send(campaign: str | None, repository: str, public: bool, uncertified: bool, as_json: bool) -> None:
    check_repository_name(repository)
    done = upload(_ledger(campaign), repository, public=public, uncertified=uncertified, say=_say)
    if as_json:
        terminal.print_json(
            {
                "repository": done.repository, "visibility": done.visibility, "version": done.version.name,
                "commit": done.commit, "url": done.url, "again": done.again,
            }
        )  # fmt: skip
    elif done.again:
        print(f"version {done.version.name} has all of it already, so nothing was uploaded: {done.url}")
    else:
        print(f"version {done.version.name} ({done.visibility}): {done.url}")


def _ledger(campaign: str | None) -> Ledger:
    return Ledger.open(campaign or newest())


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print_files(package: Package) -> None:
    width = max(map(len, package.files))
    for name, size in package.files.items():
        print(f"  {name.ljust(width)}  {size:>13,} bytes")
    print(f"{len(package.files)} files, {package.size:,} bytes")
    for name, why in package.left_out.items():
        print(f"left out: {name} ({why})")


def _indented(line: str) -> str:
    """A line of a card, safe to print."""
    indent = len(line) - len(line.lstrip(" "))
    return f"  {' ' * indent}{terminal.clean(line)}".rstrip()


def _beginning(card: str) -> list[str]:
    """A card up to its first section."""
    return card.partition("\n## ")[0].rstrip().split("\n")
