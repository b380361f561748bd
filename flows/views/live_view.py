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
from flows.views.live_model import Certifying, LiveModel, UnderWay
from flows.views.terminal import changes, clean, duration, fold
from tasks.describe import mean_of, number

BLOCKS = "▁▂▃▄▅▆▇█"
LABEL = 12
"""Columns before the text of a row."""
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
    rows: list[Row] = [(6, "", "")]
    columns = max(min((width - LABEL) // 2 - 4, 60), 8)
    if model.certifying:
        about = f"trial {model.certifying.champion} and the baseline, trained with fresh seeds and compared"
        share = model.certifying.since / model.environment.budget_seconds
        rows += [
            (0, " certifying", _line(f"run {model.certifying.run} of at most {model.certifying.runs}")),
            (4, "   why", _line(about)),
            (0, "   this run", bar(share, columns)),
        ]
    elif model.trial is None:
        rows.append((0, " next", _line("choosing what to try", "dim")))
    else:
        rows += _trial(model, model.trial, width, columns)
        for other in model.under_way[1:]:
            progress = bar(other.elapsed / model.environment.budget_seconds, columns // 2)
            text = Text.assemble((f"{other.phase:<8}  ", "cyan"), comparison(model, other)[0])
            rows.append((3, f" trial {other.number}", _beside(progress, text)))
    if model.waiting:
        words = f"trial {', '.join(map(str, model.waiting))} for approval: nightshift approve | reject"
        rows.append((1, " waiting", _line(words, "yellow")))
    rows.append((0, " campaign", _progress(model, width)))
    if model.page:
        page = clean(model.page)
        parts = urlsplit(page)
        fits = len(page) <= width - LABEL
        rows.append((5, " prefect", _line(page if fits else f"{parts.scheme}://{parts.netloc}", "dim")))
    return rows


def _trial(model: LiveModel, trial: UnderWay, width: int, columns: int) -> list[Row]:
    """A trial in full: its phase and budget, its reason, its changes, and its curve above the champion's."""
    environment, champion, axis = model.environment, model.champion, trial.axis(model.environment)
    used = f"  {duration(trial.elapsed)} of {duration(environment.budget_seconds)}"
    if axis == "step" and environment.budget_steps and trial.step is not None:
        used = f"  {trial.step:,.0f} of {environment.budget_steps:,} steps"
    head = Text.assemble((trial.phase, "cyan"), f"  {trial.run}" if trial.run else "")
    head.append("" if trial.phase == "starting" else used, "dim")
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
    if champion:
        line = Text(spark(other, end, columns, scale, to_the_end=True), "dim")
        rows.append((2, "   champion", _beside(line, theirs)))
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
        rows = proposal.edit.splitlines()
        more = sum(row.startswith("+") and not row.startswith("+++") for row in rows)
        less = sum(row.startswith("-") and not row.startswith("---") for row in rows)
        parts.insert(0, f"the program, +{more} -{less} lines")
    return parts or ["nothing: the champion's parameters again"]


def comparison(model: LiveModel, trial: UnderWay) -> tuple[Text, Text]:
    """The newest report of a trial, and the champion's at the same point of the budget."""
    environment, champion, axis = model.environment, model.champion, trial.axis(model.environment)
    own = trial.curve.along(axis)
    scored = ""
    if champion:
        scored = f"trial {champion.number} scored {number(mean_of(model.history, champion.number))}"
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


def _progress(model: LiveModel, width: int) -> Table:
    """A bar of the time, and when it ends."""
    progress = model.progress
    by_trials = progress.binds == "trials"
    words = f"{min(progress.trials, progress.asked):.3g} of {progress.asked} trials, {duration(progress.spent)}"
    if progress.ends:
        words += f" · {'done' if by_trials else 'time is up'} {moment(progress.ends, model.now)}"
    columns = max(min(width - LABEL - len(words) - 3, (width - LABEL) // 2 - 4, 60), 1)
    return _beside(bar(progress.share, columns, "green" if by_trials else "yellow"), Text(words))


def moment(then: float, now: float) -> str:
    """A time of day, with the date where it is far, and how long until then."""
    left = max(then - now, 0.0)
    clock = time.strftime("%H:%M" if left < 43_200 else "%a %d %b %H:%M", time.localtime(then))
    return f"about {clock}, in {duration(left)}"


def begins_line(model: LiveModel, trial: UnderWay) -> Text:
    """For a file: what is tried next and why, and how far the campaign is."""
    progress, what = model.progress, " · ".join(changed(model, trial))
    end = f", done {moment(progress.ends, model.now)}" if progress.ends and progress.binds == "trials" else ""
    head = f" > {trial.number:>4}  {'begins':<9} {'':>8}  {reason(trial)}  {what}"
    return Text(f"{head}  [{progress.trials:.3g} of {progress.asked} trials{end}]")


def certificate_line(certifying: Certifying) -> Text:
    """For a file: that a certificate is being made."""
    arms = f"trial {certifying.champion} against the baseline"
    return Text(f" > certificate: {arms}, at most {certifying.runs} fresh runs")
