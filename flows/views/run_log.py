"""The log of a campaign's flow run in Prefect: the lines of the terminal, and no line for each finished task."""

from __future__ import annotations

import logging

from prefect import get_run_logger

from flows.status import rows, stored_spec
from flows.views.overview import trial_line
from tasks.describe import headline
from tasks.stats.certificate import own_certificates
from tasks.store.ledger import Ledger, machine
from tasks.trial import History, machine_of


def without_finished_tasks(record: logging.LogRecord) -> bool:
    """Whether a line of Prefect's says more than the row of its task, which says how that has ended."""
    return not record.getMessage().startswith("Finished in state")


def begin(ledger: Ledger, history: History) -> None:
    """The first line of a life."""
    logging.getLogger("prefect.task_runs").addFilter(without_finished_tasks)  # the same function is added once
    known = f". Resumed: {len(history)} trial{'s' * (len(history) > 1)} read from files" if history else ""
    get_run_logger().info(f"{ledger.campaign.name}: {ledger.environment.name}; files in {ledger.path}{known}")
    if words := another_machine(ledger, history):
        get_run_logger().warning(words)


def another_machine(ledger: Ledger, history: History) -> str:
    """The warning that the newest score is from another kind of machine, which is an event too; empty if unknown."""
    before, now = machine_of(history), machine()
    if not before or before == now or stored_spec(ledger).get("launch", "here") != "here":
        return ""
    words = (
        f"from trial {1 + max(trial.number for trial in history)} on it runs on {now}, before on {before}: under a "
        "time budget the faster one trains further, and scores are compared as they are"
    )
    ledger.event("machine", before=before, now=now, words=words)
    return words


def decided(history: History) -> None:
    """The line of the newest trial; a crash is a warning."""
    *_, row = rows(history)
    level = logging.WARNING if row["verdict"] == "crash" else logging.INFO
    get_run_logger().log(level, trial_line(row).plain.strip())


def end(ledger: Ledger, history: History, reason: str) -> None:
    """The result, and why the campaign ended."""
    result = headline(history, own_certificates(ledger.certificates()))
    get_run_logger().info(f"{ledger.campaign.name}: {result}. It ended: {reason}")
