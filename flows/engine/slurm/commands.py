"""Slurm's commands: a job submitted, found, looked at and cancelled."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from environments.plugins import Refused
from tasks.system.commands import Unanswered, ask

NEEDED = ("sbatch", "scontrol", "squeue", "scancel", "sinfo")
ASK_SECONDS = 30.0
"""The longest that an answer may take; a busy controller needs some seconds."""
UNKNOWN = "Invalid job id"
PASSING = re.compile(
    r"does not answer|[Uu]nable to contact|[Tt]imed out|[Cc]onnection (refused|reset)|[Zz]ero [Bb]ytes"
    r"|backup controller|temporarily unable|Communication connection failure|authentication error"
)
"""What Slurm's commands say while the controller is away or busy."""
LIMIT = re.compile(r"submit limit|MaxSubmitJob", re.IGNORECASE)
"""The same at a limit of how many jobs a user may have."""
DOWN = re.compile(r"(down, drained|currently unavailable)", re.IGNORECASE)
"""A refusal that lasts only until the nodes are back."""
OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
"""States after which a job does nothing more."""
QUEUED = frozenset({"PENDING", "CONFIGURING"})
STANDS_STILL = frozenset({"SUSPENDED", "STOPPED"})


class SlurmAway(Exception):
    """Slurm's controller does not answer now."""


class AtLimit(SlurmAway):
    """Slurm takes no further job of this user until others have ended."""


@dataclass(frozen=True)
class JobState:
    """A job, as the controller knows it."""

    number: str
    state: str
    reason: str = ""
    restarts: int = 0
    queued: float = 0.0
    """Seconds from its submission to its start; 0 before."""
    node: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_queued(self) -> bool:
        return self.state in QUEUED and not self.restarts

    @property
    def words(self) -> str:
        """Such as `Slurm job 17 PREEMPTED on node-3`."""
        where = f" on {self.node}" if self.node else ""
        why = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return f"Slurm job {self.number} {self.state}{where}{why}{', requeued' * bool(self.restarts)}"


def check_installed() -> None:
    """Refuse a machine without Slurm's commands."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        raise Refused(
            f"launch = 'slurm', and {', '.join(missing)} is not on PATH: start the campaign on a machine that submits "
            "jobs, such as a login node"
        )


def submit(arguments: Sequence[str], script: str, environment: Mapping[str, str]) -> str:
    """Submit a job; its number. Raises SlurmAway, or Refused where Slurm does not take it."""
    said = _ask(["sbatch", "--parsable", *arguments, script], environment)
    return said.strip().split(";")[0]  # the cluster's name may follow


def check(arguments: Sequence[str], script: str, environment: Mapping[str, str]) -> None:
    """Refuse a job that Slurm would not take: an unknown partition or account, resources that no node has.

    A limit of how many jobs a user may have passes: the campaign waits at it.
    """
    try:
        _ask(["sbatch", "--test-only", *arguments, script], environment)
    except AtLimit:
        pass
    except SlurmAway as silent:
        raise Refused(f"launch = 'slurm': {silent}: see `sinfo`") from silent
    except Refused as no:
        if not DOWN.search(str(no)):
            raise


def find(name: str) -> str | None:
    """The number of the newest job of that name that the controller knows. Raises SlurmAway."""
    numbers = [int(word) for word in _say(["squeue", "-h", "--states=all", f"--name={name}", "--format=%A"]).split()]
    return str(max(numbers)) if numbers else None


def active() -> frozenset[str]:
    """The numbers of all jobs that wait or run. Raises SlurmAway."""
    return frozenset(_say(["squeue", "-h", "--format=%A"]).split())


def look(number: str) -> JobState | None:
    """A job now; None once the controller has forgotten it, minutes after its end. Raises SlurmAway."""
    try:
        line = _say(["scontrol", "--oneliner", "show", "job", number])
    except SlurmAway as failed:
        if UNKNOWN in str(failed):
            return None
        raise
    facts: dict[str, str] = {}
    for key, value in re.findall(r"(?:^| )(\w+)=(\S*)", line):
        facts.setdefault(key, value)
    return JobState(
        number, facts["JobState"], facts.get("Reason", ""), int(facts.get("Restarts", "0")), _queued(facts),
        facts.get("BatchHost", ""),
    )  # fmt: skip


def cancel(number: str) -> None:
    """End a job; one that has ended is no error. Raises SlurmAway."""
    try:
        _say(["scancel", number])
    except SlurmAway as failed:
        if UNKNOWN not in str(failed) and "already complet" not in str(failed):
            raise


def nodes() -> tuple[str, ...]:
    """The host names of all nodes. Raises SlurmAway."""
    return tuple(sorted(set(_say(["sinfo", "-h", "-N", "-o", "%n"]).split())))


def _queued(facts: Mapping[str, str]) -> float:
    with suppress(KeyError, ValueError):  # Unknown before the start
        begin, end = (datetime.datetime.fromisoformat(facts[key]) for key in ("SubmitTime", "StartTime"))
        if facts["JobState"] not in QUEUED:  # there it is an estimate
            return max((end - begin).total_seconds(), 0.0)
    return 0.0


def _ask(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The answer of sbatch. Raises SlurmAway, or Refused with what it says."""
    try:
        return ask(command, ASK_SECONDS, environment)
    except Unanswered as failed:
        if LIMIT.search(str(failed)):
            raise AtLimit(str(failed)) from failed
        if PASSING.search(str(failed)):
            raise SlurmAway(str(failed)) from failed
        raise Refused(
            f"launch = 'slurm': {failed}: see slurm_options (--set slurm.partition=NAME ...), and what the environment "
            "needs (cores, gpus, limits.memory_gb)"
        ) from failed


def _say(command: Sequence[str]) -> str:
    """The answer of a command that only fails where the controller is away, or has forgotten the job."""
    try:
        return ask(command, ASK_SECONDS)
    except Unanswered as failed:
        raise SlurmAway(str(failed)) from failed
