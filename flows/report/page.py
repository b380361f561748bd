"""A report as HTML and as Markdown.

The HTML is one file: pictures and style are inside, there is no script, and nothing is loaded. Every text of a
program or a model is escaped by the template engine, and secrets are redacted in the whole of it.
"""

from __future__ import annotations

import base64
import math
import re
import time
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments.space import Choice
from flows.report import charts, seeing
from flows.report.charts import ChartLine, Dot, Frame, Scale
from flows.report.facts import Facts, in_a_line
from flows.report.mattered import Slice, slices
from flows.report.shareable import shareable
from flows.report.timeline import ROLES
from flows.views.artifacts import PICTURE
from flows.views.markdown import code
from flows.views.terminal import duration
from tasks.describe import short_value
from tasks.numbers import number
from tasks.system.redact import scrub_text
from tasks.trial import TWENTIETHS, Run, Trial, baseline

if TYPE_CHECKING:
    import jinja2

    from flows.report.campaign_index import CampaignRow

TEMPLATES = Path(__file__).parent / "templates"
SLICES = 8
"""Parameters whose slices are shown: the most important ones."""
CURVES = 150
"""Curves of other trials, evenly spread over the campaign."""
SPANS = 900
"""Spans of a track that are drawn; timeline.json has all."""
DOTS = 400
"""Trials in a slice; of more, the newest."""
SLICE_FRAME = Frame(width=430, height=230, left=56, top=12, bottom=40)


def html(facts: Facts) -> str:
    """The page of one campaign."""
    return _render(
        "report.html",
        facts=facts,
        charts=_charts(facts),
        picture=_picture(facts),
        files=_files(facts),
        episode=seeing.episode_of(facts),
        answered=seeing.answers_of(facts),
        **_helpers(),
    )


def markdown(facts: Facts) -> str:
    """The same in short, for the artifacts of Prefect and MLflow."""
    return _render("report.md", facts=facts, **_helpers())


def comparison(every: Sequence[Facts]) -> str:
    """One page for several campaigns, side by side."""
    return _render("comparison.html", every=every, curves=[_curves(facts) for facts in every], **_helpers())


def index(every: Sequence[CampaignRow], reports: Collection[str]) -> str:
    """The page of all campaigns. (reports: names of those that have a report)"""
    return _render("index.html", every=every, reports=reports, now=time.time(), **_helpers())


def listing(title: str, names: Sequence[str], up: str) -> str:
    """A page of links to the files or folders in a folder. (up: from there to the folder of the report)"""
    return _render("listing.html", title=title, names=names, up=up, **_helpers())


def _render(template: str, **values: Any) -> str:
    return shareable(_templates().get_template(template).render(**values))


@cache
def _templates() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=lambda name: bool(name and name.endswith(".html")),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _helpers() -> dict[str, Any]:
    return {
        "number": number, "duration": duration, "line": in_a_line, "place": _place, "cell": _cell, "code": code,
        "style": (TEMPLATES / "style.css").read_text(), "day": _day,
    }  # fmt: skip


def _day(moment: float) -> str:
    """A moment of Unix time, on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _place(facts: Facts, trial: Trial) -> str:
    """A trial's directory, relative to the report."""
    return str(facts.ledger.place_of(trial).path.relative_to(facts.ledger.path)) + "/"


def _cell(text: object) -> str:
    """Any text in a cell of a Markdown table: no bar, no line end, no HTML."""
    line = re.sub(r"\s+", " ", scrub_text(str(text))).replace("|", "/").replace("`", "'")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("[", "\\[")


def _picture(facts: Facts) -> str:
    """progress.png as a data URL; empty while there is none."""
    path = facts.ledger.path / PICTURE
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else ""


def _charts(facts: Facts) -> dict[str, Any]:
    shares = facts.importances
    weights = {one.name: one.share for one in shares} if isinstance(shares, tuple) else {}
    found = sorted(slices(facts.ledger.environment, facts.history), key=lambda one: -weights.get(one.axis.name, 0.0))
    return {
        "curves": _curves(facts),
        "importances": ""
        if isinstance(shares, str)
        else charts.interval_chart(
            [(one.name, one.low, one.share, one.high) for one in shares[:SLICES]], unit="importance"
        ),
        "slices": [_slice(facts, one) for one in found[:SLICES]],
        "timeline": _timeline(facts),
        "short": any(trial.proposal.is_short for one in found[:1] for trial in one.trials),
        "cut": any(len(spans) > SPANS for spans in facts.timeline.values()),
        "elsewhere": _elsewhere(facts),
        "time": charts.share_bar([(part.name, part.seconds, part.style) for part in facts.time]),
    }


def _elsewhere(facts: Facts) -> str:
    """Champion minus baseline in other environments and for other budgets; empty without a certificate there."""
    shown = facts.elsewhere
    if shown is None:
        return ""
    rows = [
        (row.name, None if row.gain is None else (row.low, row.high), row.gain or 0.0, row.kind, row.words)
        for row in shown.rows
    ]
    return charts.forest_chart(rows, unit=shown.unit, scale=Scale(*shown.ends))


def _timeline(facts: Facts) -> str:
    """What ran when; empty while nothing has. Of a long night its end, as long as no track has too many spans."""
    cut = max((spans[-SPANS].begin for spans in facts.timeline.values() if len(spans) > SPANS), default=0.0)
    late = {name: [span for span in spans if span.begin >= cut] for name, spans in facts.timeline.items()}
    shown = {name: spans for name, spans in late.items() if spans}
    if not shown:
        return ""
    start = min(span.begin for spans in shown.values() for span in spans)
    drawn = {
        name: [
            (
                span.begin - start,
                span.end - start,
                ROLES[span.kind],
                f"{span.kind} {span.name}: {duration(span.seconds)}",
            )
            for span in spans
        ]
        for name, spans in shown.items()
    }
    return charts.timeline_chart(list(drawn.items()))


def _curves(facts: Facts) -> str:
    """The reported metric over the budget: champion, baseline, and the rest; empty if no program reported it."""
    first, champion, rest = baseline(facts.history), facts.champion, []
    others = [trial for trial in facts.history if trial not in (first, champion) and not trial.proposal.is_short]
    for trial in others[:: max(math.ceil(len(others) / CURVES), 1)]:
        rest += [_line(run, f"other {trial.verdict.kind}", f"trial {trial.number}") for run in trial.runs]
    lead = [_line(run, "baseline", "baseline") for run in (first.runs if first else ())]
    if champion is not None and champion is not first:
        lead += [_line(run, "champion", f"trial {champion.number}, the champion") for run in champion.runs]
    lines = [line for line in [*rest, *lead] if len(line.points) > 1]
    if not lines:
        return ""
    of = facts.ledger.environment
    return charts.line_chart(
        lines,
        x="% of the budget",
        y=f"{of.metric}, as reported in training",
        within=_window(lines, of.higher_is_better),
    )


def _line(run: Run, style: str, title: str) -> ChartLine:
    points = tuple((100 * (at + 1) / TWENTIETHS, value) for at, value in enumerate(run.curve) if value is not None)
    return ChartLine(points, style, title)


def _window(lines: Sequence[ChartLine], higher_is_better: bool) -> Scale:
    """The heights to show: all, but for the worst tenth where it would take more than half of the chart."""
    values = sorted(value for line in lines for _, value in line.points)
    cut = len(values) // 10
    kept = values[cut:] if higher_is_better else values[: len(values) - cut]
    whole, most = Scale.over(values), Scale.over(kept or values)
    return whole if whole.high - whole.low <= 2 * (most.high - most.low) else most


def _role(facts: Facts, trial: Trial) -> str:
    """Its class of the style sheet, where it is the champion or the baseline."""
    return "champion" if trial == facts.champion else "baseline" if trial.number == 0 else ""


def _slice(facts: Facts, one: Slice) -> str:
    """The scores along one parameter."""
    parameter = one.axis.parameter
    pairs = list(zip(one.trials, one.at, strict=True))[-DOTS:]
    dots = [
        Dot(
            at, value, _role(facts, trial) or trial.verdict.kind,
            f"trial {trial.number}: {number(value)} at {short_value(trial.proposal.params[one.axis.name])}",
            _place(facts, trial),
        )
        for trial, at in pairs
        if (value := trial.score.value) is not None
    ]  # fmt: skip
    values = sorted(dot.y for dot in dots)
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    reach = 3 * ((high - low) or abs(high) or 1.0)
    within = Scale.over([value for value in values if low - reach <= value <= high + reach])
    names = [short_value(choice) for choice in one.axis.choices]
    log = not isinstance(parameter, Choice) and parameter.log
    across = Scale(-0.5, len(names) - 0.5) if names else Scale.over(one.at, log)
    dots.sort(key=lambda dot: dot.style in ("champion", "baseline"))
    return charts.dot_chart(
        dots, x=f"{one.axis.name}{' (log)' * log}", y="", across=across, within=within,
        names=names, frame=SLICE_FRAME,
    )  # fmt: skip


def _files(facts: Facts) -> Iterator[tuple[str, str]]:
    """Files beside the report: (name, path)."""
    for name, path in (
        ("every trial", "results.tsv"),
        ("timeline", "timeline.json"),
        ("events", "events.jsonl"),
        ("settings", "spec.toml"),
    ):
        if (facts.ledger.path / path).exists():
            yield name, path
