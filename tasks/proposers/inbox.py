"""Inbox: nobody proposes but you, with `nightshift propose`. In between the campaign waits.

For a coding agent or a person that drives a campaign from outside. Limits of trials and hours, or `nightshift stop`,
end it.
"""

from __future__ import annotations

from typing import ClassVar

from tasks.proposers import Proposer
from tasks.proposing.brief import Brief


class Inbox(Proposer):
    """Nothing of its own: what waits in the inbox is tried first whoever proposes."""

    edits: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def propose(self, brief: Brief) -> None:
        return None
