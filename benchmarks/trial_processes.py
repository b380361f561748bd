"""The processes of programs that were forked from templates, for a benchmark that kills them."""

from __future__ import annotations

import contextlib

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


def forked_relatives(campaign: str) -> dict[str, tuple[psutil.Process, int]]:
    """Processes of a program that is forked from a template, by what they are, with the number of its trial.

    `fresh` is its supervisor without an order, `keeper` with one; `unborn` is the program before it has begun, and
    `sandbox` bubblewrap, or what waits in it. `template` and `fresh` are of no trial: -1.
    """
    everything = of_campaign(campaign)
    ours = {process.pid for process, _ in everything}
    found: dict[str, tuple[psutil.Process, int]] = {}
    for process, number in everything:
        with contextlib.suppress(psutil.Error):
            found[_role(process, number, ours)] = process, number
    return found


def _role(process: psutil.Process, number: int, ours: set[int]) -> str:
    if number == -1:
        return "fresh" if process.ppid() in ours else "template"
    command = process.cmdline()
    above = process.parent()
    if orphans.SUPERVISOR in process.environ():  # the program has it from its supervisor, until it is the program
        if supervisor.__file__ in command:
            return "cold keeper"
        return "unborn" if above and orphans.SUPERVISOR in above.environ() else "keeper"
    if not command[0].rpartition("/")[2].startswith("python"):
        return "sandbox"
    return "worker" if above and above.cmdline() == command else "program"
