"""Scripted: a list of proposals, one after the other, such as those of a colleague or of another campaign.

What cannot be tried is turned down with its reason, and the next one takes the turn.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from environments.plugins import name_of
from environments.space import Value
from tasks.editing.edits import EditFailed, changed
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, Suggestion, Unusable
from tasks.trial import NOTHING_BOUGHT


class ScriptedProposal(BaseModel, frozen=True, extra="forbid"):
    """One entry of the list."""

    rationale: str = Field(min_length=1)
    params: dict[str, Value] = {}
    """They replace the champion's."""
    edit: str = ""
    """A change of the champion's program, in any form of tasks/editing/formats.py; empty: none."""


class Scripted(Proposer):
    """The proposals of a list, in their order."""

    proposals: tuple[ScriptedProposal, ...] = Field(min_length=1)

    @property
    def edits(self) -> bool:  # type: ignore[override]
        return any(entry.edit for entry in self.proposals)

    @property
    def turns(self) -> int:
        return len(self.proposals) + 1  # the last finds nothing left

    def propose(self, brief: Brief) -> Suggestion | None:
        used, name = len(brief.refusals), name_of(self)  # by which a campaign knows its proposals
        decided = [trial.proposal for trial in brief.history] + [one.proposal for one in brief.rejected]
        for earlier in (*decided, *brief.pending.values()):
            used += (earlier.proposer == name) + sum(words.startswith(f"{name}: ") for words in earlier.turned_down)
        if used >= len(self.proposals):
            return None
        entry = self.proposals[used]
        try:
            files = changed(entry.edit, brief.files, brief.problem.editable) if entry.edit else None
        except EditFailed as wrong:
            raise Unusable(f"{entry.rationale}: {wrong}", entry.edit, NOTHING_BOUGHT) from wrong
        return Suggestion({**brief.start, **entry.params}, entry.rationale, files)
