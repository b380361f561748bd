"""What befell a campaign besides its trials: interruptions, outages, failures of its views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flows.views.terminal import duration
from tasks.system.redact import capped, clean

SUBJECTS = {
    "orphans": "leftovers", "prefect": "Prefect server", "tracking": "MLflow", "machine": "machine",
    "rerun": "rerun", "guards": "options changed", "launch": "launch",
    **dict.fromkeys(("view", "showcase"), "view"),
}  # fmt: skip
"""Events that are told as they are, and what they concern. To version 0.6 a view that failed was called a showcase."""
NOT_SHOWN = ("time", "event", "pid", "page", "flow_run_id")
LONGEST, SHOWN = 300, 60


def incidents(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(subject, what happened), in the order of the events."""
    ended: Mapping[str, Any] = {"state": "finished"}  # how the process before ended; empty: it did not say
    for event in events:
        kind = event["event"]
        if kind == "life":
            if ended.get("state") != "finished":
                what = f"it stopped: {ended['reason']}" if ended else "its process was killed or interrupted"
                yield "resumed", _in_a_line(f"{duration(event.get('spent_before', 0.0))} in, {what}")
            ended = {}
        elif kind == "end":
            ended = event
        elif kind == "continued":  # by the next flow run
            ended = {"state": "finished"}
        elif kind in SUBJECTS and not (kind == "launch" and event.get("what") == "begun"):
            told = {key: value for key, value in event.items() if key not in NOT_SHOWN}
            facts = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in told.items())
            words = event.get("words", facts)
            yield SUBJECTS[kind], _in_a_line(words)


def newest(every: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Those that a page shows, and how many it leaves out."""
    left = len(every) - SHOWN
    return ((f"{left} earlier", "left out here"), *every[left:]) if left > 0 else tuple(every)


def _in_a_line(words: str) -> str:
    return " ".join(capped(line, LONGEST) for line in clean(words))
