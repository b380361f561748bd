"""Early stopping: whether a run should end before its budget does, judged by its progress so far. One file each.

Progress is compared with progress, never with a judged score: training returns may differ from judged ones. A report is
a claim, so a canceller should not let one program's reports decide about others.

A canceller keeps no state; its fields are its options. To add one, put a file like this into the folder; its name is
the name used in a campaign:

    from tasks.cancellers import Canceller
    from tasks.trial import TWENTIETHS, Curve, History

    class Mute(Canceller):
        \"\"\"Stop a run that has reported nothing by the middle of its budget.\"\"\"

        def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
            silent = len(curve) >= TWENTIETHS // 2 and not any(value is not None for value in curve)
            return f"nothing reported after {len(curve) / TWENTIETHS:.0%} of the budget" if silent else None
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from pydantic import BaseModel

from tasks.trial import Curve, History


class Canceller(BaseModel, ABC, frozen=True, extra="forbid"):
    """Decides whether a run should go on."""

    @abstractmethod
    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        """Why a run with this curve should stop now, with the numbers; None to continue.

        A curve of length n means that n twentieths of the budget have passed. Called once for each, as soon as
        anything was reported. Equal arguments must give equal answers, in any process.
        """


ReasonToStop = Callable[[Curve], str | None]
"""Why a run with this curve so far should end now; None to go on."""
