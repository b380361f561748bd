"""Trials: a campaign's history in the words of a prompt, within a cap.

The newest trials and the best ones are told in full: what they changed, the score, the verdict and why, progress, the
log of a crash. Of the others each has a line, the newest first. What has no room in HISTORY characters is counted.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from environments.space import Space
from tasks.describe import mean_of
from tasks.llm.quotes import WIDTH, data, one_line
from tasks.numbers import number
from tasks.proposing.curves import SHARES, Table
from tasks.stats.predictions import effect
from tasks.system.redact import capped, quote
from tasks.trial import History, Params, Proposal, Trial, Value, baseline, best, measured

HISTORY = 18_000
"""Characters of the trials that are told one by one."""
IN_FULL = 14_000
"""Of these, characters of trials that are told in full."""
NEWEST, BEST = 8, 4
"""Trials that are told in full, as far as there is room: the newest first, the best of all among them."""
LOGS, LOG_LINES = 3, 15
"""Crashes whose log is told, and lines of it."""
DIFF_LINES = 30
Curves = Mapping[int, Table]
NO_CURVES: Curves = {}


def in_words(space: Space, history: History, curves: Curves = NO_CURVES) -> str:
    """The trials in their order, as far as there is room."""
    after = [(trial, history[:place]) for place, trial in enumerate(history) if trial.number > 0]
    if not after:
        return "Nothing yet but the baseline." if history else ""
    crashes = [trial.number for trial, _ in after if trial.verdict.kind == "crash"][-LOGS:]
    said, first = dict[int, str](), baseline_proposal(history)
    for trial, before in _worth_telling(after):
        text = _in_full(space, history, before, trial, trial.number in crashes, curves)
        if sum(map(len, said.values())) + len(text) <= IN_FULL:
            said[trial.number] = text
    for trial, _ in reversed(after):
        line = f"- {in_a_line(space, first, trial)}"
        if trial.number not in said and sum(map(len, said.values())) + len(line) <= HISTORY:
            said[trial.number] = line
    left_out = [trial for trial, _ in after if trial.number not in said]
    parts = [said[trial.number] for trial, _ in after if trial.number in said]
    return "\n".join(([_counted(left_out)] if left_out else []) + parts)


def _worth_telling(after: Sequence[tuple[Trial, History]]) -> list[tuple[Trial, History]]:
    """The newest trials and the best ones, in turn."""
    newest = list(reversed(after))[:NEWEST]
    tops = sorted((one for one in after if one[0].score.value is not None), key=lambda one: -one[0].score.utility)
    mixed = filter(None, itertools.chain.from_iterable(itertools.zip_longest(newest, tops[:BEST])))
    return list({one[0].number: one for one in mixed}.values())


def of_baseline(history: History, curves: Curves = NO_CURVES) -> str:
    """The baseline: its scores, what was measured besides, its progress, and why runs of it failed."""
    first = baseline(history)
    if first is None:
        return ""
    lines = [f"- Score: {score_of(history, first)}"] if first.score.value is not None else ["- It has no score."]
    lines += _beside(first) + _progress(first, curves)
    errors = [run.error for run in first.runs if run.error]
    if not errors and first.verdict.kind == "crash":
        errors = [first.verdict.reason]
    if errors:
        lines += [f"- {len(errors)} of its {len(first.runs)} runs failed:", data(errors[0], LOG_LINES)]
    return "\n".join(lines)


def baseline_proposal(history: History) -> Proposal | None:
    first = baseline(history)
    return first.proposal if first else None


def _in_full(space: Space, history: History, before: History, trial: Trial, with_log: bool, curves: Curves) -> str:
    """A trial: what it did otherwise than the champion of its time, and what came of it."""
    proposal, then = trial.proposal, best(before)
    against = f"trial {then.number}, the champion then" if then and then.number else "the baseline"
    old = then.proposal if then else baseline_proposal(history)
    lines = [
        f"### Trial {trial.number}: {trial.verdict.kind}",
        f"- Changed against {against}: {changes(space, old, proposal)}",
    ]
    if proposal.category:  # letters and digits only, since a model said it
        kind = " ".join(re.findall(r"\w+", one_line(proposal.category, 40))[:6])
        lines.append(f"- Kind of idea: {kind}")
    if trial.score.value is not None:
        lines.append(f"- Score: {score_of(history, trial)}{_effect(history, trial, then)}")
    if proposal.expected is not None:
        lines.append(f"- Its proposer expected {number(proposal.expected, sign=True)} against the champion it knew")
    lines += _beside(trial) + _progress(trial, curves)
    if trial.verdict.kind == "crash":  # its reason is not in our own words alone
        errors = [run.error for run in trial.runs if run.error]
        lines += ["- Why:", data([*errors, trial.verdict.reason][0], LOG_LINES if with_log else 1)]
    else:
        lines.append(f"- Why: {one_line(trial.verdict.reason, WIDTH)}")
    if proposal.rationale:
        lines += ["- The idea was:", data(proposal.rationale, 4, 2 * WIDTH)]
    if proposal.edit and trial is not best(history):  # the champion's program is told whole
        changed = _own_lines(proposal.edit, old.edit if old else None)
        lines += ["- Lines of the program that it changed:", data("\n".join(changed), DIFF_LINES)]
    return "\n".join(lines) + "\n"


def in_a_line(space: Space, old: Proposal | None, trial: Trial) -> str:
    """A trial: what it did otherwise than `old`, and what came of it."""
    score = f" at {number(trial.score.value)}" if trial.score.value is not None else ""
    changed = changes(space, old, trial.proposal, short=True)
    return f"Trial {trial.number}, {trial.verdict.kind}{score}: {capped(changed, WIDTH)}"


def _counted(trials: Sequence[Trial]) -> str:
    """Trials for which there is no room, in a sentence."""
    kinds = Counter(trial.verdict.kind for trial in trials)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    top = max(trials, key=lambda trial: trial.score.utility)
    score = f"; the best of them had {number(top.score.value)}" if top.score.value is not None else ""
    return f"{len(trials)} older trials are left out ({counts}{score})."


def changes(space: Space, old: Proposal | None, new: Proposal, short: bool = False) -> str:
    """The differences between two proposals; `short`: without the old values."""
    parts = changes_of(space, old.params if old else {}, new.params, short)
    edit = old.edit if old else None
    if new.edit != edit:
        parts.append(size_of(_own_lines(new.edit or "", edit)))
    return ", ".join(parts) or "nothing"


def changes_of(space: Space, old: Params, new: Params, short: bool = False) -> list[str]:
    """The parameters that differ, each with its old value unless `short`."""
    return [
        f"{name} {json.dumps(rounded(new[name]))}"
        if short or name not in old
        else f"{name} {json.dumps(rounded(old[name]))} -> {json.dumps(rounded(new[name]))}"
        for name in space
        if name in new and new[name] != old.get(name)
    ]


def rounded(value: Value, digits: int = 4) -> Value:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _own_lines(edit: str, parent: str | None) -> list[str]:
    """The lines that an edit changes and its parent's does not, and the other way round as undone."""
    new, old = Counter(changed_lines(edit)), Counter(changed_lines(parent or ""))
    return [*(new - old).elements(), *(f"[undone] {line}" for line in (old - new).elements())]


def changed_lines(edit: str) -> list[str]:
    """The lines of a unified diff that come or go."""
    return [line for line in edit.splitlines() if line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- "))]


def size_of(changed: Sequence[str]) -> str:
    counts = Counter(line[0] for line in changed)
    undone = f", {counts['[']} of the champion's undone" if counts["["] else ""
    return f"program edited (+{counts['+']} -{counts['-']} lines{undone})"


def _effect(history: History, trial: Trial, then: Trial | None) -> str:
    gain = effect(history, trial, then)
    if gain is None:
        return ""
    word = "the same" if not gain else "better" if (gain > 0) == trial.score.higher_is_better else "worse"
    return f", {number(gain, sign=True)} against the champion then ({word})"


def _beside(trial: Trial) -> list[str]:
    """What the judge measured besides the objective."""
    if not trial.score.also:
        return []
    values = (f"{name} {number(value)}" for name, value in trial.score.also.items())
    return [f"- Measured besides: {one_line(', '.join(values), 2 * WIDTH)}"]


def _progress(trial: Trial, curves: Curves) -> list[str]:
    """The curves of its first run, as the program reported them."""
    table = curves.get(trial.number)
    if not table:
        return []
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    rows = (
        f"{name}: {', '.join('-' if value is None else f'{value:.3g}' for value in values)}"
        for name, values in table.items()
    )
    return [f"- Reported by its program at {shares} of its work:", quote("\n".join(rows), WIDTH, len(table))]


def score_of(history: History, trial: Trial) -> str:
    """The mean over all of a trial's runs, and how many these are."""
    runs = sum(score.value is not None for score in measured(history, trial.number))
    return f"{number(mean_of(history, trial.number))} ({runs} run{'s' * (runs != 1)})" if runs else "none"
