"""A campaign in a few words: its result, a score, what a new champion does otherwise than the one before it."""

from __future__ import annotations

import math

from tasks.trial import History, Trial, Value, baseline, best


def headline(history: History, campaign: str) -> str:
    """The campaign's result so far, in a sentence."""
    first, champion, tried = baseline(history), best(history), len([t for t in history if t.number > 0])
    after = f"after {tried} trial{'s' if tried != 1 else ''}"
    if champion is None:
        return f"{campaign}: no score yet {after}" if tried else f"{campaign}: no score yet"
    score = number(champion.score.value)
    if champion is first:
        return f"{campaign}: baseline {score} stands {after}" if tried else f"{campaign}: baseline {score}"
    before = number(first.score.value) if first and first.score.value is not None else "without a score"
    return f"{campaign}: {score} {after}, baseline {before}"


def number(value: float | None) -> str:
    """A score as people read it, to four digits; a dash when there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def changes(trial: Trial, previous: Trial | None, most: int = 2) -> list[str]:
    """What a new champion does otherwise than the one before it: its largest changes, a short line for each."""
    if previous is None:
        return ["the first with a score"]
    old, new = previous.proposal.params, trial.proposal.params
    changed = sorted((n for n in new if old.get(n) != new[n]), key=lambda n: -_step(old.get(n), new[n]))
    shown = changed if len(changed) <= most + 1 else changed[:most]
    lines = ["edited program"] if trial.proposal.edit else []
    lines += [f"{_short(name, 20)} {short_value(old.get(name))} → {short_value(new[name])}" for name in shown]
    return lines + ([f"and {len(changed) - len(shown)} more"] if len(changed) > len(shown) else [])


def short_value(value: Value | None) -> str:
    """A parameter's value in at most 14 characters; a dash when it has none."""
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else _short(str(value), 14)


def _step(old: Value | None, new: Value) -> float:
    """How large a change is: of numbers the logarithm of their ratio, of anything else 1."""
    if isinstance(old, bool | str | None) or isinstance(new, bool | str) or old * new <= 0:
        return 1.0
    return abs(math.log(abs(new)) - math.log(abs(old)))


def _short(text: str, most: int) -> str:
    """A text with its middle left out where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"
