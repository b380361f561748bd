"""Trials: a campaign's history in the words of a prompt, within a cap.

The newest trials and the best ones are told in full: what they changed, the score, the verdict and why, progress, the
log of a crash. Of the others each has a line, the newest first. What has no room in HISTORY characters is counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from environments.space import Space
from tasks.describe import mean_of
from tasks.llm.quotes import WIDTH, data, one_line
from tasks.numbers import number
from tasks.stats.predictions import effect
from tasks.system.redact import capped
from tasks.trial import History, Proposal, Trial, Value, baseline, best, measured

HISTORY = 18_000
"""Characters of the trials that are told one by one."""
IN_FULL = 14_000
"""Of these, characters of trials that are told in full."""
NEWEST, BEST = 8, 4
"""Trials that are told in full, as far as there is room: two of the newest first, then the best of all."""
LOGS, LOG_LINES, DIFF_LINES = 3, 15, 30
"""Crashes whose log is told, lines of it, and lines of an edit."""


def in_words(space: Space, history: History) -> str:
    """The trials in their order, as far as there is room."""
    trials = [trial for trial in history if trial.number > 0]
    crashes = [trial.number for trial in history if any(run.error for run in trial.runs)][-LOGS:]
    scored = [trial for trial in trials if trial.score.value is not None]
    top = sorted(scored, key=lambda trial: -trial.score.utility)[:BEST]
    newest = trials[: -NEWEST - 1 : -1]
    said, first = dict[int, str](), baseline(history)
    old = first.proposal if first else None
    for trial in (*([first] if first else []), *newest[:2], *top, *newest[2:]):
        text = _in_full(space, history, trial, trial.number in crashes)
        if trial.number not in said and sum(map(len, said.values())) + len(text) <= IN_FULL:
            said[trial.number] = text
    for trial in reversed(trials):
        line = f"- {in_a_line(space, old, trial)}"
        if trial.number not in said and sum(map(len, said.values())) + len(line) <= HISTORY:
            said[trial.number] = line
    left_out = sum(trial.number not in said for trial in trials)
    parts = [said[trial.number] for trial in history if trial.number in said]
    return "\n".join(([f"{left_out} older trials are left out."] if left_out else []) + parts)


def baseline_proposal(history: History) -> Proposal | None:
    first = baseline(history)
    return first.proposal if first else None


def _in_full(space: Space, history: History, trial: Trial, with_log: bool) -> str:
    """A trial: what it did otherwise than the champion of its time, and what came of it."""
    proposal, then = trial.proposal, best(history[: history.index(trial)])
    against = f"trial {then.number}, the champion then" if then and then.number else "the baseline"
    old = then.proposal if then else baseline_proposal(history)
    lines = [f"### {f'Trial {trial.number}' if trial.number else 'The baseline'}: {trial.verdict.kind}"]
    if trial.number:
        lines.append(f"- Changed against {against}: {changes(space, old, proposal)}")
    if trial.score.value is not None:
        lines.append(f"- Score: {score_of(history, trial)}{_effect(history, trial, then)}")
    if proposal.expected is not None:
        lines.append(f"- Its proposer expected {number(proposal.expected, sign=True)} against the champion it knew")
    lines += _beside(trial) + _progress(trial)
    errors = [run.error for run in trial.runs if run.error]
    if trial.verdict.kind == "crash" or errors:  # the reason is not in our own words alone
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


def changes(space: Space, old: Proposal | None, new: Proposal, short: bool = False) -> str:
    """The differences between two proposals; `short`: without the old values."""
    before, parts = (old.params if old else {}), list[str]()
    for name in (name for name in space if name in new.params and new.params[name] != before.get(name)):
        was = f"{json.dumps(rounded(before[name]))} -> " if name in before and not short else ""
        parts.append(f"{name} {was}{json.dumps(rounded(new.params[name]))}")
    edit = old.edit if old else None
    if new.edit != edit:
        signs = Counter(line[0] for line in _own_lines(new.edit or "", edit))
        parts.append(f"program edited (+{signs['+']} -{signs['-']} lines)")
    return ", ".join(parts) or "nothing"


def rounded(value: Value, digits: int = 4) -> Value:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _own_lines(edit: str, parent: str | None) -> list[str]:
    """The lines that an edit changes and its parent's does not."""
    new, old = (Counter(re.findall(r"^(?!\+\+\+ |--- )[+-].*", diff, re.MULTILINE)) for diff in (edit, parent or ""))
    return [*(new - old).elements()]


def _effect(history: History, trial: Trial, then: Trial | None) -> str:
    gain = effect(history, trial, then)
    if gain is None:
        return ""
    word = "the same" if not gain else "better" if (gain > 0) == trial.score.higher_is_better else "worse"
    return f", {number(gain, sign=True)} against the champion then ({word})"


def _beside(trial: Trial) -> list[str]:
    """What the judge measured besides the objective."""
    values = ", ".join(f"{name} {number(value)}" for name, value in trial.score.also.items())
    return [f"- Measured besides: {one_line(values, 2 * WIDTH)}"] if values else []


def _progress(trial: Trial) -> list[str]:
    """What the program of its first run reported of the objective, at each fifth of the budget."""
    curve = trial.runs[0].curve[3::4] if trial.runs else ()
    return [f"- Reported at each fifth of its budget: {', '.join(map(number, curve))}"] if any(curve) else []


def score_of(history: History, trial: Trial) -> str:
    """The mean over all of a trial's runs, and how many these are."""
    runs = sum(score.value is not None for score in measured(history, trial.number))
    return f"{number(mean_of(history, trial.number))} ({runs} run{'s' * (runs != 1)})" if runs else "none"
