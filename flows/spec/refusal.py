"""Refusals of a flow run: it ends as Failed, with the sentence as the message of its state, and without a traceback."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import State
from prefect.exceptions import FailedRun
from prefect.states import Failed

from environments.plugins import Refused

P = ParamSpec("P")
R = TypeVar("R")


def fails_when_refused(flow: Callable[P, State[R]]) -> Callable[P, State[R]]:
    """Have a flow's function return a Failed state where it would raise Refused; the state's result is the refusal.

    Prefect's engine raises the result once more and logs that with its traceback: this is left out.
    """

    @functools.wraps(flow)
    def run(*args: P.args, **kwargs: P.kwargs) -> State[R]:
        for name in ("prefect.flow_runs", "prefect.engine"):
            logging.getLogger(name).addFilter(without_failed_runs)  # the same function is added once
        try:
            return flow(*args, **kwargs)
        except Refused as refused:
            state: State[R] = Failed(message=str(refused), data=refused)
            return state

    # With annotations as text Prefect would look for their names in this module.
    vars(run)["__signature__"] = inspect.signature(flow, eval_str=True)
    return run


def without_failed_runs(record: logging.LogRecord) -> bool:
    again = isinstance((record.exc_info or (None, None))[1], (Refused, FailedRun))
    return not (again and "exited with unexpected exception" in record.getMessage())
