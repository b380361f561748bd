"""Tables for the terminal: the trials of a campaign, and every campaign."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from flows.views.terminal import WHOLE, clean, duration, is_screen, room, setting
from tasks.numbers import number
from tasks.verdict_styles import VERDICTS

ROWS = 40
"""A longer table shows what was kept and the last trials."""
ROOM = 26
"""Columns for what was changed, before anything that matters less gets room."""
PLACES = 16
"""Columns of the strip on which a score is marked between the worst and the best."""
STRIP, CHANGED, PARAMETER = "worse" + "better".rjust(PLACES - 5), "changed from the baseline", "params."
RIGHT = ("trial", "score", "se", "runs", "time", "trials", "baseline", "champion")
Document = Mapping[str, Any]


def campaign_table(document: Document, console: Console, last: int | None = None) -> Table:
    """The trials of a status document (only the `last` ones, if asked), a line each, in as many columns as fit."""
    every: list[dict[str, Any]] = document["trials"]
    rows = every[-last:] if last else every
    if len(rows) > ROWS and not last:
        kept = [row for row in rows[: -ROWS // 2] if row["verdict"] == "keep" or row["trial"] == 0]
        rows = [*kept, *rows[-ROWS // 2 :]]
    names = dict.fromkeys(name for row in every for name in row["params"])
    varying = [name for name in names if _varies(name, every)]
    strips = _Strips(document)
    cells = [_cells(document, row, varying, strips) for row in rows]
    runs = ["runs"] if any(row["runs"] > 1 for row in rows) else []
    changed = [CHANGED] if varying else []
    parameters = [PARAMETER + name for name in varying]
    wide = console.options.update(width=WHOLE)
    for columns in (
        ["trial", "verdict", "score", "se", *runs, "time", STRIP, *parameters],
        ["trial", "verdict", "score", "se", *runs, "time", STRIP, *changed],
        ["trial", "verdict", "score", "se", *runs, "time", *changed],
        ["trial", "verdict", "score", "se", "time", *changed],
        ["trial", "verdict", "score", "se", *changed],
        ["trial", "verdict", "score", *changed],
    ):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
        for name in columns:
            heading = Text(clean(name[len(PARAMETER) :]) if name.startswith(PARAMETER) else name)
            elastic = name == CHANGED
            width = ROOM if elastic else None
            table.add_column(
                heading, justify="right" if name in RIGHT else "left", no_wrap=not elastic, max_width=width
            )
        for row, values in zip(rows, cells, strict=True):
            champion = row["trial"] == (document["champion"] or {}).get("trial")
            table.add_row(*(values[name] for name in columns), style="bold" if champion else "")
        if console.measure(table, options=wide).maximum <= console.width:
            break
    table.columns[-1].max_width = None
    if not is_screen(console):  # whole, however wide
        table.width = console.measure(table, options=wide).maximum
    table.title = Text(f"{document['campaign']}  {document['metric']}, {document['direction']}", "bold")
    notes = []
    if len(rows) < len(every) and not last:
        show = f"nightshift status {document['campaign']} --last {len(every)}"
        notes.append(f"{len(every) - len(rows)} that were not kept are left out: {show}")
    if shares := {row["share"] for row in rows if row["share"] < 1}:
        share = ", ".join(f"{share:.0%}" for share in sorted(shares))
        notes.append(f"{share}: of the budget, so its score compares with those alone; → the trial that ran it in full")
    table.caption = Text("\n".join(notes), "dim") if notes else None
    return table


def _varies(name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a parameter differs among trials. Compared as text, since 1 equals True."""
    first = repr(rows[0]["params"].get(name))
    return any(repr(row["params"].get(name)) != first for row in rows)


def _cells(document: Document, row: Document, varying: list[str], strips: _Strips) -> dict[str, RenderableType]:
    """A trial in every column that a table may have."""
    # A keep shows how far it can be believed, once that is more than provisional.
    believed = row["level"] if row["level"] in ("confirmed", "certified") else row["verdict"]
    verdict = f"{VERDICTS[row['verdict']].mark} {believed}"
    verdict += " *" * (row["trial"] == (document["champion"] or {}).get("trial"))
    verdict += f" {row['share']:.0%}" * (row["share"] < 1)
    verdict += "" if row["promoted"] is None else f" → {row['promoted']}"
    params, first = row["params"], (document["baseline"] or row)["params"]
    changed = (f"{clean(name)}={setting(value)}" for name, value in params.items() if first.get(name) != value)
    return {
        "trial": str(row["trial"]),
        "verdict": Text(verdict, VERDICTS[row["verdict"]].style),
        "score": number(row["score"]),
        "se": Text("" if row["se"] is None else f"{row['se']:.2g}", "dim"),
        "runs": Text(str(row["runs"]), "dim"),
        "time": Text(duration(row["seconds"]), "dim"),
        STRIP: strips.of(row),
        CHANGED: Text(" ".join(changed), no_wrap=True, overflow="ellipsis"),
        **{
            PARAMETER + name: Text(setting(params.get(name)), "dim" * (params.get(name) == first.get(name)))
            for name in varying
        },
    }


class _Strips:
    """The rank of each score among those of its budget, the best to the right; a tick at the baseline.

    By value one outlier would hide the rest.
    """

    def __init__(self, document: Document) -> None:
        self._descending = document["direction"] == "minimize"
        scored = [row for row in document["trials"] if row["score"] is not None]
        self._scores: dict[float, dict[int, float]] = {row["share"]: {} for row in scored}
        """Scores by share of the budget and trial."""
        for row in scored:
            self._scores[row["share"]][row["trial"]] = row["score"]
        self._ranks = {share: self._ranked(scores.values()) for share, scores in self._scores.items()}

    def _ranked(self, scores: Iterable[float]) -> dict[float, int]:
        return {score: rank for rank, score in enumerate(sorted(set(scores), reverse=self._descending))}

    def of(self, row: Document) -> Text:
        scores, ranks = self._scores.get(row["share"], {}), self._ranks.get(row["share"], {})
        if row["trial"] not in scores:
            return Text(" " * PLACES)

        def place(score: float) -> int:
            return round(ranks[score] / (len(ranks) - 1) * (PLACES - 1)) if len(ranks) > 1 else PLACES // 2

        strip = ["·"] * PLACES
        if 0 in scores:
            strip[place(scores[0])] = "┊"
        here = place(row["score"])
        strip[here] = "●"
        text = Text("".join(strip), "dim")
        text.stylize(f"not dim {VERDICTS[row['verdict']].style}", here, here + 1)
        return text


STATES = {"running": "bold green", "failed": "bold red", "stopped": "yellow", "interrupted": "yellow"}
"""Styles of states; others have none."""
CAMPAIGN = ["campaign", "state", "trials", "baseline", "champion"]


def campaigns_table(summaries: list[dict[str, Any]], console: Console) -> Table | Text:
    """Every campaign in a line, in as many columns as fit; names are whole, if need be in a second line."""
    if not summaries:
        return Text("no campaign yet; to begin one: nightshift run cartpole")
    rows = [_summary_cells(summary) for summary in summaries]
    wide = console.options.update(width=WHOLE)
    for columns in ([*CAMPAIGN, "environment", "begun"], [*CAMPAIGN, "begun"], CAMPAIGN, CAMPAIGN[:2]):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(name, justify="right" if name in RIGHT else "left", overflow="fold")
        for cells in rows:
            table.add_row(*(cells[name] for name in columns))
        needs = console.measure(table, options=wide).maximum
        if needs <= room(console):
            break
    if not is_screen(console):
        table.width = needs
    return table


def _summary_cells(summary: Mapping[str, Any]) -> dict[str, Text]:
    """A campaign in every column that the list may have."""
    scores = {who: number((summary[who] or {}).get("score")) for who in ("baseline", "champion")}
    return {
        "campaign": Text(clean(summary["campaign"]), "bold" * (summary["state"] == "running")),
        "state": Text(summary["state"], STATES.get(summary["state"], "")),
        "trials": Text(str(summary["trials"])),
        **{who: Text(score) for who, score in scores.items()},
        "environment": Text(clean(summary["environment"])),
        "begun": Text(time.strftime("%Y-%m-%d %H:%M", time.localtime(summary["created"]))),
    }
