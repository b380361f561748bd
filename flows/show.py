"""What a person reads in the terminal: tables, a line per trial, and what to open next. Rich where it is a terminal.

What programs, proposers and settings say is shown as it is and can do nothing: control characters are written out,
and no text of theirs is ever markup.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from environments import Environment
from environments.space import Value
from tasks.trial import History, Trial, baseline, best
from tasks.wording import number

MARKS = {"keep": "+", "discard": "-", "cancelled": "~", "crash": "x"}
"""A sign beside each verdict, so that colour is not needed to tell them apart."""
STYLES = {"keep": "bold green", "discard": "dim", "cancelled": "yellow", "crash": "bold red"}
ASCII = str.maketrans("▁▂▃▄▅▆▇█·→…━─╸●┊", "_.,-=+*#.>~=--o|")
"""Stand-ins where the terminal's encoding has no such signs; one for one, so that columns stay."""
TABLE_ROWS = 40
"""A longer table shows what was kept and the last trials."""
TRIED = 26
"""Columns that a table leaves for what was tried, before it gives room to anything else."""
PLACES = 16
"""Columns of the strip on which a score is marked between the worst and the best."""


def print_json(document: object) -> None:
    """One JSON document on stdout, and nothing else."""
    print(json.dumps(document, indent=2, allow_nan=False))


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def clean(text: str) -> str:
    """A text as one line that can do nothing to a terminal: what is not printable is written out, as in \\x1b."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def setting(value: object) -> str:
    """A parameter's value."""
    return f"{value:.3g}" if isinstance(value, float) else clean(str(value))


def changes(values: Mapping[str, Value], reference: Mapping[str, Value]) -> list[str]:
    """Every parameter that differs from the reference's: name, value there, value here."""
    return [
        f"{clean(name)} {setting(reference[name])} → {setting(value)}"
        if name in reference
        else f"{clean(name)} {setting(value)}"
        for name, value in values.items()
        if name not in reference or reference[name] != value
    ]


def is_screen(console: Console) -> bool:
    """Whether lines end at an edge there: a terminal, neither a file nor a pipe, whatever was forced."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


def put(console: Console, line: Text) -> None:
    """Print a line: cut at the edge of a screen, whole where it goes into a file."""
    if is_screen(console):
        line = line.copy()
        line.truncate(console.width - 1, overflow="ellipsis")
    whole(console, line)


def whole(console: Console, line: Text) -> None:
    """Print a line that nothing cuts."""
    console.print(shown(line), soft_wrap=True, highlight=False)


def say(console: Console, text: Text, indent: int = 0) -> None:
    """Print a sentence: folded between words on a screen, in one line where it goes into a file."""
    lines = text.wrap(console, max(console.width - 1 - indent, 20)) if is_screen(console) else [text]
    for line in lines:
        line.rstrip()
        put(console, Text(" " * indent).append_text(line))


@dataclass(frozen=True)
class Shown:
    """Something that is drawn to fit: `draw` takes the columns there are, and whether they are those of a screen."""

    draw: Callable[[int, bool], RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.draw(options.max_width, is_screen(console)), options):
            if options.ascii_only and not segment.control:
                yield Segment(
                    segment.text.translate(ASCII).encode("ascii", "replace").decode(), segment.style
                )
            else:
                yield segment


def shown(line: Text) -> Shown:
    """A text that is to be drawn as it is."""
    return Shown(lambda width, screen: line)


def trial_line(trial: Trial, history: History, width: int | None = None) -> Text:
    """A decided trial in a line: verdict, score, reason, and in what it differed from the champion of then.

    Args:
        width: Columns there are for it: differences that do not fit whole are counted. None: there is no edge.
    """
    kind, reference = trial.verdict.kind, best(history[: trial.settle])
    line = Text(f" {MARKS[kind]} {trial.number:>4}  ", no_wrap=True)
    line.append(f"{kind:<9}", STYLES[kind])
    reason = clean((trial.verdict.reason.strip().splitlines() or [""])[0])
    score = number(trial.score.value)
    if width is None or width >= 90 or score not in reason:  # where room is short nothing is said twice
        line.append(f" {score:>8}", "bold" if kind == "keep" else "")
    line.append(f"  {reason}", "red" if kind == "crash" else "")
    tried = changes(trial.proposal.params, reference.proposal.params) if reference else []
    changed = as_many_as_fit(tried, math.inf if width is None else width - line.cell_len - 2)
    return line.append(f"  {changed}" if changed else "", "dim")


def as_many_as_fit(parts: list[str], room: float) -> str:
    """The first of the parts that `room` columns hold, whole, and how many more there are; empty if not even one."""
    for count in range(len(parts), 0, -1):
        more = [f"{len(parts) - count} more"] if count < len(parts) else []
        if cell_len(text := " · ".join([*parts[:count], *more])) <= room:
            return text
    return ""


def in_lines(parts: list[str], room: float) -> list[str]:
    """The parts in as few lines of `room` columns as hold them, none broken."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(f"{lines[-1]} · {part}") <= room:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def so_far(history: History, environment: Environment) -> Text:
    """What earlier lives of a campaign have come to."""
    champion, first = best(history), baseline(history)
    line = Text(f"   {len(history)} trial{'s' * (len(history) > 1)} before", "dim", no_wrap=True)
    if champion:
        line.append(
            f"; champion: trial {champion.number}, {environment.metric} {number(champion.score.value)}"
        )
    if first and champion != first:
        line.append(f" (baseline {number(first.score.value)})")
    return line


def campaign_table(document: Mapping[str, Any], width: int, last: int | None = None) -> Shown:
    """The trials of a status document, the last ones only if asked; a line each, with what `width` has room for."""
    return Shown(lambda columns, screen: _trials(document, min(width, columns), last, screen))


def _trials(document: Mapping[str, Any], width: int, last: int | None, screen: bool) -> Table:
    rows, varying = _chosen(document, last), _varying(document["trials"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
    table.title = Text(f"{document['campaign']}  {document['metric']}, {document['direction']}", "bold")
    if not last and (left_out := len(document["trials"]) - len(rows)):
        every = f"nightshift status {document['campaign']} --last {len(document['trials'])}"
        table.caption = Text(f"{left_out} that were not kept are left out: {every}", "dim")
    columns = _columns(document, rows)
    if _room(columns, width) < TRIED:
        columns = dict(list(columns.items())[:3])
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
        right = heading in ("trial", "score", "se", "time")
        table.add_column(Text(heading), justify="right" if right else "left", no_wrap=screen, overflow="fold")
    for row, *cells in zip(rows, *columns.values(), strict=True):
        table.add_row(*cells, style="bold" if _is_champion(document, row) else "")
    return table


def _room(columns: Mapping[str, list[Text]], width: int) -> int:
    """What is left for one more column: each takes its widest cell and three."""
    taken = [
        max([cell_len(heading), *(cell.cell_len for cell in cells)]) for heading, cells in columns.items()
    ]
    return width - sum(taken) - 3 * (len(taken) + 1)


def _chosen(document: Mapping[str, Any], last: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document["trials"]
    if last or len(rows) <= TABLE_ROWS:
        return rows[-last:] if last else rows
    shown = [row for row in rows[: -TABLE_ROWS // 2] if row["verdict"] == "keep" or row["trial"] == 0]
    return [*shown, *rows[-TABLE_ROWS // 2 :]]


def _columns(document: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, list[Text]]:
    """What every table has of the trials, the most important first."""
    verdicts = [
        f"{MARKS[row['verdict']]} {row['verdict']}{' *' * _is_champion(document, row)}" for row in rows
    ]
    return {
        "trial": [Text(str(row["trial"])) for row in rows],
        "verdict": [Text(text, STYLES[row["verdict"]]) for text, row in zip(verdicts, rows, strict=True)],
        "score": [Text(number(row["score"])) for row in rows],
        "se": [Text("" if row["se"] is None else f"{row['se']:.2g}", "dim") for row in rows],
        "time": [Text(duration(row["seconds"]), "dim") for row in rows],
    }


def _is_champion(document: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return bool(row["trial"] == (document["champion"] or {}).get("trial"))


def _strip(document: Mapping[str, Any], row: Mapping[str, Any]) -> Text:
    """Where a score ranks, the best to the right; a tick at the baseline. By value one outlier would hide the rest."""
    scores = {other["score"] for other in document["trials"] if other["score"] is not None}
    strip = ["·"] * PLACES
    if row["score"] is None:
        return Text(" " * PLACES)
    ranks = sorted(scores, reverse=document["direction"] == "minimize")

    def place(score: float) -> int:
        return round(ranks.index(score) / (len(ranks) - 1) * (PLACES - 1)) if len(ranks) > 1 else PLACES // 2

    first = (document["baseline"] or {}).get("score")
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


def outcome(document: Mapping[str, Any], console: Console) -> None:
    """How the campaign stands: champion against baseline, in words, and what they are worth."""
    first, champion = document["baseline"], document["champion"]
    because = f": {clean(document['reason'])}" if document["reason"] else ""
    console.print()
    took = f" ({duration(document['spent']['seconds'])})" if document["spent"]["seconds"] else ""
    say(console, Text.assemble((document["campaign"], "bold"), f" is {document['state']}{because}{took}"))
    if champion is None:
        say(console, Text("No trial has a score yet." if document["trials"] else "Nothing was decided yet."))
        for row in document["trials"][:1]:
            say(console, Text(f"trial {row['trial']} crashed: {clean(row['reason'])}", "red"))
        return
    name, score = document["metric"], champion["score"]
    if first and first["score"] is not None and champion["trial"] != first["trial"]:
        text = Text(f"champion: trial {champion['trial']}, {name} ")
        text.append(number(score), "bold green").append(" against the baseline's ")
        text.append(number(first["score"]), "bold").append(f" ({score - first['score']:+.4g})")
        say(console, text)
        changed = changes(champion["params"], document["trials"][0]["params"])
        for line in in_lines(changed, console.width - 3 if is_screen(console) else math.inf):
            put(console, Text(f"  {line}"))
        worth = "provisional: one training run each, and the best of several is flattered by luck"
        say(console, Text(worth, "dim"), indent=2)
    else:
        say(
            console,
            Text(f"the baseline stands: {name} {number(score)}; nothing that was tried scored better"),
        )


def what_next(document: Mapping[str, Any], path: Path, console: Console) -> None:
    """What to open, and how to go on; `path` is the campaign's directory."""
    directory, here, urls = short(path), binaries(), document["urls"]
    steps = {
        "picture": shlex.quote(f"{directory}/progress.png") if (path / "progress.png").is_file() else "",
        "results": shlex.quote(f"{directory}/results.tsv"),
        "a trial": f"{here}nightshift logs {document['campaign']} {(document['champion'] or {}).get('trial', 0)}",
        "its changes": f"git -C {shlex.quote(directory + '/lineage.git')} diff baseline champion",
        "prefect": urls.get("prefect", "") if document["state"] == "running" else "",
        **_mlflow(urls, here),
    }
    if document["state"] in ("stopped", "interrupted"):
        steps["go on"] = f"{here}nightshift resume {document['campaign']}"
    if waiting := document["waiting_to_record"]:
        steps["waiting"] = f"{waiting} trial(s) are not in MLflow yet; they are sent at the next resume"
    console.print("\nto see more")
    for label, step in steps.items():
        if step:  # whole, however long: it is there to be copied
            whole(console, Text.assemble("  ", (f"{label:<12} ", "dim"), clean(step)))


def short(path: Path) -> str:
    """A path as a person would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def binaries() -> str:
    """What goes before our commands so that they are found: nothing, or the way to an environment not activated."""
    directory = Path(sys.executable).parent
    if shutil.which("nightshift") == str(directory / "nightshift"):
        return ""
    return f"{short(directory)}/"


def _mlflow(urls: Mapping[str, str], here: str) -> dict[str, str]:
    """How to see the campaign's trials in MLflow, and the nights of its environment: addresses, or a command first."""
    site = "http://127.0.0.1:5000"
    if "mlflow_command" in urls:
        command = re.sub(r"\b(mlflow ui|nightshift up)\b", rf"{here}\1", urls["mlflow_command"])
        nights = f"{site}{urls['mlflow_nights_path']}" if "mlflow_nights_path" in urls else ""
        return {"mlflow": command, "  then open": f"{site}{urls.get('mlflow_path', '')}", "  nights": nights}
    return {"mlflow": urls.get("mlflow_url", ""), "  nights": urls.get("mlflow_nights_url", "")}


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
