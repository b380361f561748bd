"""The early stop of one run: a canceller is asked once at each twentieth of the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.trial import TWENTIETHS, Curve, EarlyStop

ReasonToStop = Callable[[Curve], str | None]
"""Why a run with this curve so far should end now; None to go on."""


@dataclass
class EarlyStopCheck:
    """Whether a run is to end before its budget does."""

    reason_to_stop: ReasonToStop | None
    due: EarlyStop | None = None
    _asked: int = field(default=0, init=False)

    def ask(self, curve: Curve) -> bool:
        """Whether to end now; asked at every twentieth but the last, where nothing is left to save."""
        lengths = range(self._asked + 1, min(len(curve), TWENTIETHS - 1) + 1)
        self._asked = len(curve)
        for length in lengths:
            so_far = curve[:length]
            if self.due or self.reason_to_stop is None or all(value is None for value in so_far):
                continue
            if reason := self.reason_to_stop(so_far):
                self.due = EarlyStop(length / TWENTIETHS, reason)
        return self.due is not None
