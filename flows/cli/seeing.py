"""The verbs that show campaigns: status, report, replay, logs; and export, which takes a champion along."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from flows.cli.options import Json
from flows.status import document, state, summaries
from flows.views import overview, terminal
from flows.watch import CampaignWatch, live_view
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, campaigns
from tasks.store.workspace import TrialDir
from tasks.system.home import home
from tasks.system.redact import clean


def status(campaign: str | None = None, /, *, all: bool = False, watch: bool = False, json: Json = False) -> int:
    """Show CAMPAIGN (default: the newest): its state, its champion against the baseline, its trials.

    Example: nightshift status cartpole-1 --watch

    Args:
        all: List all campaigns instead, the newest last.
        watch: Follow it while it runs; Ctrl-C leaves it running.
    """
    if all:
        if campaign or watch:
            raise Refused("--all lists every campaign: leave out CAMPAIGN and --watch, or --all")
        return _list(json)
    ledger = Ledger.open(campaign or newest())
    if not watch:
        print_status(ledger, json)
        return 0
    if json:
        raise Refused("--watch and --json exclude each other: name one")
    return _watch(ledger)


def _list(as_json: bool) -> int:
    """Print a line for every campaign; 1 if one cannot be read."""
    lines = summaries()
    readable = [line for line in lines if line["state"] != "unreadable"]
    for damaged in (line for line in lines if line not in readable):
        words = f"campaign {damaged['campaign']!r} is left out: {damaged['headline']}"
        print(f"nightshift: {terminal.clean(words)}", file=sys.stderr)
    if as_json:
        terminal.print_json(readable)
    else:
        for line in overview.campaign_lines(readable):
            terminal.put(terminal.console(), line)
    return int(len(readable) < len(lines))


def report(*campaigns: str) -> int:
    """Write report.html of each CAMPAIGN (default: the newest), and index.html, the page of all campaigns.

    Example: nightshift report cartpole-1
    """
    from flows.report.page import REPORT, record_episode, write_index, write_report

    for ledger in [Ledger.open(name) for name in dict.fromkeys(campaigns or (newest(),))]:
        if not campaign_lock.is_running(ledger):
            record_episode(ledger, ledger.campaign.isolation)
        write_report(ledger)
        print(terminal.short(ledger.path / REPORT))
    print(terminal.short(write_index()))
    return 0


def replay() -> int:
    """Play a recorded night in ten seconds, and open its report.

    Example: nightshift replay
    """
    import webbrowser

    from flows import replay as recording

    console = terminal.console()
    ledger = recording.play(recording.NIGHT, console)
    console.print()
    for line in overview.outcome(terminal.cleaned(document(ledger))):
        console.print(line, highlight=False)
    page = ledger.path / "report.html"
    console.print(f"\nreport: {terminal.short(page)}", soft_wrap=True)  # it is to be copied
    if terminal.is_screen(console) and {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(page.as_uri())
    return 0


def logs(campaign: str, trial: int | None = None, /) -> int:
    """Print the training and evaluation output of TRIAL (default: the newest) of CAMPAIGN.

    Example: nightshift logs cartpole-1 3
    """
    ledger = Ledger.open(campaign)
    numbers = sorted(int(path.name) for path in ledger.trials.iterdir() if path.name.isdigit())
    number = max(numbers, default=0) if trial is None else trial
    if number not in numbers:
        raise Refused(f"campaign {campaign!r} has no trial {number} yet: it has {len(numbers)}")
    first = ledger.place(number).path
    others = sorted(first.parent.glob(f"{first.name}-*"), key=lambda path: (len(path.name), path.name))
    for run in (first, *others):
        part = run.name.removeprefix(first.name).replace("-", " ").strip()
        for what, log in (("training", TrialDir(run).log), ("under judgement", TrialDir(run).judge_log)):
            if log.is_file():
                heading = f"== trial {number}{f' ({part})' if part else ''}, {what}: {terminal.short(log)}"
                print(heading, *clean(log.read_text(errors="replace")), sep="\n")
    return 0


def export(
    campaign: str | None = None,
    /,
    *,
    to: Path | None = None,
    git: str | None = None,
    hub: str | None = None,
    public: bool = False,
    uncertified: bool = False,
    json: Json = False,
) -> int:
    """Write the champion of CAMPAIGN (default: the newest) to a folder, a branch or the Hugging Face hub.

    Example: nightshift export night --to ./champion --hub me/lander

    Args:
        to: Write its program, checkpoint and model card to this folder.
        git: Make this branch, of the repository here, at the champion's commit.
        hub: Upload them as a version of this model repository, such as me/lander, which is made if there is none.
        public: Make a new repository of the hub public; without it, private. One that exists stays as it is.
        uncertified: Upload a champion that is not certified.
    """
    if to is None and git is None and hub is None:
        raise Refused("say what to write: --to FOLDER, --git BRANCH or --hub REPOSITORY, or several of them")
    from flows.export import branch, folder, upload

    ledger, done = Ledger.open(campaign or newest()), dict[str, Any]()
    if hub is not None:
        upload.library()  # refuses where it is not installed
    if git is not None:  # before the folder: given again, it makes the same branch
        words, body = branch.make_branch(ledger, Path.cwd(), git)
        done["branch"] = f"{words}\npull request: {terminal.short(body)}"
    if to is not None:
        done["folder"] = terminal.short(folder.export(ledger, to))
    if hub is not None:
        done |= upload.upload(ledger, hub, public=public, uncertified=uncertified)
    terminal.tell(done, "\n".join(done[key] for key in ("branch", "folder", "url") if key in done), json)
    return 0


def newest() -> str:
    """The name of the newest campaign. Refused if there is none."""
    if not (names := campaigns()):
        raise Refused(f"there is no campaign in {home()} yet: begin one with `nightshift run cartpole`")
    return names[-1]


def print_status(ledger: Ledger, as_json: bool) -> int:
    """Print a campaign's status; the exit code: 1 if the campaign failed, else 0."""
    facts = document(ledger)
    if as_json:
        terminal.print_json(facts)
    else:
        console = terminal.console()
        overview.show(facts, ledger.path, console)
        if facts["state"] == "running" and terminal.is_screen(console):
            terminal.put(console, live_view(terminal.cleaned(facts)))
    return 1 if facts["state"] == "failed" else 0


def _watch(ledger: Ledger) -> int:
    """Show a campaign while it runs, and its status; its exit code, 130 if it was interrupted."""
    name = ledger.campaign.name
    try:
        with CampaignWatch(name, terminal.console()):
            while campaign_lock.is_running(ledger):
                time.sleep(0.2)
    except KeyboardInterrupt:
        print(f"\n{name} goes on; nightshift status {name} --watch shows it again")
        return 0
    print()
    code = print_status(ledger, as_json=False)
    return 130 if state(ledger) == "interrupted" else code
