"""A report as HTML and as Markdown, and the page of all campaigns.

The HTML is one file: figures and style are inside, there is no script, and nothing is loaded. Every text of a program
or a model is escaped by the template engine, and secrets are redacted in the whole of it.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from flows.report import figures
from flows.report.facts import Facts, in_a_line, visible
from flows.report.shareable import shareable
from flows.views.terminal import code, duration
from tasks.describe import short_value
from tasks.numbers import number
from tasks.plots import canvas, progress
from tasks.recording import episode
from tasks.recording.episode import GIF, PlayedEpisode
from tasks.system.redact import clean
from tasks.trial import Trial, baseline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"


def html(facts: Facts) -> str:
    """The page of one campaign."""
    played, picture = _episode(facts)
    shown = {"figures": _figures(facts), "episode": played, "gif": picture, "baseline": baseline(facts.history)}
    return _render("report.html", facts=facts, **shown)


def markdown(facts: Facts) -> str:
    """The same in short, for the artifacts of Prefect and MLflow."""
    return _render("report.md", facts=facts)


def pull_request(facts: Facts, trial: Trial) -> str:
    """The body of a pull request that brings a trial, in Markdown. (facts: of that trial)"""
    return _render("pull_request.md", facts=facts, trial=trial, first=baseline(facts.history))


def campaigns(rows: Sequence[Mapping[str, Any]]) -> str:
    """A page with a line for each campaign. (rows: of `status.summary`)"""
    return _render("campaigns.html", rows=rows)


def picture(facts: Facts, titled: bool = False) -> Figure:
    """The campaign in one figure. (titled: with the result above, to be seen alone)"""
    of = facts.ledger.environment
    return progress.draw(facts.history, facts.name, of.metric, of.higher_is_better, facts.own, titled)


def _episode(facts: Facts) -> tuple[tuple[PlayedEpisode, ...] | str | None, str]:
    """The recorded episode of the present champion, or why there is none, and its GIF as data; None: none was due."""
    recording, gif = episode.load(facts.ledger.path), facts.ledger.path / GIF
    if recording is None or facts.champion is None or recording.champion != facts.champion.number:
        return None, ""
    if recording.reason or not gif.is_file():
        return in_a_line(recording.reason) or f"{GIF} is not there any more; `nightshift report` makes it again", ""
    return recording.episodes, base64.b64encode(gif.read_bytes()).decode()


def _figures(facts: Facts) -> dict[str, str]:
    environment, history, champion = facts.ledger.environment, facts.history, facts.champion
    shares = facts.importances
    return {
        "progress": canvas.svg(picture(facts), facts.verdict) if champion else "",
        "slices": figures.slices(environment, history, champion, {} if isinstance(shares, str) else shares),
        "curves": figures.curves(environment, history, champion),
    }


def _render(template: str, **values: Any) -> str:
    return shareable(_templates().get_template(template).render(**values, now=time.time()))


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=lambda name: bool(name and name.endswith(".html")),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    templates.globals.update(
        number=number, duration=duration, line=in_a_line, visible=visible, clean=clean, folder=_folder, cell=_cell,
        code=code, day=_day, short_value=short_value, style=(TEMPLATES / "style.css").read_text(),
    )  # fmt: skip
    return templates


def _day(moment: float) -> str:
    """A moment of Unix time, on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _folder(facts: Facts, trial: Trial) -> str:
    """A trial's directory, relative to the report."""
    return str(facts.ledger.place_of(trial).path.relative_to(facts.ledger.path)) + "/"


def _cell(text: object) -> str:
    """Any text in a cell of a Markdown table: no bar, no line end, no HTML."""
    line = visible(text).replace("|", "/").replace("`", "'")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("[", "\\[")
