"""What a person reads in the terminal: tables, a line per trial, and what to open next. Rich where it is a terminal."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from environments import Environment
from environments.space import Value
from tasks.trial import Trial

MARKS = {"keep": "+", "discard": "-", "cancelled": "~", "crash": "x"}
"""A sign beside each verdict, so that colour is not needed to tell them apart."""
STYLES = {"keep": "bold green", "discard": "dim", "cancelled": "yellow", "crash": "bold red"}


def print_json(document: object) -> None:
    """One JSON document on stdout, and nothing else."""
    print(json.dumps(document, indent=2, allow_nan=False))


def number(value: float | None) -> str:
    """A score as people read it; a dash when there is none."""
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"


def params(values: Mapping[str, Value], space: Mapping[str, object]) -> str:
    """The varying parameters in a line."""
    items = [(name, value) for name, value in values.items() if name in space]
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in items
    )


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def trial_line(trial: Trial, environment: Environment) -> Text:
    """A decided trial in a line: verdict, score, how far from the champion of then, and what was tried."""
    kind, score = trial.verdict.kind, trial.score.value
    line = Text(f" {MARKS[kind]} {trial.number:>4}  ")
    line.append(f"{kind:<9}", STYLES[kind])
    line.append(f" {number(score):>8}", "bold" if kind == "keep" else "")
    champion = trial.verdict.evidence.get("champion")
    gain = f"{score - champion:+.4g}" if score is not None and champion is not None else ""
    line.append(f" {gain:>9}  ", STYLES[kind])
    line.append(f"{duration(trial.runs[-1].seconds):>7}  ", "dim")
    if kind == "crash":
        line.append(f"{trial.verdict.reason.splitlines()[0]}  ", "red")
    line.append(params(trial.proposal.params, environment.space))
    return line


def campaign_table(document: Mapping[str, Any], width: int, last: int | None = None) -> Table:
    """The trials of a status document, the last ones only if asked: a column per parameter where `width` allows."""
    rows, varying = document["trials"], _varying(document["trials"])
    wide = width >= 48 + sum(max(len(name), 8) + 3 for name in varying)
    table = Table(
        title=f"{document['campaign']}: {document['metric']}, {document['direction']}", title_justify="left"
    )
    for heading in ("trial", "verdict", "score", "± se", "seconds"):
        table.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    for heading in varying if wide else ["parameters"]:
        table.add_column(heading, overflow="fold")
    champion = (document["champion"] or {}).get("trial")
    for row in rows[-last:] if last else rows:
        kind = row["verdict"]
        verdict = Text(f"{MARKS[kind]} {kind}" + (" *" if row["trial"] == champion else ""), STYLES[kind])
        values = [_cell(row["params"].get(name)) for name in varying]
        tried = values if wide else [" ".join(f"{k}={v}" for k, v in zip(varying, values, strict=True))]
        scores = number(row["score"]), number(row["se"])
        table.add_row(str(row["trial"]), verdict, *scores, f"{row['seconds']:.1f}", *tried)
    return table


def outcome(document: Mapping[str, Any], console: Console) -> None:
    """How the campaign stands: champion against baseline, in words, and what they are worth."""
    first, champion = document["baseline"], document["champion"]
    because = f": {document['reason']}" if document["reason"] else ""
    console.print(f"\n{document['campaign']} is {document['state']}{because}")
    if champion is None:
        console.print("No trial has a score yet." if document["trials"] else "Nothing was decided yet.")
        for row in document["trials"][:1]:
            console.print(Text(f"trial {row['trial']} crashed: {row['reason']}", "red"))
        return
    name, score = document["metric"], champion["score"]
    if first and first["score"] is not None and champion["trial"] != first["trial"]:
        console.print(
            f"champion: trial {champion['trial']}, {name} [bold]{number(score)}[/] against the baseline's "
            f"[bold]{number(first['score'])}[/] ({score - first['score']:+.4g})"
        )
        changed = {k: v for k, v in champion["params"].items() if v != document["trials"][0]["params"].get(k)}
        console.print(
            "  " + ", ".join(f"{key} = {_cell(value)}" for key, value in changed.items()), highlight=False
        )
        console.print(
            "  provisional: one training run each, and the best of several is flattered by luck", style="dim"
        )
    else:
        console.print(f"the baseline stands: {name} {number(score)}; nothing that was tried scored better")


def what_next(document: Mapping[str, Any], path: Path, console: Console) -> None:
    """What to open, and how to go on; `path` is the campaign's directory."""
    directory = short(path)
    console.print("\nto see more")
    here = binaries()
    steps = {
        "results": shlex.quote(f"{directory}/results.tsv"),
        "a trial": f"{here}nightshift logs {document['campaign']} {(document['champion'] or {}).get('trial', 0)}",
        "its changes": f"git -C {shlex.quote(directory + '/lineage.git')} diff baseline champion",
        **_mlflow(document["urls"], here),
    }
    if document["state"] in ("stopped", "interrupted"):
        steps["go on"] = f"{here}nightshift resume {document['campaign']}"
    if waiting := document["waiting_to_record"]:
        steps["waiting"] = f"{waiting} trial(s) are not in MLflow yet; they are sent at the next resume"
    for label, text in steps.items():
        console.print(f"  {label:<12} {text}", highlight=False, soft_wrap=True)


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
    """How to see the campaign's trials in MLflow: an address, or a command first."""
    if "mlflow_command" in urls:
        command = urls["mlflow_command"].replace(" mlflow ui ", f" {here}mlflow ui ")
        return {"mlflow": command, "  then open": f"http://127.0.0.1:5000{urls['mlflow_path']}"}
    return {"mlflow": urls["mlflow_url"]} if "mlflow_url" in urls else {}


def campaigns_table(summaries: list[dict[str, Any]]) -> Table:
    """Every campaign in a line."""
    table = Table()
    for heading in ("campaign", "environment", "state", "trials", "baseline", "champion", "begun"):
        table.add_column(heading)
    for row in summaries:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
        scores = [number((row[who] or {}).get("score")) for who in ("baseline", "champion")]
        table.add_row(row["campaign"], row["environment"], row["state"], str(row["trials"]), *scores, begun)
    return table


def _varying(rows: list[dict[str, Any]]) -> list[str]:
    """Parameters that differ between trials, in their own order."""
    names = dict.fromkeys(name for row in rows for name in row["params"])
    return [name for name in names if len({repr(row["params"].get(name)) for row in rows}) > 1]


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
