"""The `nightshift` command: its verbs by heading, and the exit code.

A verb is a function, and its docstring is its help. Exit codes: 0 finished; 1 failed; 2 refused before anything ran;
130 interrupted.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable

from cyclopts import App, CycloptsError, Group

from environments.plugins import Refused
from flows.cli import deciding, doctor, machine, problems, running, seeing, services, taking

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
VERBS: dict[str, tuple[Callable[..., int] | App, ...]] = {
    "Running": (running.run, running.resume, running.stop, running.rerun, running.try_),
    "Seeing": (seeing.list_, seeing.status, seeing.report, seeing.logs, seeing.replay),
    "Deciding": (deciding.certify, deciding.compare, deciding.propose, deciding.approve, deciding.reject),
    "Taking": (taking.export, taking.upload),
    "Problems": (problems.env,),
    "Machine": (services.up, services.down, machine.prune, machine.sync, doctor.doctor),
}
"""The verbs by the heading above them. A name that Python has itself ends with _ there."""

app = App(
    name="nightshift",
    help="RL research while you sleep.",
    help_format="plaintext",
    group_commands=Group("Help", sort_key=len(VERBS)),
    version_flags=["--version"],
    version=lambda: importlib.metadata.version("nightshift-rl"),
)


def name_of(verb: Callable[..., int] | App) -> str:
    """A verb as it is typed."""
    return verb.name[0] if isinstance(verb, App) else verb.__name__.rstrip("_")


for order, (heading, verbs) in enumerate(VERBS.items()):
    group = Group(heading, sort_key=order)
    for place, verb in enumerate(verbs):
        if isinstance(verb, App):
            verb.group, verb.sort_key = group, place
            app.command(verb)
        else:
            app.command(verb, name=name_of(verb), group=group, sort_key=place)


def _interrupt(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C; ignore a second one."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


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
    except (Refused, CycloptsError) as refused:
        print(f"nightshift: {refused}", file=sys.stderr)
        code = REFUSED
    sys.exit(code if isinstance(code, int) else FINISHED)
