"""What the slots of a campaign were used for, from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

WORK = {"train": "training", "start": "start-up", "judge": "judging"}


def slot_use(events: Iterable[Mapping[str, Any]], seconds: float) -> dict[str, float]:
    """Shares of the time of all slots together, which is `seconds`; empty before a run has ended.

    `other` is the rest: proposing, deciding, waiting for others' slots, runs that a kill cut off or that are under way.
    """
    use = dict.fromkeys(WORK.values(), 0.0)
    for event in events:
        if event["event"] == "slot free":
            for work, name in WORK.items():
                use[name] += event.get(work, 0.0)
    used = sum(use.values())
    if not used:
        return {}
    use["other"] = max(seconds - used, 0.0)
    return {name: round(spent / (used + use["other"]), 4) for name, spent in use.items()}
