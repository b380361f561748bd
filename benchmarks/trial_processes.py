"""The processes of programs that were forked from templates, for a benchmark that kills them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from tasks.sandbox import supervisor
from tasks.system import orphans

TEMPLATE = "template"
"""In the place of a trial's number, in the marker of a process from which programs are forked."""


def of_campaign(campaign: str) -> list[tuple[psutil.Process, int]]:
    """Every live process of a campaign's programs with the number of its trial; -1 for a template, or what is forked
    from it and has no order yet."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            marker = variables.get(orphans.MARKER) or variables.get(orphans.SUPERVISOR) or ""
            if marker.startswith(f"{campaign}/") and process.status() != psutil.STATUS_ZOMBIE:
                trial = marker.split("/")[1]
                found.append((process, -1 if trial == TEMPLATE else int(trial)))
    return found


def forked_relatives(engine: int) -> dict[str, tuple[psutil.Process, int]]:
    """The processes that start warm in an engine, by what they are, with the number of their trial.

    `idle` is a supervisor without an order, `supervisor` one with it; `starting` is the program before it has begun,
    and `sandbox` bubblewrap, or what waits in it. `template` and `idle` are of no trial: -1. Only the engine's
    descendants are looked at, so that it takes no time in which they end.
    """
    found: dict[str, tuple[psutil.Process, int]] = {}
    for template in _children(engine):
        with contextlib.suppress(psutil.Error):
            if supervisor.__file__ not in template.cmdline():  # of a cold start
                found["template"] = template, -1
            else:
                continue
            for child in _children(template.pid):
                marker = child.environ().get(orphans.SUPERVISOR)
                number = int(marker.split("/")[1]) if marker else -1
                found["supervisor" if marker else "idle"] = child, number
                for process in _below(child.pid):
                    found[_role(process)] = process, number
    return found


def _role(process: psutil.Process) -> str:
    command = process.cmdline()
    if not command or not command[0].rpartition("/")[2].startswith("python"):
        return "sandbox"
    if orphans.SUPERVISOR in process.environ():  # the program has it from its supervisor, until it is the program
        return "starting"
    above = process.parent()
    return "worker" if above and above.cmdline() == command else "program"


def _below(pid: int) -> Iterator[psutil.Process]:
    for child in _children(pid):
        yield child
        yield from _below(child.pid)


def _children(pid: int) -> list[psutil.Process]:
    """Those of all threads of a process, as the kernel lists them (proc_pid_task_children(5))."""
    found: list[psutil.Process] = []
    with contextlib.suppress(OSError):  # it has just ended
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError, psutil.Error):
                found += [psutil.Process(int(child)) for child in (thread / "children").read_text().split()]
    return found
