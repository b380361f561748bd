"""Times as people state them, a time of day or an ISO date and time; and what a campaign's time holds."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

TIME_OF_DAY = r"\d{1,2}:\d{2}"


def next_time(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """The next moment after `now` at which the clock shows a time such as 07:30, or an ISO date and time as it is."""
    now = now or datetime.datetime.now().astimezone()
    try:
        if not re.fullmatch(TIME_OF_DAY, text):
            return datetime.datetime.fromisoformat(text).astimezone()
        hour, minute = map(int, text.split(":"))
        # No time zone until the end: the clocks may change meanwhile.
        then = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
        return (then if then.astimezone() > now else then + datetime.timedelta(days=1)).astimezone()
    except (ValueError, OverflowError):  # beyond the first or the last year in this time zone
        raise ValueError("must be a time of day such as 07:30, or an ISO date and time") from None


def runs_in_time(spec: Mapping[str, Any], begun: float, budget_seconds: float) -> float:
    """Training runs that a campaign's time holds in all, counted by those of a trial.

    Args:
        begun: When it began, in Unix time.
    """
    seconds = spec["hours"] * 3600
    if until := spec.get("until"):
        seconds = min(seconds, max(datetime.datetime.fromisoformat(until).timestamp() - begun, 0.0))
    return float(seconds * spec.get("parallel", 1) / spec.get("replicates", 1) / budget_seconds)
