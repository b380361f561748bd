"""The verbs that show campaigns: list, status, report, logs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from flows.cli.options import Json, switch

if TYPE_CHECKING:
    from tasks.store.ledger import Ledger


def list_(*, json: Json = False) -> int:
    """List all campaigns, the newest last.

    Example: nightshift list
    """
    from environments.plugins import Refused
    from flows.status import summary
    from flows.views import overview, terminal
    from tasks.store.ledger import Ledger, campaigns
    from tasks.system.home import home

    summaries, damaged = [], False
    for name in campaigns():
        try:
            summaries.append(summary(Ledger.open(name)))
        except Refused as fault:  # of one, which must not hide the others
            damaged = True
            remedy = f"restore it, or move {home() / name} out of the home"
            print(f"nightshift: campaign {name!r} is left out: {fault}: {remedy}", file=sys.stderr)
    if json:
        terminal.print_json(summaries)
    else:
        for line in overview.campaign_lines(summaries):
            terminal.put(terminal.console(), line)
    return int(damaged)


def status(
    campaign: str | None = None,
    /,
    *,
    last: Annotated[
        int | None, Parameter("--last", help="Show this many trials, the latest.", validator=Number(gte=1))
    ] = None,
    watch: Annotated[bool, switch("--watch", "Follow it while it runs; Ctrl-C leaves it running.")] = False,
    json: Json = False,
    csv: Annotated[bool, switch("--csv", "Print the trials as CSV.")] = False,
) -> int:
    """Show CAMPAIGN (default: the newest): its state, its champion against the baseline, its trials.

    Example: nightshift status cartpole-1 --watch
    """
    from environments.plugins import Refused
    from tasks.store.ledger import Ledger

    if watch + json + csv > 1:
        raise Refused("--watch, --json and --csv exclude each other: name one")
    ledger = Ledger.open(campaign or newest())
    if csv:
        from flows.views.dataframe import load_history

        trials = load_history(ledger.campaign.name)
        print((trials.tail(last) if last else trials).to_csv(index=False), end="")
        return 0
    if watch:
        return _watch(ledger.campaign.name)
    print_status(ledger, json, last)
    return 0


def report(
    *campaigns: str,
    all: Annotated[bool, switch("--all", "Write index.html, the page of all campaigns, instead.")] = False,
    serve: Annotated[bool, switch("--serve", "Then serve all reports on this machine, behind a login.")] = False,
) -> int:
    """Write report.html of CAMPAIGN (default: the newest); of several, a page that compares them too.

    Example: nightshift report cartpole-1
    """
    from environments.plugins import Refused
    from flows.report.seeing import record
    from flows.report.write import REPORT, write_comparison, write_index, write_report
    from flows.views.terminal import short
    from tasks.store.campaign_lock import is_running
    from tasks.store.ledger import Ledger
    from tasks.system.home import home

    if all and campaigns:
        raise Refused(f"report --all is the page of all campaigns: leave out {' '.join(campaigns)}, or --all")
    names = () if all or (serve and not campaigns) else dict.fromkeys(campaigns or (newest(),))
    ledgers = [Ledger.open(name) for name in names]
    for ledger in ledgers:
        if not is_running(ledger):
            record(ledger, ledger.campaign.isolation)
    if len(ledgers) == 1:
        write_report(ledgers[0])
        written = ledgers[0].path / REPORT
    else:
        written = write_comparison(ledgers) if ledgers else write_index()
    if serve:
        from flows.report.served import serve as serve_reports

        return serve_reports(f"/{written.relative_to(home()).as_posix()}")
    print(short(written))
    return 0


def logs(
    campaign: str,
    trial: int | None = None,
    /,
    *,
    attempt: Annotated[int | None, Parameter("--attempt", help="Number of the attempt. Default: current.")] = None,
    follow: Annotated[bool, switch(["--follow", "-f"], "Continue as more is printed.")] = False,
) -> int:
    """Print the training and evaluation output of TRIAL (default: the newest) of CAMPAIGN.

    Example: nightshift logs cartpole-1 3 --follow
    """
    from environments.plugins import Refused
    from flows.views.terminal import short
    from tasks.store import campaign_lock
    from tasks.store.ledger import Ledger

    ledger = Ledger.open(campaign)
    numbers = sorted(int(path.name) for path in ledger.trials.iterdir() if path.name.isdigit())
    if not numbers:
        raise Refused(f"campaign {campaign!r} has no trial yet")
    number = numbers[-1] if trial is None else trial
    if number not in numbers:
        raise Refused(f"campaign {campaign!r} has no trial {number}: it has 0 to {numbers[-1]}")
    if attempt is not None and not 1 <= attempt <= ledger.attempt(number):
        raise Refused(f"trial {number} of {campaign!r} has no attempt {attempt}: it has {ledger.attempt(number)}")
    folder, offsets, last, is_over = ledger.place(number, attempt=attempt), dict[Path, int](), None, False
    while not is_over:
        is_over = not follow or folder.trial.is_file() or not campaign_lock.is_running(ledger)
        last = _print_new(folder.path, number, offsets, last, whole=is_over)
        time.sleep(0.0 if is_over else 0.2)
    if last is None:
        print(f"trial {number} has printed nothing: {short(folder.log)}")
    return 0


def newest() -> str:
    """The name of the newest campaign.

    Raises:
        Refused: there is none.
    """
    from environments.plugins import Refused
    from tasks.store.ledger import campaigns
    from tasks.system.home import home

    if not campaigns():
        raise Refused(f"there is no campaign in {home()} yet: begin one with `nightshift run cartpole`")
    return campaigns()[-1]


def print_status(ledger: Ledger, as_json: bool, last: int | None = None) -> int:
    """Print a campaign's status; the exit code: 1 if the campaign failed, else 0.

    Args:
        last: How many trials are shown; None: all of them.
    """
    from flows.status import document
    from flows.views import overview, terminal
    from flows.watch import live_view

    found = document(ledger)
    if as_json:
        terminal.print_json(found | {"trials": found["trials"][-last:]} if last else found)
    else:
        console = terminal.console()
        overview.show(found, ledger.path, console, last)
        if found["state"] == "running" and terminal.is_screen(console):
            terminal.put(console, live_view(terminal.cleaned(found)))
    return 1 if found["state"] == "failed" else 0


def _watch(name: str) -> int:
    """Show a campaign while it runs, and its status; its exit code, 130 if it was interrupted."""
    from flows.status import state
    from flows.views.terminal import console
    from flows.watch import CampaignWatch
    from tasks.store import campaign_lock
    from tasks.store.ledger import Ledger

    ledger = Ledger.open(name)
    try:
        with CampaignWatch(name, console()):
            while campaign_lock.is_running(ledger):
                time.sleep(0.2)
    except KeyboardInterrupt:
        print(f"\n{name} goes on; nightshift status {name} --watch shows it again")
        return 0
    print()
    code = print_status(ledger, as_json=False)
    return 130 if state(ledger) == "interrupted" else code


def _print_new(folder: Path, number: int, offsets: dict[Path, int], last: Path | None, whole: bool) -> Path | None:
    """Print what is new in the logs of a trial's runs, without control characters; the log that was printed last.

    Args:
        offsets: How much of each log was printed, which is brought up to date.
        last: The log that was printed last before: only another one gets a heading.
        whole: Whether to print an unfinished last line too.
    """
    from flows.views.terminal import short
    from tasks.store.workspace import TrialDir
    from tasks.system.redact import clean

    others = sorted(folder.parent.glob(f"{folder.name}-*"), key=lambda path: (len(path.name), path.name))
    for run in (folder, *others):
        part = run.name.removeprefix(folder.name).replace("-", " ").strip()
        for what, path in (("training", TrialDir(run).log), ("under judgement", TrialDir(run).judge_log)):
            if not path.is_file():
                continue
            with path.open("rb") as file:
                file.seek(offsets.get(path, 0))
                new = file.read()
            new = new if whole else new[: new.rfind(b"\n") + 1]
            if new and path != last:
                print(f"== trial {number}{f' ({part})' if part else ''}, {what}: {short(path)}")
            for line in clean(new.decode(errors="replace")):
                print(line)
            offsets[path] = offsets.get(path, 0) + len(new)
            last = path if new else last
    sys.stdout.flush()
    return last
