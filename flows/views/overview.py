"""A campaign in the terminal: the table of its trials, its outcome in words, and what to open next.

Everything is read from its status document (flows/status.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.spending.summary import parts
from flows.status import SURE_SES
from flows.views import tables
from flows.views.own_servers import OwnServer, login_steps
from flows.views.terminal import binaries, changes, clean, duration, fold, put, room, say, short, whole
from tasks.describe import SPREAD_ONLY, UNPROVEN
from tasks.numbers import number
from tasks.plots.forest import Forest, ForestRow, text

INCIDENTS = 8
"""Things that happened to proposals, which are shown here; `status --json` has all."""
Document = Mapping[str, Any]


def show(document: Document, path: Path, console: Console, last: int | None = None) -> None:
    """Print all of it. (path: the campaign's directory; last: so many trials only)"""
    put(console, tables.campaign_table(document, console, last))
    outcome(document, console)
    elsewhere(document, console)
    what_next(document, path, console)


def outcome(document: Document, console: Console) -> None:
    """Print the state and the result: champion against baseline, and how far that can be believed."""
    console.print()
    for line in _outcome(document, room(console)):
        say(console, line)
    if spent := parts(document):
        say(console, Text(f"spent: {', '.join(spent)}", "dim"))
    if slots := document["spent"]["slots"]:
        say(console, Text(f"slots: {', '.join(f'{share:.1%} {name}' for name, share in slots.items())}", "dim"))


def elsewhere(document: Document, console: Console) -> None:
    """Print the picture of what certificates in other environments and for other budgets show; nothing without one."""
    if not (found := document["elsewhere"]):
        return
    console.print()
    shown = Forest(tuple(ForestRow(**row) for row in found["rows"]), found["unit"])
    for line in text(shown, room(console)):
        put(console, Text(f"  {line}"))
    for one in found["aggregates"]:
        say(console, Text(f"  {clean(one['words'])}"))


def _outcome(document: Document, width: int) -> Iterator[Text]:
    champion, proof, seconds = document["champion"], document["certificate"], document["spent"]["seconds"]
    because = f": {clean(document['reason'])}" if document["reason"] else ""
    took = f" ({duration(seconds)})" if seconds else ""
    yield Text.assemble((document["campaign"], "bold"), f" is {document['state']}{because}{took}")
    if champion is None:
        yield Text("No trial has a score yet." if document["trials"] else "No trial is decided yet.")
        for row in document["trials"][:1]:
            yield Text(f"trial {row['trial']} crashed: {clean(row['reason'])}", "red")
        return
    if proof:
        yield from _certificate(document, proof, width)
    if not proof or proof["trial"] != champion["trial"]:
        if document["uncertified"] and champion["trial"] != (document["baseline"] or {}).get("trial"):
            why = clean(document["uncertified"])
            yield Text(f"not certified, because {why}; the baseline ships", "yellow")
        yield from _champion(document, champion, width)
    for transfer in document["transfers"]:
        yield Text(f"in {clean(transfer['where'])}: {clean(transfer['words'])}")
    cores = f"{document['cores']} cores per run" if document["cores"] > 1 else ""
    notes = (document["step_budget"], cores, clean(document["fidelity"]["words"]), cancelled(document["cancelled"]))
    yield from (Text(line, "dim") for line in notes if line)
    yield from _proposals(document)


def _certificate(document: Document, proof: Document, width: int) -> Iterator[Text]:
    """The newest certificate, what it compared, and what ships."""
    words, trial = clean(proof["words"]), proof["trial"]
    if not proof["passed"] and document["shipped"]:
        ships = next(row for row in document["trials"] if row["trial"] == document["shipped_trial"])
        name = f"trial {ships['trial']}" + ", certified before," * (ships["level"] == "certified")
        words += f"; {'the baseline' if document['shipped'] == 'baseline' else name} ships"
    yield Text(words, "bold green" if proof["passed"] else "yellow")
    if None not in (means := (proof["champion"]["mean"], proof["baseline"]["mean"])):
        text = Text(f"on fresh runs: trial {trial}, {document['metric']} ").append(number(means[0]), "bold")
        text.append(" against the baseline's ").append(number(means[1]), "bold")
        yield text.append(" (its runs of the search included)" if proof["reused"] else "")
    if proof["not_reused"] and not proof["passed"]:  # who compares both scores of the baseline would wonder
        yield Text(f"  {SPREAD_ONLY}: {clean(proof['not_reused'])}", "dim")
    params = next(row["params"] for row in document["trials"] if row["trial"] == trial)
    yield from _changes(params, document, width)
    if proof["passed"]:
        yield Text(f"  {clean(proof['caution'])}", "dim")
    for line in document["ablation"]:
        yield Text(f"  {clean(line)}", "dim")


def _champion(document: Document, champion: Document, width: int) -> Iterator[Text]:
    """The champion against the baseline by the scores of the search, and how far these can be believed."""
    first, name, score = document["baseline"], document["metric"], champion["score"]
    if not first or first["score"] is None:
        yield Text(
            f"trial {champion['trial']} has {name} {number(score)}; the baseline has no score to compare it with"
        )
        return
    if champion["trial"] == first["trial"]:
        yield Text(f"the baseline stands: {name} {number(score)}; nothing that was tried was kept")
        return
    difference = score - first["score"]
    gain = number(difference, sign=True)
    if document["direction"] == "minimize" and difference:
        gain += f", {'better' if difference < 0 else 'worse'}"
    text = Text(f"champion: trial {champion['trial']}, {name} ").append(number(score), "bold")
    yield text.append(" against the baseline's ").append(number(first["score"]), "bold").append(f" ({gain})")
    yield from _changes(champion["params"], document, width)
    over = "one training run" if champion["runs"] == 1 else f"the mean of {champion['runs']} training runs"
    worth = f"  {champion['level']}: {over}, and picking the best of several scores overestimates it"
    if estimate := champion["estimate"]:
        low, high = (estimate["level"] + side * SURE_SES * estimate["se"] for side in (-1, 1))
        worth += f"; its true mean is likely between {number(low)} and {number(high)}"
    yield Text(worth, "dim")
    row = next(row for row in document["trials"] if row["trial"] == champion["trial"])
    yield Text(f"  kept because: {clean(row['reason'])}", "dim")
    does_without = document["state"] == "finished" and document["certificate"] is None
    if does_without and document["shipped"] == "champion":
        rule = document["spec"]["rule"]
        yield Text(f"  it ships without a certificate: rule {rule} makes none", "dim")
    else:
        is_another = any(other["level"] == "certified" for other in document["trials"])
        yield Text(f"  trial {champion['trial']} is not certified yet" if is_another else f"  {UNPROVEN}", "dim")


def _changes(params: Mapping[str, Any], document: Document, width: int) -> list[Text]:
    first = document["baseline"]["params"] if document["baseline"] else {}
    return [Text(f"  {line}") for line in fold(changes(params, first), width - 3)]


def cancelled(counts: Mapping[str, Any]) -> str:
    """How many trials were stopped early, and what came of those that ran on as a check; empty if none was due."""
    due, spared = counts["due"], counts["spared"]
    checked = f"; of {spared} more that were due and ran on as a check {counts['spared_kept'] or 'none'} kept"
    return f"{due - spared} cancelled early{checked if spared else ''}" if due else ""


def _proposals(document: Document) -> Iterator[Text]:
    """Who proposed, what happened to proposals, and what waits for approval; nothing where one proposer did it all."""
    sources, incidents = document["sources"], document["incidents"]
    if len(sources) > 1 or any(source["calls"] for source in sources):
        for source in sources:
            yield Text(f"proposed by {clean(source['words'])}", "dim")
    if imported := document["imported"]:
        yield Text(imported["words"], "dim")
    if predictions := document["predictions"]:
        yield Text(predictions["words"], "dim")
    if (hidden := len(incidents) - INCIDENTS) > 0:
        yield Text(f"{hidden} earlier incidents: status --json, or the artifact `proposals` in Prefect", "dim")
    for incident in incidents[-INCIDENTS:]:
        yield Text(f"  trial {incident['trial']}, {incident['kind']}: {clean(incident['words'])}", "dim")
    for waiting in document["waiting"]:
        trial, name = waiting["trial"], document["campaign"]
        words = f"trial {trial} by {waiting['proposer']} waits for approval"
        yield Text(f"{words}: nightshift approve {name} {trial}, or nightshift reject {name} {trial}", "yellow")


def what_next(document: Document, path: Path, console: Console) -> None:
    """Print what to open, and how to go on. (path: the campaign's directory)"""
    directory, here, urls, name = short(path), binaries(), document["urls"], document["campaign"]
    servers, champion = [OwnServer(**server) for server in document["servers"]], document["champion"]
    steps = {
        "report": shlex.quote(f"{directory}/report.html") if (path / "report.html").is_file() else "",
        "picture": shlex.quote(f"{directory}/progress.png") if (path / "progress.png").is_file() else "",
        "results": shlex.quote(f"{directory}/results.tsv"),
        "fresh runs": shlex.quote(f"{directory}/certificates") if document["certificate"] else "",
        "a trial": f"{here}nightshift logs {name} {champion['trial'] if champion else 0}" if document["trials"] else "",
        "its changes": f"git -C {shlex.quote(directory + '/lineage.git')} diff baseline champion" if champion else "",
        "prefect": urls.get("prefect", "") if document["state"] == "running" else "",
        **_mlflow(urls, here),
        **login_steps([server for server in servers if any(map(server.serves, urls.values()))]),
    }
    if document["state"] in ("stopped", "interrupted"):
        steps["go on"] = f"{here}nightshift resume {name}"
    if waiting := document["waiting_to_record"]:
        records = "1 record waits" if waiting == 1 else f"{waiting} records wait"
        steps["waiting"] = f"{records} for MLflow: {here}nightshift sync {name}"
    console.print("\nto see more")
    for label, step in steps.items():
        if step:
            whole(console, Text.assemble("  ", (f"{label:<12} ", "dim"), clean(step)))


def _mlflow(urls: Mapping[str, str], here: str) -> dict[str, str]:
    """Where MLflow shows the campaign's trials and its environment's campaigns; a command first, if no server runs."""
    if "mlflow_command" not in urls:
        return {"mlflow": urls.get("mlflow_url", ""), "  campaigns": urls.get("mlflow_nights_url", "")}
    site = "http://127.0.0.1:5000"
    command = re.sub(r"\b(mlflow ui|nightshift up)\b", rf"{here}\1", urls["mlflow_command"])
    campaigns = f"{site}{urls['mlflow_nights_path']}" if "mlflow_nights_path" in urls else ""
    return {"mlflow": command, "  then open": site + urls.get("mlflow_path", ""), "  campaigns": campaigns}
