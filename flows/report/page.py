"""The pages: each campaign's report beside its results, and the list of all campaigns in the home.

A page is one file: figures and style are inside, there is no script, and nothing is loaded. Every text of a program
or a model is escaped by the template engine, and secrets are redacted in the whole of it.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from flows import status
from flows.report import figures
from flows.report.facts import Facts, in_a_line, shareable, visible
from flows.views.terminal import code
from tasks.describe import short_value
from tasks.numbers import duration, number
from tasks.plots import canvas
from tasks.recording import episode
from tasks.recording.episode import GIF
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import clean
from tasks.trial import Trial, baseline

TEMPLATES = Path(__file__).parent / "templates"
REPORT, INDEX, PICTURE = "report.html", "index.html", "progress.png"


def write_report(ledger: Ledger, ending: status.CampaignEnd | None = None) -> str:
    """Write a campaign's report.html and progress.png; returns the report as Markdown, with the picture.

    The page of all campaigns follows unless this one is running.

    Args:
        ending: The end of a campaign that still holds its lock.
    """
    facts = Facts.of(ledger, ending)
    write_atomic(ledger.path / REPORT, html(facts))
    write_atomic(ledger.path / PICTURE, picture := canvas.png(facts.progress))
    if not facts.is_running:
        write_index({ledger.campaign.name: facts.document["state"]})
    short = render("report.md", facts=facts, trials=_trials(facts))
    return f"{short}\n\n![progress](data:image/png;base64,{base64.b64encode(picture).decode()})\n"


def record_episode(ledger: Ledger, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the episode of a campaign's champion, if there is one to record and it is not there."""
    episode.record(ledger, Facts.of(ledger).champion, isolation, allow_unsandboxed)


def write_index(ending: Mapping[str, str] | None = None) -> Path:
    """Write the page of all campaigns; returns its path. (ending: states of those that still hold their locks)"""
    rows = status.summaries()[::-1]
    for row in rows:
        row["state"] = (ending or {}).get(row["campaign"], row["state"])
        row["report"] = (home() / row["campaign"] / REPORT).is_file()
    write_atomic(home() / INDEX, render("campaigns.html", rows=rows))
    return home() / INDEX


def html(facts: Facts) -> str:
    """The page of one campaign."""
    of, history, champion = facts.ledger.environment, facts.history, facts.champion
    drawn = {
        "progress": canvas.svg(facts.progress, facts.document["result"]["verdict"]) if champion else "",
        "slices": figures.slices(of, history, champion, facts.importances),
        "curves": figures.curves(of, history, champion),
    }
    shown = {"facts": facts, "trials": _trials(facts), "figures": drawn, "episode": _episode(facts)}
    return render("report.html", **shown, baseline=baseline(history))


def _trials(facts: Facts) -> list[tuple[Trial, Mapping[str, Any]]]:
    """Each trial with its row of the document, the newest first; one that was decided since has none."""
    return list(zip(facts.history, facts.document["trials"], strict=False))[::-1]


def _episode(facts: Facts) -> dict[str, Any] | None:
    """The recording of the present champion, with its GIF as data if there is one; None: none was due."""
    recording, gif = episode.load(facts.ledger.path), facts.ledger.path / GIF
    if recording is None or facts.champion is None or recording["champion"] != facts.champion.number:
        return None
    return recording | {"gif": gif.is_file() and base64.b64encode(gif.read_bytes()).decode()}


def render(template: str, **values: Any) -> str:
    """A file of templates/ with these values, without secrets."""
    return shareable(_templates().get_template(template).render(**values, now=time.time()))


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=lambda name: bool(name and name.endswith(".html")),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.globals.update(
        number=number, duration=duration, line=in_a_line, visible=visible, clean=clean, cell=_cell,
        code=code, day=_day, short_value=short_value, quote=shlex.quote, style=(TEMPLATES / "style.css").read_text(),
    )  # fmt: skip
    return templates


def _day(moment: float) -> str:
    """A moment of Unix time, on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _cell(text: object) -> str:
    """Any text in a cell of a Markdown table: no bar, no line end, no HTML."""
    line = visible(text).replace("|", "/").replace("`", "'")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("[", "\\[")
