"""Best of n: independent samples of a language model without the history.

The baseline of every other proposer with a model: one that learns from the history beats it at an equal number of
trials.
"""

from __future__ import annotations

from dataclasses import replace

from tasks.proposers import llm
from tasks.proposers._researcher import Researcher
from tasks.proposing.brief import Brief, Suggestion
from tasks.trial import NOTHING_BOUGHT


class BestOfN(Researcher):
    """The same question for every trial: the problem, its program and parameters, without any history.

    Samples differ by the model's temperature alone. A sample that was tried before is refused and drawn again.
    """

    def propose(self, brief: Brief) -> Suggestion:
        shown = Brief(brief.space, (), problem=brief.problem, files=brief.files)
        # That a sample was tried before would tell of trials: then the question is asked again as it was.
        told = tuple(one for one in brief.refusals if "the same as trial" not in one.reason)
        bought = sum((one.usage for one in brief.refusals if one not in told), NOTHING_BOUGHT)
        sample = llm.proposed(self.accounts()[0], replace(brief, refusals=told), shown, bought)
        # Predictions are compared with the champion, of which it knows nothing.
        return replace(sample, expected=None)
