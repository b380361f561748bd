"""The live view of a campaign that runs: what is tried and why, its curve above the champion's, and how far it is.

Pure: a model and a size in, a table of one-line rows out. Both curves have the same scales: one above the other is the
same moment of the budget, and the dots are what is left of it.
"""

from __future__ import annotations

import math
import time
from urllib.parse import urlsplit

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flows.views.curves import value_at
from flows.views.live_model import CampaignProgress, Certifying, LiveModel, UnderWay
from flows.views.terminal import changes, clean, duration, fold, lines_changed
from tasks.describe import SELF_REPORTED, mean_of
from tasks.numbers import number

BLOCKS = "▁▂▃▄▅▆▇█"
LABEL = 12
"""Columns before the text of a row."""
FEW = 4
"""Free slots that are named."""
Row = tuple[int, str, RenderableType]
"""How easily it is spared in a low window (0: last of all), its label, and its text."""


def live_view(model: LiveModel | str, width: int, height: int) -> Table:
    """A campaign, or why there is nothing to show: at most height - 1 rows, the most important ones."""
    rows: list[Row] = _rows(model, width) if isinstance(model, LiveModel) else [(0, "", _line(clean(model), "dim"))]
    while len(rows) > max(height - 1, 1):
        rows.remove(max(rows, key=lambda row: row[0]))
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=LABEL - 1, no_wrap=True)
    table.add_column()
    for _, label, content in rows:
        table.add_row(Text(label, "dim" if label.startswith("  ") else "bold"), content)
    return table


def _line(text: str | Text, style: str = "") -> Text:
    """One line, cut at the edge."""
    return Text.assemble(text, style=style, no_wrap=True, overflow="ellipsis")


def _beside(picture: RenderableType, text: Text) -> Table:
    """A bar or a curve, and what it says."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_row(picture, _line(text))
    return table


def _rows(model: LiveModel, width: int) -> list[Row]:
    rows: list[Row] = [(7, "", "")]
    columns = max(min((width - LABEL) // 2 - 4, 60), 8)
    if model.certifying:
        rows += _certificate(model.certifying, model.environment.budget_seconds, columns)
    elif model.trial is None:
        rows.append((0, " next", _line("choosing what to try", "dim")))
    else:
        rows += _trial(model, model.trial, width, columns)
        for other in model.under_way[1:]:
            progress = bar(other.elapsed / model.environment.at(other.proposal.share).budget_seconds, columns // 2)
            said = Text(clean(other.waits_for)) if other.waits_for else comparison(model, other)[0]
            text = Text.assemble((f"{other.phase:<8}  ", "cyan"), said)
            rows.append((3, f" trial {other.number}", _beside(progress, text)))
    if model.waiting:
        left = f" ({span(max(model.answer_by - model.now, 0.0))} left)" if model.answer_by else ""
        words = f"trial {', '.join(map(str, model.waiting))} for approval{left}: nightshift approve | reject"
        rows.append((1, " waiting", _line(words, "yellow")))
    rows += _campaign(model, width)
    if model.page:
        page = clean(model.page)
        parts = urlsplit(page)
        fits = len(page) <= width - LABEL
        rows.append((6, " prefect", _line(page if fits else f"{parts.scheme}://{parts.netloc}", "dim")))
    return rows


def _certificate(made: Certifying, budget_seconds: float, columns: int) -> list[Row]:
    """A certificate: the run under way of all that are planned, and when it is looked at."""
    place = f" in {clean(made.where)}" if made.where else ""
    about = f"trial {made.champion} and the baseline, trained with fresh seeds and compared{place}"
    rows: list[Row] = [(0, " certifying", _line(f"run {made.run} of at most {made.runs}"))]
    rows.append((4, "   why", _line(about)))
    if len(made.groups) > 1:
        looks = ", ".join(f"{sum(group)} ({group[0]} v {group[1]})" for group in made.groups)
        rows.append((5, "   looks", _line(f"after {looks} runs; it ends at the first that decides")))
    words = f"waiting for a slot: {clean(made.waits_for)}" if made.waits_for else duration(made.since)
    rows.append((0, "   this run", _beside(bar(made.since / (made.seconds or budget_seconds), columns), Text(words))))
    return rows


def _trial(model: LiveModel, trial: UnderWay, width: int, columns: int) -> list[Row]:
    """A trial in full: its phase and budget, its reason, its changes, and its curve above the champion's."""
    environment, champion = model.environment.at(trial.proposal.share), model.champion
    axis = trial.axis(environment)
    used = f"  {duration(trial.elapsed)} of {duration(environment.budget_seconds)}"
    if axis == "step" and environment.budget_steps and trial.step is not None:
        used = f"  {trial.step:,.0f} of {environment.budget_steps:,} steps ({SELF_REPORTED})"
    said = "".join(f"  {words}" for words in (trial.share, trial.run) if words)
    head = Text.assemble((trial.phase, "cyan"), said)
    if trial.waits_for:
        head.append(f"  for a slot: {clean(trial.waits_for)}", "yellow")
    elif trial.phase != "starting":
        left = environment.budget_seconds - trial.elapsed
        head.append(used + (f", {duration(left)} left" if trial.phase == "training" and left > 0 else ""), "dim")
    rows: list[Row] = [(1, f" trial {trial.number}", _line(head))]
    why = fold(reason(trial).split(" "), width - LABEL, 2, " ")
    rows += [(4, "" if place else "   why", _line(line)) for place, line in enumerate(why)]
    label = "   changed" if champion else "   with"
    parts = fold(changed(model, trial), width - LABEL, 2)
    rows += [(3, "" if place else label, _line(line)) for place, line in enumerate(parts)]
    own, other = trial.curve.along(axis), trial.champion_curve.along(axis)
    if own and trial.curve.name != trial.champion_curve.name:
        other = []
    values = [value for _, value in (*own, *other)]
    scale = min(values, default=0.0), max(values, default=0.0)
    limit = environment.budget_steps if axis == "step" else environment.budget_seconds
    end = max(float(limit), *(at for at, _ in (*own, *other))) if values else 1.0
    picture: RenderableType = Text(spark(own, end, columns, scale), "cyan")
    if not own:
        picture = bar(trial.elapsed / environment.budget_seconds, columns)
    mine, theirs = comparison(model, trial)
    rows.append((2, "   curve", _beside(picture, mine)))
    if champion and not trial.proposal.is_short:
        line = Text(spark(other, end, columns, scale, to_the_end=True), "dim")
        rows.append((2, "   against", _beside(line, theirs)))
    return rows


def reason(trial: UnderWay) -> str:
    return clean(trial.proposal.rationale) or "(the proposer does not say)"


def bar(share: float, columns: int, style: str = "cyan") -> ProgressBar:
    return ProgressBar(1.0, share, columns, complete_style=style, finished_style=style)


def changed(model: LiveModel, trial: UnderWay) -> list[str]:
    """The changes against the champion; every parameter of the search space while there is none."""
    proposal, champion = trial.proposal, model.champion
    if champion is None:
        space = model.environment.space
        return changes({name: value for name, value in proposal.params.items() if name in space}, {})
    parts = changes(proposal.params, champion.proposal.params)
    if proposal.edit:
        more, less = lines_changed(proposal.edit)
        parts.insert(0, f"the program, +{more} -{less} lines")
    return parts or ["nothing: the champion's parameters again"]


def comparison(model: LiveModel, trial: UnderWay) -> tuple[Text, Text]:
    """The newest report of a trial, and the champion's at the same point of the budget."""
    environment, champion = model.environment.at(trial.proposal.share), model.champion
    axis = trial.axis(environment)
    own = trial.curve.along(axis)
    scored = f"scored {number(mean_of(model.history, champion.number))}" if champion else ""
    if not own:
        return Text("no report yet" if trial.phase != "judging" else "reported nothing", "dim"), Text(scored)
    where, value = own[-1]
    at = f"step {where:,.0f}" if axis == "step" else duration(where)
    name = clean(trial.curve.name).removesuffix("/mean")
    mine = Text.assemble(f"{name} ", (number(value), "bold"), f" at {at}")
    same = trial.curve.name == trial.champion_curve.name
    there = value_at(trial.champion_curve.along(axis), where) if same else None
    if there is None:
        return mine, Text(scored)
    if trial.curve.name == environment.metric:  # of another metric nobody knows which way is better
        gain = value - there if environment.higher_is_better else there - value
        word, style = ("ahead", "bold green") if gain > 0 else ("behind", "yellow") if gain else ("level", "")
        mine.append(": ").append(word, style)
    return mine, Text.assemble("had ", (number(there), "bold"), f" there; {scored}")


def spark(
    line: list[tuple[float, float]], end: float, columns: int, scale: tuple[float, float], to_the_end: bool = False
) -> str:
    """A curve in a row of blocks from 0 to `end`, lowest at scale[0]; dots where it has not got to.

    `to_the_end`: the training is over, so its last value holds.
    """
    low, high = scale
    signs = []
    for column in range(columns):
        left, right = end * column / columns, end * (column + 1) / columns
        value = value_at(line, right)
        if value is None:
            signs.append(" " if line else "·")
        elif left >= line[-1][0] and not to_the_end:
            signs.append("·")
        else:
            share = (value - low) / (high - low) if 0 < high - low < math.inf else 0.5
            signs.append(BLOCKS[min(max(math.floor(share * len(BLOCKS)), 0), len(BLOCKS) - 1)])
    return "".join(signs)


def _campaign(model: LiveModel, width: int) -> list[Row]:
    """The whole campaign: its champion, its budget, what ends it, its slots, and what does not answer."""
    rows: list[Row] = []
    if words := champion_words(model):
        rows.append((2, " champion", _line(words)))
    rows += [(0, " spent", _budget(model, spent(model), width)), *_ends(model, width - LABEL)]
    if model.slots:
        rows.append((4, " slots", _line(slots(model), "dim")))
    if model.unrecorded:
        rows.append((2, " mlflow", _line(clean(model.unrecorded), "yellow")))
    return rows


def champion_words(model: LiveModel) -> str:
    """The champion beside the baseline, and how sure its score is; empty while nothing has a score."""
    found, name = model.champion, clean(model.environment.metric)
    value = mean_of(model.history, found.number) if found else None
    if found is None or value is None:
        return ""
    if found.number == 0:
        return f"the baseline, {name} {number(value)}; nothing that was tried is better"
    sure = f" (likely {model.likely[0]:.3g} to {model.likely[1]:.3g})" if model.likely else ""
    words = f"trial {found.number}, {name} {number(value)}{sure}, baseline {number(mean_of(model.history, 0))}"
    return f"{words}; {found.verdict.level or 'provisional'}"


def spent(model: LiveModel) -> str:
    """What is used up of each limit."""
    progress = model.progress
    parts = [f"{number(min(progress.trials, progress.asked))} of {_trials(progress)}"]
    parts.append(f"{span(progress.spent)} of {span(progress.hours * 3600)}")
    if model.spent.anything or progress.max_usd is not None:
        usd = "unknown" if model.spent.usd is None else f"{model.spent.usd:.2f}"
        parts.append(f"{usd} of {progress.max_usd:.2f} USD" if progress.max_usd is not None else f"{usd} USD")
    hours = model.spent.machines.gpu_hours
    if hours or progress.max_gpu_hours is not None:
        of = "" if progress.max_gpu_hours is None else f" of {progress.max_gpu_hours:g}"
        parts.append(f"{hours:.3g}{of} GPU hours")
    return " · ".join(parts)


def _ends(model: LiveModel, width: int) -> list[Row]:
    first, others = ends(model)
    whole = "; ".join(filter(None, (first, others)))
    if len(whole) <= width:
        return [(1, " ends", _line(whole))]
    return [(1, " ends", _line(first)), (5, "", _line(others))]


def ends(model: LiveModel) -> tuple[str, str]:
    """When the campaign is expected to end and by which stopping criterion; and which others may come before."""
    progress = model.progress
    until = f"at {time.strftime('%H:%M', time.localtime(progress.until))}" if progress.until else ""
    after = f"after trial {progress.asked}" + " and the certificate" * progress.certifies
    if model.certifying:
        after = "after the certificate"
    first = {"trials": after, "hours": f"when {span(progress.hours * 3600)} are used", "until": until}[progress.binds]
    others = [f"{until} at the latest"] if until and progress.binds != "until" else []
    if progress.patience is not None and not model.certifying:
        others.append(f"sooner after {progress.patience:.2g} more without a new champion")
    return (f"{moment(progress.ends, model.now)}, {first}" if progress.ends else first), "; ".join(others)


def slots(model: LiveModel) -> str:
    """Which are busy, and with what."""
    busy = [f"{one.name} by {clean(one.holder)}" for one in model.slots if one.holder]
    free = [one.name for one in model.slots if not one.holder]
    words = [f"{len(busy)} of {len(model.slots)} busy", *busy]
    return ", ".join(words) + (f"; free: {', '.join(free)}" if 0 < len(free) <= FEW else "")


def span(seconds: float) -> str:
    """A long time in whole minutes."""
    minutes = round(seconds / 60)
    if minutes < 100:
        return duration(seconds) if seconds < 100 else f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def moment(then: float, now: float) -> str:
    """A time of day, with the date where it is far, and how long until then."""
    left = max(then - now, 0.0)
    clock = time.strftime("%H:%M" if left < 43_200 else "%a %d %b %H:%M", time.localtime(then))
    return f"about {clock}, in {span(left)}"


def _budget(model: LiveModel, words: str, width: int) -> Table:
    """A bar of the time that is foreseen for the whole campaign, and what is spent."""
    progress = model.progress
    columns = max(min(width - LABEL - len(words) - 3, (width - LABEL) // 2 - 4, 60), 1)
    return _beside(bar(progress.share, columns, "green" if progress.binds == "trials" else "yellow"), Text(words))


def begins_line(model: LiveModel, trial: UnderWay) -> Text:
    """For a file: what is tried next and why, and how far the campaign is."""
    progress, what = model.progress, " · ".join(changed(model, trial))
    end = f", done {moment(progress.ends, model.now)}" if progress.ends and progress.binds == "trials" else ""
    why = f"{trial.share}: {reason(trial)}" if trial.share else reason(trial)
    head = f" > {trial.number:>4}  {'begins':<9} {'':>8}  {why}  {what}"
    return Text(f"{head}  [{number(progress.trials)} of {_trials(progress)}{end}]")


def _trials(progress: CampaignProgress) -> str:
    return f"{progress.asked} trial{'s' * (progress.asked > 1)}"


def certificate_line(certifying: Certifying) -> Text:
    """For a file: that a certificate is being made."""
    place = f" in {clean(certifying.where)}" if certifying.where else ""
    arms = f"trial {certifying.champion} against the baseline{place}"
    return Text(f" > certificate: {arms}, at most {certifying.runs} fresh runs")
