"""`nightshift doctor`: is this machine fit for a night, and if not, what to do about it.

Every check is made at once and in a thread of its own, so the whole takes as long as the slowest; one that hangs all
the same, in a name service for example, is reported as such and left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from rich.console import Console
from rich.text import Text

from flows.cli.doctor import machine, services
from flows.cli.doctor.gpus import gpus, slots
from flows.cli.doctor.machine import Check
from flows.views import terminal
from tasks.system.home import home

DEADLINE_SECONDS = 10.0
"""Longer than any check takes that asks with a limit."""
MARKS = {"ok": "ok", "note": "note", "bad": "BAD"}
STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}
HERE: Mapping[str, Callable[[], Check]] = {
    "isolation": machine.isolation,
    "limits": machine.limits,
    "gpus": gpus,
    "machine": machine.machine,
    "python": machine.python,
    "git": machine.git,
    "training": machine.training,
    "language": machine.language,
    "keys": machine.keys,
}


def doctor(json: bool) -> int:
    """Look at everything and say what there is to mend; the command's exit code, 1 when there is something."""
    checks = examine()
    bad = sum(check.state == "bad" for check in checks)
    if json:
        terminal.print_json({"healthy": not bad, "checks": [document(check) for check in checks]})
    else:
        console = terminal.console()
        for check in checks:
            tell(check, console, max(len(one.name) for one in checks))
        last = Text(f"{bad} thing{'s' * (bad > 1)} to mend", "bold red") if bad else Text("healthy", "green")
        terminal.put(console, last)
    return 1 if bad else 0


def examine() -> tuple[Check, ...]:
    """Every check, in the order in which they are told. Without a home those that need one are left out."""
    try:
        there = home()
    except OSError as fault:
        remedy = "set NIGHTSHIFT_HOME to a folder that this user can write"
        return (*all_at_once(HERE), Check("home", "bad", f"there is none: {fault}", remedy))
    at_home: Mapping[str, Callable[[], Check]] = {
        "home": partial(machine.place, there),
        "disk": partial(machine.disk, there),
        "prepared": partial(machine.prepared, there),
        "slots": partial(slots, there),
        "ports": partial(services.ports, there),
        "prefect": partial(services.prefect, there),
        "mlflow": partial(services.mlflow, there),
    }
    return all_at_once({**HERE, **at_home})


def all_at_once(
    checks: Mapping[str, Callable[[], Check]], seconds: float = DEADLINE_SECONDS
) -> tuple[Check, ...]:
    """What each found, in the given order; one that has not come back in time has found that."""
    found: dict[str, Check] = {}

    def work(name: str, check: Callable[[], Check]) -> None:
        try:
            found[name] = check()
        except (OSError, ValueError) as fault:  # the machine's; a fault of ours is printed where it happens
            found[name] = Check(name, "bad", f"cannot be looked at: {fault}", "mend that, and ask again")

    threads = {
        name: threading.Thread(target=work, args=(name, check), daemon=True) for name, check in checks.items()
    }
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(deadline - time.monotonic(), 0.0))
    return tuple(found.get(name) or _missing(name, thread, seconds) for name, thread in threads.items())


def _missing(name: str, thread: threading.Thread, seconds: float) -> Check:
    if thread.is_alive():
        return Check(
            name, "bad", f"does not come back within {seconds:g} s", "ask again; if it stays so, mend that"
        )
    return Check(name, "bad", "ended with the error printed above", "please report it: it is a fault of ours")


def document(check: Check) -> dict[str, object]:
    """A check as JSON: its own details beside what all have."""
    return {
        "name": check.name,
        "state": check.state,
        "fact": check.fact,
        "remedy": check.remedy,
        **check.details,
    }


def tell(check: Check, console: Console, width: int) -> None:
    """A check on the terminal: one line, or on a screen as many as it needs, the remedy on its own."""
    mark, style = MARKS[check.state], STYLES[check.state]
    head = Text.assemble(" ", (f"{mark:<6}", style), f"{check.name:<{width}}  ")
    parts = [Text(terminal.clean(check.fact))]
    if check.remedy:
        parts.append(Text("→ " + terminal.clean(check.remedy), "dim" if check.state == "note" else ""))
    if not terminal.is_screen(console):
        terminal.whole(console, head.append_text(Text(" ").join(parts)))
        return
    room = max(console.width - 1 - len(head), 20)
    begin, later = head, Text(" " * len(head))
    for line in (line for part in parts for line in part.wrap(console, room)):
        line.rstrip()
        terminal.put(console, begin.append_text(line))
        begin = later.copy()
