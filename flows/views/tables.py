"""Tables for the terminal: the trials of a campaign, a line each, and every campaign."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from flows.views.terminal import MARKS, STYLES, Shown, clean, duration, setting, shown
from tasks.describe import number

ROWS = 40
"""A longer table shows what was kept and the last trials."""
TRIED = 26
"""Columns that a table leaves for what was tried, before it gives room to anything else."""
ELSEWHERE = "elsewhere"
"""Beside the verdict on a trial that ran on another machine."""
PLACES = 16
"""Columns of the strip on which a score is marked between the worst and the best."""


def campaign_table(document: Mapping[str, Any], width: int, last: int | None = None) -> Shown:
    """The trials of a status document, the last ones only if asked; a line each, with what `width` has room for."""
    return Shown(lambda columns, screen: _trials(document, min(width, columns), last, screen))


def _trials(document: Mapping[str, Any], width: int, last: int | None, screen: bool) -> Table:
    rows, varying = _chosen(document, last), _varying(document["trials"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
    table.title = Text(f"{document['campaign']}  {document['metric']}, {document['direction']}", "bold")
    if told := _captions(document, rows, last):
        table.caption = Text("\n".join(told), "dim")
    columns = _columns(document, rows)
    for spared in ("runs", "time", "se"):
        if _room(columns, width) < TRIED:
            columns.pop(spared, None)
    strip = {"worse" + "better".rjust(PLACES - 5): [_strip(document, row) for row in rows]}
    if _room(columns | strip, width) >= TRIED:
        columns |= strip
    values = {clean(name): [_value(document, row, name) for row in rows] for name in varying}
    room = _room(columns, width)
    if room >= sum(max(cell_len(name), 8) + 3 for name in values):
        columns |= values
    elif varying:
        limit = room if screen else math.inf
        columns["changed from the baseline"] = [_changed(document, row, limit) for row in rows]
    for heading in columns:
        right = heading in ("trial", "score", "se", "runs", "time")
        table.add_column(Text(heading), justify="right" if right else "left", no_wrap=screen, overflow="fold")
    for row, *cells in zip(rows, *columns.values(), strict=True):
        table.add_row(*cells, style="bold" if _is_champion(document, row) else "")
    return table


def _captions(document: Mapping[str, Any], rows: list[dict[str, Any]], last: int | None) -> list[str]:
    """What is to be said below a table."""
    told = []
    if not last and (left_out := len(document["trials"]) - len(rows)):
        every = f"nightshift status {document['campaign']} --last {len(document['trials'])}"
        told.append(f"{left_out} that were not kept are left out: {every}")
    if not all(row["comparable"] for row in rows):
        told.append(f"{ELSEWHERE}: on another machine, so its score does not compare with the others")
    return told


def _room(columns: Mapping[str, list[Text]], width: int) -> int:
    """What is left for one more column: each takes its widest cell and three."""
    taken = [
        max([cell_len(heading), *(cell.cell_len for cell in cells)]) for heading, cells in columns.items()
    ]
    return width - sum(taken) - 3 * (len(taken) + 1)


def _chosen(document: Mapping[str, Any], last: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document["trials"]
    if last or len(rows) <= ROWS:
        return rows[-last:] if last else rows
    shown = [row for row in rows[: -ROWS // 2] if row["verdict"] == "keep" or row["trial"] == 0]
    return [*shown, *rows[-ROWS // 2 :]]


def _columns(document: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, list[Text]]:
    """What every table has of the trials, the most important first."""
    verdicts = [
        f"{MARKS[row['verdict']]} {_word(row)}{' *' * _is_champion(document, row)}"
        f"{_was(row)}"
        f"{'' if row['comparable'] else f' {ELSEWHERE}'}"
        for row in rows
    ]
    several = any(row["runs"] > 1 for row in rows)
    return {
        "trial": [Text(str(row["trial"])) for row in rows],
        "verdict": [Text(text, STYLES[row["verdict"]]) for text, row in zip(verdicts, rows, strict=True)],
        "score": [Text(number(row["score"])) for row in rows],
        "se": [Text("" if row["se"] is None else f"{row['se']:.2g}", "dim") for row in rows],
        **({"runs": [Text(str(row["runs"]), "dim") for row in rows]} if several else {}),
        "time": [Text(duration(row["seconds"]), "dim") for row in rows],
    }


def _word(row: Mapping[str, Any]) -> str:
    """The verdict, or in its place how far a keep can be believed, once that is more than provisional."""
    return str(row["level"] if row["level"] in ("confirmed", "certified") else row["verdict"])


def _was(row: Mapping[str, Any]) -> str:
    """What the verdict was before a rerun, this trial's or an earlier one's, changed it."""
    return f" (was {row['was'][-1]['verdict']})" if row["was"] else ""


def _is_champion(document: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return bool(row["trial"] == (document["champion"] or {}).get("trial"))


def _strip(document: Mapping[str, Any], row: Mapping[str, Any]) -> Text:
    """Where a score ranks, the best to the right; a tick at the baseline. By value one outlier would hide the rest."""
    compare = [one for one in document["trials"] if one["comparable"] and one["score"] is not None]
    scores = {other["score"] for other in compare}
    strip = ["·"] * PLACES
    if row not in compare:
        return Text(" " * PLACES)
    ranks = sorted(scores, reverse=document["direction"] == "minimize")

    def place(score: float) -> int:
        return round(ranks.index(score) / (len(ranks) - 1) * (PLACES - 1)) if len(ranks) > 1 else PLACES // 2

    first = next((other["score"] for other in compare if other["trial"] == 0), None)
    if first is not None:
        strip[place(first)] = "┊"
    here = place(row["score"])
    left, right = "".join(strip[:here]), "".join(strip[here + 1 :])
    return Text.assemble((left, "dim"), ("●", STYLES[row["verdict"]]), (right, "dim"))


def _value(document: Mapping[str, Any], row: Mapping[str, Any], name: str) -> Text:
    """A parameter's value, dim where it is the baseline's."""
    value = row["params"].get(name)
    return Text(setting(value), "dim" if value == document["trials"][0]["params"].get(name) else "")


def _changed(document: Mapping[str, Any], row: Mapping[str, Any], room: float) -> Text:
    first = document["trials"][0]["params"]
    changed = {name: value for name, value in row["params"].items() if first.get(name) != value}
    text = Text(" ".join(f"{clean(name)}={setting(value)}" for name, value in changed.items()))
    if room != math.inf:
        text.truncate(int(room), overflow="ellipsis")
    return text


def campaigns_table(summaries: list[dict[str, Any]]) -> Shown:
    """Every campaign in a line."""
    if not summaries:
        nothing = Text("no campaign yet; to begin one: nightshift run cartpole")
        return shown(nothing)
    return Shown(lambda width, screen: _campaigns(summaries, width))


def _campaigns(summaries: list[dict[str, Any]], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    headings = ["campaign", "state", "trials", "baseline", "champion"]
    headings += ["environment"] * (width >= 76) + ["begun"] * (width >= 96)
    for heading in headings:
        right = heading in ("trials", "baseline", "champion")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    for row in summaries:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
        scores = [number((row[who] or {}).get("score")) for who in ("baseline", "champion")]
        cells = [row["campaign"], row["state"], str(row["trials"]), *scores, row["environment"], begun]
        table.add_row(*(Text(clean(cell)) for cell in cells[: len(headings)]))
    return table


def _varying(rows: list[dict[str, Any]]) -> list[str]:
    """Parameters that differ between trials, in their own order."""
    names = dict.fromkeys(name for row in rows for name in row["params"])
    return [name for name in names if len({repr(row["params"].get(name)) for row in rows}) > 1]
