"""`nightshift doctor`: whether this machine is ready for campaigns, and what to fix.

All checks run at once, each in its own thread. One that hangs, in a name service for example, is reported and left.
With `--for`, those of one environment follow: the cheap ones at once, then, with `--train`, real runs in their order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rich.console import Console
from rich.text import Text

from environments import Environment
from environments.plugins import Refused
from flows.cli.doctor import machine, services
from flows.cli.doctor.gpus import gpus, slots
from flows.cli.doctor.machine import Check
from flows.cli.doctor.names import names
from flows.views import terminal
from tasks.system.home import REMEDY, home

DEADLINE_SECONDS, ENVIRONMENT_SECONDS = 10.0, 60.0
"""Longer than the limits of the checks themselves; a judge may import what takes long."""
MARKS = {"ok": "ok", "note": "note", "bad": "BAD"}
STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}
HERE: Mapping[str, Callable[[], Check]] = {
    "isolation": machine.isolation,
    "limits": machine.limits,
    "gpus": gpus,
    "machine": machine.machine,
    "python": machine.python,
    "names": names,
    "git": machine.git,
    "training": machine.training,
    "language": machine.language,
    "keys": machine.keys,
}


def doctor(json: bool, environment: Environment | None = None, train: bool = False) -> int:
    """Run and print all checks, and those of an environment; the exit code, 1 when something must be fixed."""
    checks: list[Check] = []
    console, width = terminal.console(), 0
    for group in _groups(environment, train):
        checks += group
        width = max([width, *(len(check.name) for check in group)])
        for check in group if not json else ():
            tell(check, console, width)
    bad = sum(check.state == "bad" for check in checks)
    if json:
        named = {"environment": environment.name} if environment else {}
        terminal.print_json({"healthy": not bad, **named, "checks": [document(check) for check in checks]})
    else:
        last = Text(f"{bad} thing{'s' * (bad > 1)} to fix", "bold red") if bad else Text("healthy", "green")
        terminal.put(console, last)
    return 1 if bad else 0


def _groups(environment: Environment | None, train: bool) -> Iterator[tuple[Check, ...]]:
    """The checks in groups, from cheap to expensive. An expensive one is left out where one before it is bad."""
    yield examine()
    if environment is None:
        return
    from flows.cli.doctor import environment_checks

    there = home()
    cheap = all_at_once(environment_checks.checks(environment, there), ENVIRONMENT_SECONDS)
    yield cheap
    if not train:
        return
    from flows.cli.doctor import first_runs

    broken = [check.name for check in cheap if check.state == "bad"]
    for name, check in (("answer", first_runs.answer), ("short_training", first_runs.short_training)):
        if broken:
            fact = f"not run: {', '.join(broken)} must be in order first"
            yield (Check(name, "note", fact, "fix that, and try again"),)
            continue
        result = check(environment, there)
        broken += [name] * (result.state == "bad")
        yield (result,)


def examine() -> tuple[Check, ...]:
    """Every check, in the order of the report. Without a home, those that need one are left out."""
    try:
        there = home()
    except Refused as why:
        return (*all_at_once(HERE), Check("home", "bad", str(why).removesuffix(f": {REMEDY}"), REMEDY))
    at_home: Mapping[str, Callable[[], Check]] = {
        "home": partial(machine.place, there),
        "disk": partial(machine.disk, there),
        "prepared": partial(machine.prepared, there),
        "slots": partial(slots, there),
        "ports": partial(services.ports, there),
        "prefect": partial(services.prefect, there),
        "mlflow": partial(services.mlflow, there),
        "remote": partial(services.remote, there),
    }
    return all_at_once({**HERE, **at_home})


def all_at_once(checks: Mapping[str, Callable[[], Check]], seconds: float = DEADLINE_SECONDS) -> tuple[Check, ...]:
    """The results in the given order; a check that is not done in time is bad."""
    results: dict[str, Check] = {}

    def work(name: str, check: Callable[[], Check]) -> None:
        try:
            results[name] = check()
        except (OSError, ValueError, Refused) as fault:  # of the machine; a bug of ours prints its traceback
            results[name] = Check(name, "bad", f"cannot be checked: {fault}", "fix that, and try again")

    threads = {name: threading.Thread(target=work, args=(name, check), daemon=True) for name, check in checks.items()}
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(deadline - time.monotonic(), 0.0))
    return tuple(results.get(name) or _missing(name, thread, seconds) for name, thread in threads.items())


def _missing(name: str, thread: threading.Thread, seconds: float) -> Check:
    if thread.is_alive():
        return Check(name, "bad", f"no result within {seconds:g} s", "try again; if it remains, fix that")
    return Check(name, "bad", "ended with the error printed above", "please report it: it is a bug")


def document(check: Check) -> dict[str, object]:
    """A check as JSON."""
    common = {"name": check.name, "state": check.state, "fact": check.fact, "remedy": check.remedy}
    return {**common, **check.details}


def tell(check: Check, console: Console, width: int) -> None:
    """Print a check: one line in a pipe; wrapped on a screen, with the remedy on its own line."""
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
