"""The picture of a campaign that runs: what is tried and why, its curve above the champion's, and the night.

Pure: a scene and a size in, lines out. Every line is cut before the edge, so none is ever broken in two, and a low
window loses the lines that matter least first. Both curves have the same scales: one above the other is the same
moment of the budget, and the dots are what is left of it.
"""

from __future__ import annotations

import math
import textwrap
import time
from urllib.parse import urlsplit

from rich.text import Text

from environments import Environment
from flows.views import terminal
from flows.views.curves import Axis, value_at
from flows.views.live_model import Certifying, Night, Scene, UnderWay
from tasks.describe import mean_of, number

BLOCKS = "▁▂▃▄▅▆▇█"
LABEL = 12
"""Columns before the text of a line."""
DAY = 86_400.0


def picture(scene: Scene | str, width: int, height: int) -> Text:
    """A scene, or in words why there is none: at most height - 1 lines, each at most width - 1 columns wide."""
    lines = in_words(scene) if isinstance(scene, str) else drawn(scene, width - 1)
    while len(lines) > max(height - 1, 1):
        lines.remove(max(lines, key=lambda line: line[0]))
    for _, line in lines:
        line.truncate(max(width - 1, 1), overflow="ellipsis")
    return Text("\n", no_wrap=True, overflow="crop").join(line for _, line in lines)


def in_words(why: str) -> list[tuple[int, Text]]:
    return [(0, Text(f"   {terminal.clean(why)}", "dim"))]


def drawn(scene: Scene, width: int) -> list[tuple[int, Text]]:
    """The lines of a scene, each with how easily it is spared (0: last of all)."""
    lines: list[tuple[int, Text]] = [(6, Text())]
    if scene.certifying:
        lines += [(0, line) for line in certificate_lines(scene.environment, scene.certifying, width)]
    elif scene.trial is None:
        lines.append((0, Text(" choosing what to try next", "dim")))
    else:
        lines.append((1, header(scene.environment, scene.trial, width)))
        why = terminal.clean(scene.trial.proposal.rationale) or "(the proposer does not say)"
        room = max(width - LABEL, 10)
        reasons = textwrap.wrap(why, room, max_lines=2, placeholder=" …")
        lines += [(4, line) for line in labelled("why", reasons)]
        changes = tried(changed(scene, scene.trial), room)
        lines += [(3, line) for line in labelled("changed" if scene.champion else "with", changes)]
        lines += [(2, line) for line in curves(scene, scene.trial, width)]
        lines += [(3, beside(scene, other, width)) for other in scene.under_way[1:]]
    if scene.waiting:
        trials = ", ".join(map(str, scene.waiting))
        lines.append((1, Text(f" trial {trials} waits for a person: nightshift approve | reject", "yellow")))
    lines.append((0, night_line(scene.night, scene.now, width)))
    if scene.page:
        lines.append((5, page_line(scene.page, width)))
    return lines


def header(environment: Environment, trial: UnderWay, width: int) -> Text:
    """Which trial it is, what it does, and how much of its budget is used."""
    line = Text.assemble((f" trial {trial.number}", "bold"), "  ", (trial.phase, "cyan"))
    line.append(f"  {trial.run}" if trial.run else "")
    used = "" if trial.phase == "starting" else budget(environment, trial)
    return line.append(f"{used:>{max(width - len(line.plain), len(used) + 2)}}", "dim")


def beside(scene: Scene, trial: UnderWay, width: int) -> Text:
    """Another trial under way, in a line: its phase, how far it is, and what it reports."""
    line = Text.assemble((f" trial {trial.number}", "bold"), "  ", (f"{trial.phase:<8}", "cyan"), "  ")
    columns = max(min((width - LABEL) // 4, 20), 6)
    line.append(bar(trial.elapsed / scene.environment.budget_seconds, columns), "cyan")
    return line.append("  ").append_text(words(scene, trial)[0])


def certificate_lines(environment: Environment, under_way: Certifying, width: int) -> list[Text]:
    """Which fresh run of a certificate is under way, and what they are for."""
    columns = max(min((width - LABEL) // 2 - 4, 60), 8)
    head = Text.assemble((" certificate", "bold"), f": run {under_way.run} of {under_way.runs}")
    about = f"trial {under_way.champion} and the baseline, trained afresh and compared"
    line = bar(under_way.since / environment.budget_seconds, columns)
    return [head, *labelled("why", [about]), _row("this run", Text(line, "cyan"), Text())]


def budget(environment: Environment, trial: UnderWay) -> str:
    """How much of the budget is used, in what it counts."""
    if trial.axis(environment) == "step" and environment.budget_steps and trial.step is not None:
        return f"{trial.step:,.0f} of {environment.budget_steps:,} steps"
    unit, name = next(
        (unit, name)
        for unit, name in ((3600, "h"), (60, "min"), (1, "s"))
        if environment.budget_seconds >= 2 * unit or unit == 1
    )
    digits = 0 if unit == 1 else 1
    return f"{trial.elapsed / unit:.{digits}f} of {environment.budget_seconds / unit:g} {name}"


def changed(scene: Scene, trial: UnderWay) -> list[str]:
    """In what the trial differs from the champion; every parameter that varies while there is none."""
    proposal, champion = trial.proposal, scene.champion
    if champion is None:
        space = scene.environment.space
        return terminal.changes({k: v for k, v in proposal.params.items() if k in space}, {})
    parts = terminal.changes(proposal.params, champion.proposal.params)
    if proposal.edit:
        rows = proposal.edit.splitlines()
        more = sum(row.startswith("+") and not row.startswith("+++") for row in rows)
        less = sum(row.startswith("-") and not row.startswith("---") for row in rows)
        parts.insert(0, f"the program, {more} line(s) more and {less} less")
    return parts or ["nothing: the champion's parameters once more"]


def tried(parts: list[str], room: int) -> list[str]:
    """The changes in two lines at most, and how many more there are."""
    first, *others = terminal.in_lines(parts, room) or [""]
    rest = parts[len(first.split(" · ")) :]
    return [first, terminal.as_many_as_fit(rest, room)] if others else [first]


def labelled(label: str, lines: list[str]) -> list[Text]:
    heads = [f"   {label}", *[""] * len(lines)]
    return [
        Text.assemble((f"{head:<{LABEL}}", "dim"), line) for head, line in zip(heads, lines, strict=False)
    ]


def curves(scene: Scene, trial: UnderWay, width: int) -> list[Text]:
    """The trial's curve above the champion's, each with its value at this point of the budget."""
    environment, axis = scene.environment, trial.axis(scene.environment)
    own, other = trial.curve.along(axis), trial.champion_curve.along(axis)
    if own and trial.curve.name != trial.champion_curve.name:
        other = []
    reached = [at for at, _ in (*own, *other)]
    limit = environment.budget_steps if axis == "step" else environment.budget_seconds
    end = max(float(limit), *reached) if reached else 1.0
    values = [value for _, value in (*own, *other)]
    scale = (min(values, default=0.0), max(values, default=0.0))
    columns = max(min((width - LABEL) // 2 - 4, 60), 8)
    line = (
        spark(own, end, columns, scale) if own else bar(trial.elapsed / environment.budget_seconds, columns)
    )
    said, there = words(scene, trial)
    rows = [_row(f"trial {trial.number}", Text(line, "cyan"), said)]
    if scene.champion:
        rows.append(_row("champion", Text(spark(other, end, columns, scale, to_the_end=True), "dim"), there))
    return rows


def _row(label: str, line: Text, said: Text) -> Text:
    return Text.assemble((f"   {label:<{LABEL - 3}}", "dim"), line, "  ", said)


def words(scene: Scene, trial: UnderWay) -> tuple[Text, Text]:
    """What there is to say beside the two curves."""
    environment, champion = scene.environment, scene.champion
    axis = trial.axis(environment)
    own = trial.curve.along(axis)
    scored = (
        f"trial {champion.number} scored {number(mean_of(scene.history, champion.number))}"
        if champion
        else ""
    )
    if not own:
        return Text("no report yet" if trial.phase != "judging" else "reported nothing", "dim"), Text(scored)
    where, value = own[-1]
    name = terminal.clean(trial.curve.name).removesuffix("/mean")
    said = Text.assemble(f"{name} ", (number(value), "bold"), f" at {position(where, axis)}")
    same = trial.curve.name == trial.champion_curve.name
    there = value_at(trial.champion_curve.along(axis), where) if same else None
    if there is None:
        return said, Text(scored)
    if trial.curve.name == environment.metric:  # of another metric nobody knows which way is better
        gain = value - there if environment.higher_is_better else there - value
        word, style = ("ahead", "bold green") if gain > 0 else ("behind", "yellow") if gain else ("level", "")
        said = said.append(": ").append(word, style)
    return said, Text.assemble("had ", (number(there), "bold"), f" there; {scored}")


def position(where: float, axis: Axis) -> str:
    return f"step {where:,.0f}" if axis == "step" else terminal.duration(where)


def spark(
    line: list[tuple[float, float]],
    end: float,
    columns: int,
    scale: tuple[float, float],
    to_the_end: bool = False,
) -> str:
    """A curve in a row of blocks from 0 to `end`, lowest at scale[0]; dots where it has not got to.

    Args:
        line: (position, value), positions ascending.
        to_the_end: The last value holds: the training is over, and its last report came a little before.
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


def bar(share: float, columns: int) -> str:
    full = round(min(max(share, 0.0), 1.0) * columns)
    return "━" * full + "·" * (columns - full)


def night_line(night: Night, now: float, width: int) -> Text:
    """A bar of what binds, the trials or the time, and when it will be used up."""
    counted = f"{min(night.trials, night.asked):.3g} of {night.asked} trials, {so_long(night.spent)}"
    end = (
        f"{'done' if night.binds == 'trials' else 'time is up'} {moment(night.ends, now)}"
        if night.ends
        else ""
    )
    words = " · ".join(part for part in (counted, end) if part)
    columns = max(min(width - LABEL - len(words) - 4, (width - LABEL) // 2 - 4, 60), 0)
    style = "green" if night.binds == "trials" else "yellow"
    filled = bar(night.share, columns) + "  " * (columns > 0)
    return Text.assemble((f" {'night':<{LABEL - 1}}", "bold"), (filled, style), words)


def so_long(seconds: float) -> str:
    """A duration that does not flicker: whole seconds while they count."""
    return f"{seconds:.0f} s" if seconds < 100 else terminal.duration(seconds)


def moment(then: float, now: float) -> str:
    """A time of day, with the day where it is another one, and how long until then."""
    left = max(then - now, 0.0)
    if left > 2 * DAY:
        return f"about {time.strftime('%a %d %b', time.localtime(then))}, in {left / DAY:.0f} days"
    clock = time.strftime("%H:%M" if left < DAY / 2 else "%a %H:%M", time.localtime(then))
    if left < 90:
        return f"about {clock}, in {math.ceil(left / 5) * 5} s"
    return (
        f"about {clock}, in {left / 60:.0f} min" if left < 5400 else f"about {clock}, in {left / 3600:.1f} h"
    )


def page_line(page: str, width: int) -> Text:
    """Where Prefect shows it: the run itself if the address fits, else the site."""
    page = terminal.clean(page)
    parts = urlsplit(page)
    fits = len(page) <= width - LABEL
    return Text.assemble(
        f" {'prefect':<{LABEL - 1}}", page if fits else f"{parts.scheme}://{parts.netloc}", style="dim"
    )


def begins_line(scene: Scene, trial: UnderWay) -> Text:
    """For a file: what is tried next and why, and how far the night is."""
    line = Text(f" > {trial.number:>4}  {'begins':<9} {'':>8}  ", no_wrap=True)
    line.append(terminal.clean(trial.proposal.rationale) or "(no word)").append(
        "  " + " · ".join(changed(scene, trial))
    )
    night = scene.night
    end = f", done {moment(night.ends, scene.now)}" if night.ends and night.binds == "trials" else ""
    return line.append(f"  [{night.trials:.3g} of {night.asked} trials{end}]")


def goes_on_line(trial: UnderWay) -> Text:
    """For a file: the next run of a trial whose beginning was told."""
    return Text(f"   {trial.number:>4}  {trial.run}", "dim", no_wrap=True)


def waiting_line(campaign: str, number: int) -> Text:
    """For a file: that a proposal waits for a person."""
    say = f"nightshift approve {campaign} {number}, or reject"
    return Text(f" > {number:>4}  {'waits':<9} for a person: {say}", no_wrap=True)


def preparing_line(words: str) -> Text:
    """What is made before the first trial, and how far it is."""
    return Text(f" > {terminal.clean(words)}", "dim", no_wrap=True)


def certificate_line(under_way: Certifying) -> Text:
    """For a file: that a certificate is being made."""
    each = under_way.runs // 2
    about = f"{each} fresh runs of trial {under_way.champion} against {each} of the baseline"
    return Text(f" > certificate: {about}", no_wrap=True)
