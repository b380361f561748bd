"""The `nightshift` command: its verbs by heading, and the exit code.

A verb is a function; its docstring is its help, and that of its options.
Exit codes: 0 finished; 1 failed; 2 refused before anything ran; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable

import httpx
from cyclopts import App, CycloptsError, Group, Parameter

from environments.plugins import Refused
from flows.cli import deciding, doctor, machine, problems, running, seeing, services
from flows.server.server_process import leave, settle_in
from tasks.sandbox.program import CannotStart
from tasks.system import interrupt
from tasks.system.home import home

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
VERBS: dict[str, tuple[Callable[..., int] | App, ...]] = {
    "Running": (running.run, running.resume, running.stop, running.rerun, running.try_),
    "Seeing": (seeing.status, seeing.report, seeing.logs, seeing.replay),
    "Deciding": (deciding.certify, deciding.compare, deciding.propose, deciding.approve, deciding.reject),
    "Taking": (seeing.export,),
    "Problems": (problems.env, problems.skill),
    "Machine": (services.up, services.down, machine.prune, machine.sync, doctor.doctor),
}
"""The verbs by the heading above them. Cyclopts drops the _ at the end of a name."""

app = App(
    name="nightshift",
    help="RL research while you sleep.",
    help_format="plaintext",
    default_parameter=Parameter(negative="", show_default=False),
    suppress_keyboard_interrupt=False,
    group_commands=Group("Help", sort_key=len(VERBS)),
    version_flags=["--version"],
    version=lambda: importlib.metadata.version("nightshift-rl"),
)


for order, (heading, verbs) in enumerate(VERBS.items()):
    group = Group(heading, sort_key=order)
    for place, verb in enumerate(verbs):
        if isinstance(verb, App):
            verb.group, verb.sort_key, verb.default_parameter = group, place, app.default_parameter
            app.command(verb)
        else:
            app.command(verb, group=group, sort_key=place, default_parameter=app.default_parameter)


def _interrupt(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C; ignore a second one."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """The console script."""
    for number in interrupt.heard(signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if sys.argv[1:] and not {"--help", "-h", "--version"}.intersection(sys.argv):  # these make no home
            with contextlib.suppress(Refused):  # a verb that needs the home says why there is none
                settle_in(home())
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, where a closed pipe is expected
    except KeyboardInterrupt:
        print("nightshift: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FINISHED
    except OSError as fault:
        # A file that is not there, or may not be read or written; else the machine: no space, no server.
        is_refused = bool(fault.filename) and fault.errno not in (errno.ENOSPC, errno.EDQUOT)
        print(f"nightshift: {f'{fault.filename}: {fault.strerror}' if is_refused else fault}", file=sys.stderr)
        code = REFUSED if is_refused else FAILED
    except (Refused, CycloptsError, httpx.HTTPError, CannotStart) as fault:
        print(f"nightshift: {fault}", file=sys.stderr)
        code = FAILED if isinstance(fault, httpx.HTTPError | CannotStart) else REFUSED
    leave(code if isinstance(code, int) else FINISHED)
