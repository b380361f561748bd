"""The `nightshift` command: its verbs by heading, and the exit code.

A verb is a function, and its docstring is its help. Exit codes: 0 finished; 1 failed; 2 refused before anything ran;
130 interrupted.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys

from cyclopts import App, CycloptsError, Group

from environments.plugins import Refused

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
VERBS = {
    "Running": {"running": "run resume stop rerun try"},
    "Seeing": {"seeing": "list status report logs"},
    "Deciding": {"deciding": "certify compare propose approve reject"},
    "Taking": {"taking": "export upload"},
    "Problems": {"problems": "env"},
    "Machine": {"services": "up down", "machine": "prune sync", "doctor": "doctor"},
}
"""The verbs by the heading above them, and by their module in flows.cli."""

app = App(
    name="nightshift",
    help="RL research while you sleep.",
    help_format="plaintext",
    group_commands=Group("Help", sort_key=len(VERBS)),
    version_flags=["--version"],
    version=lambda: importlib.metadata.version("nightshift-rl"),
)


def _register() -> None:
    for order, (heading, modules) in enumerate(VERBS.items()):
        group = Group(heading, sort_key=order)
        verbs = [(name, verb) for name, those in modules.items() for verb in those.split()]
        for place, (name, verb) in enumerate(verbs):
            module = importlib.import_module(f"flows.cli.{name}")
            function = getattr(module, verb, None) or getattr(module, f"{verb}_")  # Python has a `try` of its own
            if isinstance(function, App):
                function.group, function.sort_key = group, place
                app.command(function)
            else:
                app.command(function, name=verb, group=group, sort_key=place)


_register()


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
