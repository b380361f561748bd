"""A campaign in the terminal: a line for each of its trials, its outcome in words, and what to open next.

Everything is made from status documents (flows/status.py), whose texts are cleaned before.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.views.terminal import binaries, cleaned, put, short
from tasks.describe import parameter_changes
from tasks.numbers import duration, number
from tasks.spending import parts
from tasks.verdict_styles import VERDICTS

INCIDENTS = 8
"""Things that happened to proposals, which are shown here; `status --json` has all."""
STATES = {"running": "bold green", "failed": "bold red", "stopped": "yellow", "interrupted": "yellow"}
"""Styles of states; others have none."""
HEADING = Text(f"  {'trial':>5}  {'':<9} {'score':>8} {'gain':>9} {'time':>8}  tried", "dim")
"""Of the lines of trials."""
Document = Mapping[str, Any]


def show(document: Document, path: Path, console: Console) -> None:
    """Print all of it. (path: the campaign's directory)"""
    document = cleaned(document)
    for line in (HEADING, *map(trial_line, document["trials"])) if document["trials"] else ():
        put(console, line)
    console.print()
    for line in outcome(document):
        console.print(line, highlight=False)
    what_next(document, path, console)


def campaign_lines(summaries: Sequence[Document]) -> Iterator[Text]:
    """Every campaign in a line below a heading, its name whole."""
    if not summaries:
        yield Text("no campaign yet; to begin one: nightshift run cartpole")
        return
    width = max(len("campaign"), *(len(summary["campaign"]) for summary in summaries))
    heading = f"{'campaign':<{width}}  {'state':<11} {'trials':>6} {'baseline':>9} {'champion':>9}  {'begun':<16}"
    yield Text(f"{heading}  environment", "bold")
    for summary in map(cleaned, summaries):
        line = Text(f"{summary['campaign']:<{width}}  ")
        line.append(f"{summary['state']:<11}", STATES.get(summary["state"], ""))
        baseline, champion = (number((summary[who] or {}).get("score")) for who in ("baseline", "champion"))
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary["created"]))
        line.append(f" {summary['trials']:>6} {baseline:>9} {champion:>9}")
        yield line.append(f"  {begun}  {summary['environment']}", "dim")


def trial_line(row: Document) -> Text:
    """A decided trial: verdict, score, gain over the champion of that time (positive is better), time, what was tried.

    What matters most comes first, since a screen cuts the line at its edge.
    """
    row = cleaned(row)
    kind, gain, style = row["verdict"], row["gain"], VERDICTS[row["verdict"]]
    better = gain is not None and gain > 0
    line = Text(f" {style.mark} {row['trial']:>4}  ")
    line.append(f"{row['level'] if row['level'] in ('confirmed', 'certified') else kind:<9}", style.style)
    line.append(f" {number(row['score']):>8}", "bold" * (kind == "keep"))
    line.append(f" {'' if gain is None else number(gain, sign=True):>9}", "green" * better)
    line.append(f" {duration(row['seconds']):>8}", "dim")
    runs = row["runs"] + len(row["reruns"])
    why = ("" if row["why"] == row["tried"] else row["why"], "red" if kind == "crash" else "dim")
    words = [(row["tried"], ""), (f"({runs} runs)" if runs > 1 else "", "dim")]
    for text, how in [why, *words] if kind in ("crash", "cancelled") else [*words, why]:
        line.append(f"  {text}" if text else "", how)
    return line


def outcome(document: Document) -> Iterator[Text]:
    """The state and the result: champion against baseline, how far that can be believed, and what it cost."""
    champion, proof, spent = document["champion"], document["certificate"], document["spent"]
    because = f": {document['reason']}" if document["reason"] else ""
    took = f" ({duration(spent['seconds'])})" if spent["seconds"] else ""
    goal = f"; {document['metric']}, {document['direction']}"
    yield Text.assemble((document["campaign"], "bold"), f" is {document['state']}{because}{took}{goal}")
    yield Text(document["result"]["verdict"], "bold")
    if champion is None:
        yield from (Text(f"trial {row['trial']} crashed: {row['why']}", "red") for row in document["trials"][:1])
        return
    if champion["trial"] or proof:
        yield Text(document["result"]["proof"], "bold green" if proof and proof["passed"] else "yellow")
        which = proof["trial"] if proof and proof["passed"] else champion["trial"]
        changed = next(row for row in document["trials"] if row["trial"] == which)["params"]
        before = (document["baseline"] or {"params": {}})["params"]
        lines = [" · ".join(parameter_changes(changed, before)), *document["ablation"]]
        yield from (Text(f"  {line}") for line in lines if line)
    for transfer in document["transfers"]:
        yield Text(f"in {transfer['where']}: {transfer['words']}")
    yield from (Text(line, "dim") for line in _notes(document) if line)
    for waiting in document["waiting"]:
        which = f"{document['campaign']} {waiting['trial']}"
        yield Text(f"it waits for you: nightshift approve {which}, or nightshift reject {which}", "yellow")


def _notes(document: Document) -> Iterator[str]:
    """What limits the result, who proposed, what happened to proposals, and what was spent."""
    stops, sources, incidents = document["cancelled"], document["sources"], document["incidents"]
    yield document["step_budget"]
    if stops["due"]:
        yield f"{stops['due']} cancelled early"
    if len(sources) > 1 or any(source["calls"] for source in sources):
        yield from (f"proposed by {source['words']}" for source in sources)
    yield from (one["words"] for one in (document["imported"], document["predictions"]) if one)
    yield from (f"  trial {one['trial']}, {one['kind']}: {one['words']}" for one in incidents[-INCIDENTS:])
    if slots := document["spent"]["slots"]:
        yield f"time of the slots: {', '.join(f'{share:.0%} {name}' for name, share in slots.items())}"
    yield ", ".join(parts(document))


def what_next(document: Document, path: Path, console: Console) -> None:
    """Print what to open, and how to go on. (path: the campaign's directory)"""
    directory, here, urls, name = short(path), binaries(), document["urls"], document["campaign"]
    champion, is_running, mlflow = document["champion"], document["state"] == "running", urls.get("mlflow_command", "")
    records = 0 if is_running else document["waiting_to_record"]
    files = {"report": "report.html", "results": "results.tsv"}
    steps = {
        **{label: shlex.quote(f"{directory}/{file}") for label, file in files.items() if (path / file).is_file()},
        "a trial": f"{here}nightshift logs {name} {champion['trial'] if champion else 0}" if document["trials"] else "",
        "its changes": f"git -C {shlex.quote(directory + '/lineage.git')} diff baseline champion" if champion else "",
        "prefect": urls.get("prefect", "") if is_running else "",
        "mlflow": urls.get("mlflow_url") or re.sub(r"\b(mlflow ui|nightshift up)\b", rf"{here}\1", mlflow),
        "go on": f"{here}nightshift resume {name}" if document["state"] in ("stopped", "interrupted") else "",
        "waiting": f"{records} of its records wait for MLflow: {here}nightshift sync {name}" if records else "",
    }
    console.print("\nto see more")
    for label, step in steps.items():
        if step:
            console.print(Text.assemble("  ", (f"{label:<12} ", "dim"), step), soft_wrap=True)  # it is to be copied
