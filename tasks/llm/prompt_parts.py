"""The parts of a prompt that describe a campaign.

Output of programs and words of models and people are quoted (tasks.llm.quotes). Each part has a cap, so that a prompt
does not grow with the campaign; only the program is shown whole, since an edit needs it.
"""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

from environments.space import Choice, Int, Parameter
from tasks.llm.quotes import WIDTH, listed, one_line
from tasks.llm.trials import baseline_proposal, changes, in_a_line, in_words, rounded, score_of  # fmt: skip
from tasks.numbers import number
from tasks.proposing.brief import Brief, RemainingBudget
from tasks.stats.champion import champion_estimate
from tasks.stats.predictions import predictions, record
from tasks.system.redact import capped, scrub_text
from tasks.trial import History, Params, Proposal, baseline, best

PROGRAM_MD = 20_000
"""Characters of program.md."""
PREDICTIONS, REFUSED, REJECTED, EARLIER, IMPORTED = 8, 8, 10, 30, 30
"""Lines on predictions, refused suggestions, proposals that were not approved, earlier campaigns, imported trials."""


def told(brief: Brief) -> SimpleNamespace:
    """A brief as the parts of a prompt, by name; a part without content is an empty text."""
    problem, history = brief.problem, brief.history
    champion = best(history)
    now = champion.proposal if champion else None
    reasons = [f"trial {trial.number}: {why}" for trial in history for why in trial.proposal.turned_down]
    return SimpleNamespace(
        program_md=capped(scrub_text(problem.program_md).strip(), PROGRAM_MD),
        fixed=", ".join(f"{name} = {json.dumps(value)}" for name, value in problem.fixed.items()),
        space="\n".join(_parameter(name, one, brief) for name, one in brief.space.items()),
        files="\n\n".join(_file(name, text) for name, text in brief.files.items()),
        champion=_champion(history),
        noise=_noise(history),
        keep_rule=brief.keep_rule,
        history=in_words(brief.space, history),
        predictions=_predictions(history),
        refused=listed(reasons[-REFUSED:]),
        rejected=_rejected(brief),
        earlier=_earlier(brief),
        imported=_imported(brief),
        pending=listed(
            f"trial {taken}: {changes(brief.space, now, one)}: {one_line(one.rationale, WIDTH)}"
            for taken, one in sorted(brief.pending.items())
        ),
        left=_left(brief.left, len(brief.pending)),
    )


def start(brief: Brief) -> Params:
    """The starting point of a proposal: the champion's value of every parameter of the space, or else its default."""
    champion = best(brief.history)
    params = champion.proposal.params if champion else {}
    return {name: params.get(name, one.default) for name, one in brief.space.items()}


def _noise(history: History) -> str:
    level = champion_estimate(history)
    if level is None or not math.isfinite(level.sd):
        return ""
    return f"Trainings of one program differ by luck: their standard deviation is about {number(level.sd)}."


def _parameter(name: str, parameter: Parameter, brief: Brief) -> str:
    first = baseline(brief.history)
    before = first.proposal.params.get(name, parameter.default) if first else parameter.default
    now = f"now {json.dumps(rounded(start(brief)[name], 6))}, the baseline's {json.dumps(before)}"
    return f"- {name}: {_range(parameter)}; {now}"


def _range(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return "one of " + ", ".join(json.dumps(value) for value in parameter.values)
    kind = "a whole number" if isinstance(parameter, Int) else "a number"
    scale = ", on a logarithmic scale" if parameter.log else ""
    return f"{kind} from {json.dumps(parameter.low)} to {json.dumps(parameter.high)}{scale}"


def _file(name: str, text: str) -> str:
    """A file as it is: an edit has to match it. The fence is longer than any in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    shown = scrub_text(text)
    return f"{name}:\n\n{fence}\n{shown}{'' if shown.endswith(chr(10)) else chr(10)}{fence}"


def _champion(history: History) -> str:
    first, champion = baseline(history), best(history)
    if champion is None:
        return "No trial has a score yet, the baseline included." if history else ""
    score = score_of(history, champion)
    if champion is first:
        return f"The baseline is the champion still, with a score of {score}."
    before = f"; the baseline has {score_of(history, first)}" if first else ""
    return f"Trial {champion.number} is the champion, with a score of {score}{before}."


def _rejected(brief: Brief) -> str:
    first = baseline_proposal(brief.history)
    return listed(
        f"{changes(brief.space, first, proposal, short=True)} ({one_line(proposal.rationale, WIDTH)}): {said}"
        for _, proposal, said in brief.rejected[-REJECTED:]
    )


def _earlier(brief: Brief) -> str:
    """The trials of earlier campaigns, a line each, against the defaults of the space."""
    defaults = Proposal({name: one.default for name, one in brief.space.items()})
    lines = []
    for trial in [trial for trial in brief.earlier if trial.number > 0][-EARLIER:]:
        champion = trial.verdict.evidence.get("champion")
        beside = "" if champion is None else f" (the champion had {number(champion)})"
        lines.append(f"{in_a_line(brief.space, defaults, trial)}{beside}: {one_line(trial.proposal.rationale, WIDTH)}")
    return listed(lines)


def _imported(brief: Brief) -> str:
    """The best trials of another tool, best first, a line each."""
    sign = 1 if brief.problem.higher_is_better else -1
    places = range(len(brief.imported))
    scores = [-math.inf if one.score is None else sign * one.score for one in brief.imported]
    lines = []
    for place in sorted(places, key=lambda place: -scores[place])[:IMPORTED]:
        one = brief.imported[place]
        score = "failed" if one.score is None else number(one.score)
        params = ", ".join(f"{name} {json.dumps(rounded(value))}" for name, value in one.params.items())
        parts = (score, one_line(params, WIDTH), one_line(one.note, WIDTH))
        lines.append(f"{place + 1} of {len(brief.imported)}: {': '.join(filter(None, parts))}")
    return listed(lines)


def _predictions(history: History) -> str:
    """What was expected of the latest trials and what came of it, and all together."""
    lines = [
        f"- trial {one.trial}: expected {number(one.expected, sign=True)}, measured {number(one.measured, sign=True)}"
        for one in predictions(history)[-PREDICTIONS:]
    ]
    together = record(history)
    return "\n".join([*lines, f"- together: {together.words}"] if together else lines)


def _left(left: RemainingBudget, under_way: int) -> str:
    """The budget, without the trials that are under way."""
    parts = (
        "" if left.trials is None else f"{max(left.trials - under_way, 0.0):.3g} trials",
        "" if left.seconds is None else f"{left.seconds / 60:.0f} minutes",
        "" if left.usd is None else f"{left.usd:.2f} USD for language models",
        "" if left.tokens is None else f"{left.tokens:,} tokens",
    )
    return f"{', '.join(filter(None, parts))}." if any(parts) else ""
