"""The `nightshift` command: its groups of verbs, and the exit code.

The verbs of a group are declared in its folder, and import the code that they run only when they run, so that
`--help` is quick. Exit codes: 0 finished; 1 failed; 2 refused before anything ran; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys

from cyclopts import App, CycloptsError, Group

from flows.cli.deciding import verbs as deciding
from flows.cli.machine import verbs as machine
from flows.cli.problems.verbs import env
from flows.cli.running import verbs as running
from flows.cli.seeing import verbs as seeing

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
GROUPS = {
    "Running": running.VERBS,
    "Seeing": seeing.VERBS,
    "Deciding": deciding.VERBS,
    "Problems": (env,),
    "Machine": machine.VERBS,
}


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
    group = Group(heading, sort_key=order)
    for verb in verbs:
        if isinstance(verb, App):
            verb.group = group
            app.command(verb)
        else:
            app.command(verb, group=group)


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
        code = app(exit_on_error=False, print_error=False, result_action="return_value")
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
