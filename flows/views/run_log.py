"""The log of a campaign's flow run in Prefect: the lines of the terminal, and no line for each finished task."""

from __future__ import annotations

import logging

from prefect import get_run_logger

from flows.views.terminal import trial_line
from tasks.describe import headline
from tasks.store.ledger import Ledger
from tasks.trial import History

FINISHED = "Finished in state"
"""How Prefect's own line for a finished task begins; the row of the task says the same."""


def without_finished_tasks(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not record.getMessage().startswith(FINISHED)


def begin(ledger: Ledger, history: History) -> None:
    """The first line of a life."""
    logging.getLogger("prefect.task_runs").addFilter(without_finished_tasks)  # the same function is added once
    before = f", {len(history)} trials before" if history else ""
    get_run_logger().info(f"{ledger.campaign.name}: {ledger.environment.name}{before}; files in {ledger.path}")


def decided(history: History) -> None:
    """The line of the newest trial; a crash is a warning."""
    trial = history[-1]
    level = logging.WARNING if trial.verdict.kind == "crash" else logging.INFO
    get_run_logger().log(level, trial_line(trial, history).plain.strip())


def end(ledger: Ledger, history: History, reason: str) -> None:
    """The result, and why the campaign ended."""
    own = [one for one in ledger.certificates() if not one.elsewhere]
    get_run_logger().info(f"{headline(history, ledger.campaign.name, own)}. It ended: {reason}")
