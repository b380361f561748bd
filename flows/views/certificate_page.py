"""The certificates of a campaign in markdown: their results, every fresh run, and the test."""

from __future__ import annotations

from collections.abc import Sequence

from flows.views.markdown import code, in_markdown
from tasks.deciding.certificate import Certificate
from tasks.deciding.statistics import CONFIDENCE
from tasks.describe import caution, difference, outcome, ships, sign_of
from tasks.numbers import number


def page(campaign: str, own: Sequence[Certificate], elsewhere: Sequence[Certificate]) -> str:
    """The newest of its own certificates in full, the earlier ones in a line each, then those in other environments."""
    parts: list[str] = []
    if own:
        newest = own[-1]
        then = f"; {caution(newest)}" if newest.passed else ""
        parts += [f"## {campaign}: {_sentence(newest)}", f"What this means: {ships(own)}{then}."]
        parts += _whole(newest)
    earlier = [f"- certificate {one.look}: {_sentence(one)}" for one in reversed(own[:-1])]
    parts += ["### Earlier certificates", "\n".join(earlier)] if earlier else []
    for one in elsewhere:
        parts += [f"## In {code(one.environment)}: {_sentence(one)}", *_whole(one)]
    return "\n\n".join(parts) + "\n"


def _sentence(one: Certificate) -> str:
    return f"trial {one.champion} {outcome(one)}"


def _whole(one: Certificate) -> list[str]:
    runs = [("fresh run", "program", "training seed", "score", "± se")]
    for place, fresh in enumerate(one.runs, 1):
        score = number(fresh.score.value)
        if fresh.score.value is None:
            score = code((fresh.score.error or "no score").splitlines()[0][:200])
        error = "" if fresh.score.se is None else number(fresh.score.se)
        runs.append((str(place), fresh.arm, str(fresh.run.seed), score, error))
    guards = [("guarded metric", "may get worse by", "got worse by", "no more than, with confidence", "")]
    for g in one.guards:
        numbers = f"{g.margin:.4g}", f"{g.loss:.4g}", f"{g.bound:.4g}"
        guards.append((code(g.metric), *numbers, "holds" if g.holds else "**fell**"))
    tables = [in_markdown(runs), _means(one)] + [in_markdown(guards)] * bool(one.guards)
    return [*tables, "### How it was tested", _test(one)]


def _means(one: Certificate) -> str:
    """The means of both arms, and their difference with its interval."""
    found = one.comparison
    means = f"Means: {number(one.mean('champion'))} for trial {one.champion}, {number(one.mean('baseline'))} for the "
    if found is None:
        return f"{means}baseline."
    ends = sorted(sign_of(one) * end for end in (found.low, found.high))
    return (
        f"{means}baseline: a difference of **{difference(one, found.gain)}**, {CONFIDENCE * 100:g} % interval "
        f"{ends[0]:+.4g} to {ends[1]:+.4g}; p = {found.p:.2g}, needed {one.alpha:.3g} or less."
    )


def _test(one: Certificate) -> str:
    counts = len(one.scores("champion")), len(one.scores("baseline"))
    found = one.comparison
    free = f", with {found.df:.3g} degrees of freedom" if found and found.df is not None else ""
    return (
        f"After the search {counts[0]} runs of trial {one.champion} and {counts[1]} of the baseline were trained from "
        "scratch with fresh seeds, in randomised blocks of one each, and judged on the same fresh units. Welch's "
        f"one-sided t-test{free} compares the scores of these runs alone: a training run counts once, however many "
        f"units judged it. Certificate {one.look} of this campaign, tested at {one.alpha:.3g}."
    )
