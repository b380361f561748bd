"""What a person reads in the terminal: a line per trial, the outcome, what to open next. Rich where it is a terminal.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from environments import Environment
from environments.space import Value
from tasks.describe import UNPROVEN, mean_of, number
from tasks.trial import History, Trial, baseline, best

MARKS = {"keep": "+", "discard": "-", "cancelled": "~", "crash": "x"}
"""A sign beside each verdict, so that colour is not needed to tell them apart."""
TOLD = 8
"""Things that happened to proposals, which are told in the terminal; all of them are elsewhere."""
STYLES = {"keep": "bold green", "discard": "dim", "cancelled": "yellow", "crash": "bold red"}
ASCII = str.maketrans("▁▂▃▄▅▆▇█·→…━─╸●┊", "_.,-=+*#.>~=--o|")
"""Stand-ins where the terminal's encoding has no such signs; one for one, so that columns stay."""


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
    if counted := _counted(trial):
        line.append(f"  ({counted})", "dim")
    tried = changes(trial.proposal.params, reference.proposal.params) if reference else []
    changed = as_many_as_fit(tried, math.inf if width is None else width - line.cell_len - 2)
    return line.append(f"  {changed}" if changed else "", "dim")


def _counted(trial: Trial) -> str:
    """How many runs and reruns a trial had, where that is more than the one, and a level that they earned it."""
    parts = [f"was {trial.was[-1].kind}"] if trial.was else []
    parts += ["confirmed"] if trial.verdict.level == "confirmed" else []
    parts += [f"{len(trial.runs)} runs"] if len(trial.runs) > 1 else []
    known = sum(rerun.calibrated for rerun in trial.reruns)
    parts += [f"{known} more from a calibration"] if known else []
    reruns = len(trial.reruns) - known
    return ", ".join([*parts, *([f"{reruns} rerun{'s' * (reruns > 1)}"] if reruns else [])])


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
            f"; champion: trial {champion.number}, {environment.metric} {number(mean_of(history, champion.number))}"
        )
    if first and champion != first:
        line.append(f" (baseline {number(mean_of(history, 0))})")
    return line


def outcome(document: Mapping[str, Any], console: Console) -> None:
    """How the campaign stands: champion against baseline, in words, and what they are worth."""
    champion = document["champion"]
    because = f": {clean(document['reason'])}" if document["reason"] else ""
    console.print()
    took = f" ({duration(document['spent']['seconds'])})" if document["spent"]["seconds"] else ""
    say(console, Text.assemble((document["campaign"], "bold"), f" is {document['state']}{because}{took}"))
    if champion is None:
        say(console, Text("No trial has a score yet." if document["trials"] else "Nothing was decided yet."))
        for row in document["trials"][:1]:
            say(console, Text(f"trial {row['trial']} crashed: {clean(row['reason'])}", "red"))
        return
    proof = document["certificate"]
    if proof:
        _certificate(document, proof, console)
    if not proof or proof["trial"] != champion["trial"]:
        if document["uncertified"] and champion["trial"] != (document["baseline"] or {}).get("trial"):
            why = f"not certified, because {clean(document['uncertified'])}; the baseline ships"
            say(console, Text(why, "yellow"))
        _champion(document, champion, console)
    for transfer in document["transfers"]:
        say(console, Text(f"in {clean(transfer['environment'])}: {clean(transfer['words'])}"))
    if line := cancelled(document["cancelled"]):
        say(console, Text(line, "dim"))
    proposals(document, console)


def _certificate(document: Mapping[str, Any], proof: Mapping[str, Any], console: Console) -> None:
    """What the newest certificate says, what it compared, and what ships."""
    passed, trial = proof["passed"], proof["trial"]
    words = clean(proof["words"])
    if not passed and document["shipped"]:
        words += f"; {'the baseline' if document['shipped'] == 'baseline' else _trial(document)} ships"
    say(console, Text(words, "bold green" if passed else "yellow"))
    mine, theirs = proof["champion"]["mean"], proof["baseline"]["mean"]
    if mine is not None and theirs is not None:
        text = Text(f"on fresh runs: trial {trial}, {document['metric']} ").append(number(mine), "bold")
        say(console, text.append(" against the baseline's ").append(number(theirs), "bold"))
    params = next(row["params"] for row in document["trials"] if row["trial"] == trial)
    _changes(params, document, console)
    if passed:
        say(console, Text(clean(proof["caution"]), "dim"), indent=2)
    for line in document["ablation"]:
        say(console, Text(clean(line), "dim"), indent=2)


def _trial(document: Mapping[str, Any]) -> str:
    return f"trial {document['shipped_trial']}, certified before,"


def _champion(document: Mapping[str, Any], champion: Mapping[str, Any], console: Console) -> None:
    """The champion against the baseline as the search saw them, and what that is worth."""
    first, name, score = document["baseline"], document["metric"], champion["score"]
    if not first or first["score"] is None or champion["trial"] == first["trial"]:
        stands = f"the baseline stands: {name} {number(score)}; nothing that was tried was kept"
        say(console, Text(stands))
        return
    text = Text(f"champion: trial {champion['trial']}, {name} ")
    text.append(number(score), "bold").append(" against the baseline's ")
    text.append(number(first["score"]), "bold").append(f" ({_better(document, score - first['score'])})")
    say(console, text)
    _changes(champion["params"], document, console)
    for line in _worth(document, champion):
        say(console, Text(line, "dim"), indent=2)


def _better(document: Mapping[str, Any], difference: float) -> str:
    """A difference of scores with its sign; that less is better is said."""
    if document["direction"] == "maximize" or not difference:
        return f"{difference:+.4g}"
    return f"{difference:+.4g}, {'better' if difference < 0 else 'worse'}"


def _changes(params: Mapping[str, Value], document: Mapping[str, Any], console: Console) -> None:
    changed = changes(params, document["trials"][0]["params"])
    for line in in_lines(changed, console.width - 3 if is_screen(console) else math.inf):
        put(console, Text(f"  {line}"))


def _worth(document: Mapping[str, Any], champion: Mapping[str, Any]) -> list[str]:
    """What a champion's score is worth without a certificate."""
    runs, found = champion["runs"], champion["estimate"]
    over = "one training run" if runs == 1 else f"the mean of {runs} training runs"
    worth = f"{champion['level']}: {over}, and the best of several is flattered by luck"
    if found:
        worth += f"; luck allowed for, its level is about {number(found['level'])} (se {found['se']:.2g})"
    if (
        document["state"] == "finished"
        and document["certificate"] is None
        and document["shipped"] == "champion"
    ):
        return [worth, f"it ships, and nothing was certified: rule {document['spec']['rule']} does without"]
    return [worth, UNPROVEN]


def cancelled(counts: Mapping[str, Any]) -> str:
    """What was cancelled, and what became of those that were due and ran on to show it; empty if none was due."""
    due, spared, kept = counts["due"], counts["spared"], counts["spared_kept"]
    if not due:
        return ""
    ended = due - spared
    line = f"{ended} trial{' was' if ended == 1 else 's were'} cancelled"
    if not spared:
        return line
    fate = f"{kept or 'none'} of them {'were' if kept > 1 else 'was'} kept"
    return f"{line}; {spared} more {'was' if spared == 1 else 'were'} due and ran on: {fate}"


def proposals(document: Mapping[str, Any], console: Console) -> None:
    """Who proposed, what happened on the way, and what waits for a person; nothing where one proposer did it all."""
    who, happened = document["sources"], document["incidents"]
    if len(who) > 1 or any(one["calls"] for one in who):
        for one in who:
            say(console, Text(f"proposed by {clean(one['words'])}", "dim"))
    if len(happened) > TOLD:
        say(
            console,
            Text(
                f"{len(happened) - TOLD} things before these: status --json, or proposals in Prefect", "dim"
            ),
        )
    for one in happened[-TOLD:]:
        say(console, Text(f"  trial {one['trial']}, {one['kind']}: {clean(one['words'])}", "dim"))
    for one in document["waiting"]:
        words = f"trial {one['trial']} by {one['proposer']} waits for a word: nightshift approve | reject "
        say(console, Text(f"{words}{document['campaign']} {one['trial']}", "yellow"))


def what_next(document: Mapping[str, Any], path: Path, console: Console) -> None:
    """What to open, and how to go on; `path` is the campaign's directory."""
    directory, here, urls = short(path), binaries(), document["urls"]
    steps = {
        "picture": shlex.quote(f"{directory}/progress.png") if (path / "progress.png").is_file() else "",
        "results": shlex.quote(f"{directory}/results.tsv"),
        "fresh runs": shlex.quote(f"{directory}/certificates") if document["certificate"] else "",
        "a trial": f"{here}nightshift logs {document['campaign']} {(document['champion'] or {}).get('trial', 0)}",
        "its changes": f"git -C {shlex.quote(directory + '/lineage.git')} diff baseline champion",
        "prefect": urls.get("prefect", "") if document["state"] == "running" else "",
        **_mlflow(urls, here),
    }
    if document["state"] in ("stopped", "interrupted"):
        steps["go on"] = f"{here}nightshift resume {document['campaign']}"
    if waiting := document["waiting_to_record"]:
        told = "1 record waits" if waiting == 1 else f"{waiting} records wait"
        steps["waiting"] = f"{told} for MLflow: {here}nightshift sync {document['campaign']}"
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
