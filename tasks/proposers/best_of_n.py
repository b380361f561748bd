"""Best of n: independent samples of a language model without the history.

The baseline of every other proposer with a model: one that learns from the history beats it at an equal number of
trials.
"""

from __future__ import annotations

from dataclasses import replace

from environments.plugins import Refused
from tasks.editing.edits import patched
from tasks.proposers import llm, llm_diff
from tasks.proposers._researcher import Researcher
from tasks.proposers.llm_diff import Form
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion
from tasks.trial import best


class BestOfN(Researcher):
    """The same question for every trial: the problem and the baseline, without any history.

    Samples differ by the model's temperature alone. A sample that was tried before is refused and drawn again.
    """

    edit: bool = False
    """Whether the program is sampled, too; otherwise only parameters are."""
    form: Form = "search_replace"
    """The format of edits."""

    @property
    def edits(self) -> bool:  # type: ignore[override]
        return self.edit

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        if self.accounts()[0].temperature == 0:
            raise Refused("temperature = 0 makes all samples of best_of_n the same: raise it, or leave it out")
        super().preflight(left)

    def propose(self, brief: Brief) -> Suggestion:
        account, champion = self.accounts()[0], best(brief.history)
        edit = champion.proposal.edit if champion else None
        files = patched(brief.files, edit, reverse=True) if edit else brief.files
        shown = Brief(brief.space, (), problem=brief.problem, files=files)
        if self.edit:
            sample = llm_diff.proposed(account, brief, shown, self.form)
        else:
            sample = llm.proposed(account, brief, shown)
        # The engine lays files over the champion's program, which may be another sample, or a person's.
        whole = {**shown.files, **(sample.files or {})}
        other = {name: text for name, text in whole.items() if brief.files.get(name) != text}
        # Predictions are compared with the champion, of which it knows nothing.
        return replace(sample, files=other or None, expected=None)
