"""The certificates of a campaign in markdown: their results, every fresh run, and the test."""

from __future__ import annotations

from collections.abc import Sequence

from flows.views.markdown import code, in_markdown
from tasks.certifying.aggregate import aggregates
from tasks.certifying.certificate import Certificate
from tasks.describe import caution, counts, difference, interval, outcome, over_environments, ships, where
from tasks.numbers import number
from tasks.plots.forest import forest, text


def page(campaign: str, own: Sequence[Certificate], elsewhere: Sequence[Certificate], steps: str = "") -> str:
    """The newest of its own certificates in full, the earlier ones in a line each, then those in other environments.

    `steps`: the budget of steps, in words.
    """
    parts: list[str] = []
    if own:
        newest = own[-1]
        then = f"; {caution(newest)}" if newest.passed else ""
        parts += [f"## {campaign}: {_sentence(newest)}", f"What this means: {ships(own)}{then}."]
        parts += _whole(newest)
        parts += (
            [f"Each run: {steps}. The program counts its own steps; the engine holds it to its time."] if steps else []
        )
    earlier = [f"- certificate {one.look}: {_sentence(one)}" for one in reversed(own[:-1])]
    parts += ["### Earlier certificates", "\n".join(earlier)] if earlier else []
    if shown := forest([*own, *elsewhere]):
        parts += ["## Elsewhere, and for other budgets", "```\n" + "\n".join(text(shown)).replace("`", "'") + "\n```"]
        parts += [f"{code(over_environments(one))}" for one in aggregates([*own, *elsewhere])]
    for one in elsewhere:
        parts += [f"## In {code(where(one))}: {_sentence(one)}", *_whole(one)]
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
    found, ends = one.comparison, interval(one)
    means = f"Means: {number(one.mean('champion'))} for trial {one.champion}, {number(one.mean('baseline'))} for the "
    if found is None:
        return f"{means}baseline."
    within = f", {ends[0]:+.4g} to {ends[1]:+.4g} at the level of this look" if ends else ""
    return (
        f"{means}baseline: a difference of **{difference(one, found.gain)}**{within}; p = {found.p:.2g}, needed "
        f"{one.tested_at:.3g} or less."
    )


def _test(one: Certificate) -> str:
    found = one.comparison
    free = f", with {found.df:.3g} degrees of freedom" if found and found.df is not None else ""
    made = f"{counts(one)} of trial {one.champion} and of the baseline were compared"
    if one.design and len(one.design.groups) > 1:
        looks = ", ".join(f"{mine} v {theirs}" for mine, theirs in one.design.groups)
        made += f", trained in groups with a look after each (at {looks}), which share an error of {one.alpha:.3g}"
    search = ""
    if one.reused:
        values = ", ".join(number(run.score.value) for run in one.reused)
        search = f" The baseline's runs of the search ({values}) count as well: nothing drifted since."
    elif one.not_reused:
        search = f" Of the baseline's runs of the search only the spread counts: {one.not_reused}."
    carried = f" {one.carried} of the runs are those of earlier certificates." if one.carried else ""
    return (
        f"{made}. Fresh runs are trained from scratch with fresh seeds, in random order, and runs of one number are "
        f"judged on the same fresh units.{search}{carried} Welch's one-sided t-test{free} compares the scores: a "
        f"training run counts once, however many units judged it. Certificate {one.look} of this campaign."
    )
