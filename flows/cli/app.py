"""The `nightshift` command: its groups of verbs, and the exit code.

The verbs of a group are declared in its module, which is imported when one of them is asked for; they import the code
that they run only when they run. So `--help` is quick. Exit codes: 0 finished; 1 failed; 2 refused before anything ran;
130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys

from cyclopts import App, CycloptsError, Group

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
GROUPS = {
    "Running": {
        "run": "Run a campaign in ENVIRONMENT (a name, a folder or a spec.toml), or resume the one of that --name.",
        "resume": "Resume CAMPAIGN (default: the newest unfinished one). Options that change a score are fixed.",
        "stop": "Stop CAMPAIGN after the current trial. It can be resumed.",
        "rerun": "Run TRIAL of CAMPAIGN again, and decide it as the newest; the first attempt is kept.",
        "try": "Train and evaluate outside of any campaign: once, or --runs times to see the spread between runs.",
    },
    "Seeing": {
        "list": "List all campaigns, the newest last.",
        "status": "Show CAMPAIGN (default: the newest): its state, its champion against the baseline, its trials.",
        "watch": "Follow a running CAMPAIGN (default: the newest). Ctrl-C leaves it running.",
        "report": "Write report.html of CAMPAIGN (default: the newest); of several, a page that compares them too.",
        "logs": "Print the training and evaluation output of TRIAL (default: the newest) of CAMPAIGN.",
    },
    "Deciding": {
        "certify": "Test the champion of CAMPAIGN (default: the newest) against its baseline on fresh runs.",
        "compare": "Compare fresh runs of A and B: baseline, JSON, a .json or .diff file, CAMPAIGN, "
        "CAMPAIGN/baseline, CAMPAIGN/7.",
        "propose": "Put a proposal into CAMPAIGN's inbox. It is tried next.",
        "approve": "Approve a pending TRIAL of CAMPAIGN (default: the only one).",
        "reject": "Reject a pending TRIAL of CAMPAIGN (default: the only one).",
    },
    "Taking": {
        "export": "Write the champion of CAMPAIGN (default: the newest) to a folder, or to a branch of your "
        "repository.",
        "upload": "Upload the champion of CAMPAIGN (default: the newest) to a repository of the Hugging Face hub.",
    },
    "Problems": {"env": "List, create, import, check and prepare environments."},
    "Machine": {
        "up": "Start a Prefect server, a worker and the MLflow UI on this machine. They keep running.",
        "down": "Stop what up started. Refused while a campaign runs on it.",
        "server": "Set up a Prefect server: automations and blocks, work pools, notifications.",
        "doctor": "Check whether this machine is ready, for one environment too. Changes nothing without --train.",
        "prune": "Delete the large files of trials of CAMPAIGN (default: every campaign that is not running).",
        "sync": "Send waiting records of CAMPAIGN (default: all) to MLflow.",
    },
}
"""The verbs by the heading above them, in the module flows.cli.<heading>, with their help."""
FOLDERS = ("Seeing", "Problems", "Machine")
"""Groups whose verbs stand in the module flows.cli.<heading>.verbs."""
PYTHON_NAMES = {"try": "try_", "list": "list_"}
USAGE = {
    "run": {"usage": "Usage: nightshift run [OPTIONS] ENVIRONMENT"},
    "resume": {"usage": "Usage: nightshift resume [OPTIONS] [CAMPAIGN]"},
}
"""Stated where Cyclopts would take long to make it from so many options."""


def _version() -> str:
    from importlib.metadata import version

    return version("nightshift-rl")


app = App(
    name="nightshift",
    help="RL research while you sleep.",
    help_format="plaintext",  # Markdown takes as long to load as all else
    group_commands=Group("Help", sort_key=len(GROUPS)),
    version_flags=["--version"],
    version=_version,
)
for order, (heading, verbs) in enumerate(GROUPS.items()):
    group, module = Group(heading, sort_key=order), f"flows.cli.{heading.lower()}{'.verbs' * (heading in FOLDERS)}"
    for verb, text in verbs.items():
        function = f"{module}:{PYTHON_NAMES.get(verb, verb)}"
        app.command(function, name=verb, help=text, group=group, **USAGE.get(verb, {}))


def _interrupt(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C; ignore a second one."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _refusals() -> tuple[type[Exception], ...]:
    """Errors of whoever typed the command. Python asks for them only once something was raised."""
    from environments.plugins import Refused

    return Refused, CycloptsError


def main() -> None:
    """The console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, where a closed pipe is expected
    except KeyboardInterrupt:
        print("nightshift: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FINISHED
    except OSError as fault:  # the machine: no space, no permission, a server that went away
        print(f"nightshift: {fault}", file=sys.stderr)
        code = FAILED
    except _refusals() as refused:
        print(f"nightshift: {refused}", file=sys.stderr)
        code = REFUSED
    sys.exit(code if isinstance(code, int) else FINISHED)
