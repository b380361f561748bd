"""One night begun by a schedule, with everything that may break breaking on the way; it ends with its report.

    python -m benchmarks.night [--hours 8] [--environment lunar_lander] [--set KEY=VALUE ...] [--rule certify]
        [--proposer tpe] [--parallel 1] [--fidelity none] [--report FILE.html] [--store FILE.csv] [--folder NEW]
        [--json]

`nightshift up` in a home of its own, a deployment of the flow `campaign` with a schedule whose next time is two minutes
away, and nobody who starts the campaign. `nightshift up` is called again every minute, as from cron. At fixed shares of
the night these faults come, each with kill -9:

    engine      the process of the campaign
    worker      the worker that starts campaigns; the engine runs on
    training    the program of a run, which is that run's own end: a trial's is a crash with its reason
    mlflow      the MLflow server that the campaign tracks to, gone for a twentieth of the night
    disk        the disk of the home is filled up, so that the campaign stops; needs root, for a disk of its own

    back        seconds from the fault until its effect was over: until the campaign runs again (engine), there is a
                worker (worker), the next run begins (training), nothing waits for MLflow any more (mlflow), and
                after the disk has room the campaign runs again (disk)
    hands       interventions: commands that somebody had to type. A full disk takes one, `nightshift resume`
    lost        trials that had ended before the fault and are not the same after it

At the end there are the trials of the night, what ships, and the same three counts over all. A fault that the machine
does not allow is left out and named. --report copies the campaign's report; --folder keeps the home and the logs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.campaigns import Rows, surroundings
from benchmarks.scheduled_night import FaultRow, ScheduledNight, disk
from environments import plugins
from environments.plugins import Refused
from flows.cli.set_option import overrides_only


def summary(night: ScheduledNight) -> dict[str, Any]:
    """What came of the night."""
    found = night.status()
    numbers = [row["trial"] for row in found["trials"]]
    return {
        "campaign": night.campaign,
        "state": found["state"],
        "trials": len(numbers) - 1,
        "missing": len(set(range(len(numbers))) - set(numbers)),
        "lost": sum(row.lost for row in night.faults),
        "interventions": sum(row.hands for row in night.faults),
        "waiting_to_record": found["waiting_to_record"],
        "ships": found["shipped"],
        "certificate": (found["certificate"] or {}).get("words") or found["uncertified"],
        "hours": round(found["spent"]["seconds"] / 3600, 2),
    }


def show(night: ScheduledNight, figures: dict[str, Any]) -> None:
    console, table = Console(highlight=False, width=200), Table("fault", "minute", "back, s", "hands", "lost", "")
    for row in night.faults:
        back = "" if row.back is None else f"{row.back:.0f}"
        table.add_row(row.fault, f"{row.minute:g}", back, str(row.hands), str(row.lost), row.words)
    console.print(table)
    for name, value in figures.items():
        console.print(f"{name:<20} {value}")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers are ended, too
    parser = argparse.ArgumentParser(description="One night with everything breaking.")
    parser.add_argument("--hours", type=float, default=8.0, help="of the campaign (8)")
    parser.add_argument("--environment", default="lunar_lander", help="a bundled one, or a folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of environment.toml")
    parser.add_argument("--rule", choices=plugins.names("tasks.rules"), default="certify", help="as of a campaign")
    parser.add_argument("--proposer", choices=plugins.names("tasks.proposers"), default="tpe", help="as of a campaign")
    parser.add_argument("--parallel", type=int, default=1, help="as of a campaign")
    parser.add_argument("--fidelity", default="none", help="as of a campaign")
    parser.add_argument("--report", type=Path, help="copy the report there")
    parser.add_argument("--store", type=Path, help="CSV file to which the faults are added")
    parser.add_argument("--folder", type=Path, help="a new folder to run in, where logs and home stay")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    try:
        changes = overrides_only(options.set)
    except Refused as why:
        parser.error(str(why))
    kept = Rows(options.store, FaultRow) if options.store else None  # refused before the night, not after it
    environment = str(Path(options.environment).absolute()) if "/" in options.environment else options.environment
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nightshift-night-")))
        no_disk = stack.enter_context(disk(folder.absolute() / "disk"))
        asked = (environment, options.hours, changes, options.rule, options.proposer)
        night = ScheduledNight(folder.absolute(), *asked, options.parallel, options.fidelity)
        night.home.mkdir()
        if options.folder:  # off the disk of the night, once its servers have ended
            stack.callback(shutil.copytree, night.home, folder / "home", symlinks=True)
        stack.callback(night.end)
        try:
            night.start_mlflow()
            night.schedule()
            night.run({"disk": no_disk} if no_disk else {})
        except (RuntimeError, TimeoutError) as failed:
            sys.exit(f"{failed}; with --folder NEW the logs stay")
        finally:
            if kept:
                kept.add(*night.faults)
        figures = summary(night)
        written = [sys.executable, "-m", "flows.cli", "report", night.campaign]
        subprocess.run(written, env=surroundings(night.home), stdout=subprocess.DEVNULL, check=True)
        if options.report:
            shutil.copyfile(night.place / "report.html", options.report)
    if options.json:
        print(json.dumps({**figures, "faults": [vars(row) for row in night.faults]}, indent=2))
    else:
        show(night, figures)
    sys.exit(bool(figures["lost"] or figures["missing"] or any(row.failed for row in night.faults)))


if __name__ == "__main__":
    main()
