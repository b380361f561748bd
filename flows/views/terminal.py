"""Printing on a terminal: a line per fact, cut at the edge of a screen and whole in a file or a pipe.

Texts of programs, proposers and settings are printed as they are and can do nothing: control characters are escaped,
and no text is read as markup.
"""

from __future__ import annotations

import codecs
import io
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from environments.space import Value
from tasks.describe import mean_of
from tasks.numbers import number
from tasks.task_messages import ReasonParts
from tasks.trial import History, Proposal, Trial, baseline, best, trials_before
from tasks.verdict_styles import VERDICTS

ASCII = str.maketrans("▁▂▃▄▅▆▇█·→…━─╸╺●┊", "_.,-=+*#.>~=-==o|")
STAND_INS = "nightshift-ascii"
"""The error handler that writes ASCII for signs which an encoding lacks."""
WHOLE = 100_000
"""Columns of a file: nothing is cut there."""


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return lacking.translate(ASCII).encode("ascii", "replace").decode(), error.end


codecs.register_error(STAND_INS, _stand_in)


def console(quiet: bool = False) -> Console:
    """Standard output, in whatever encoding it has."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=STAND_INS)
    return Console(highlight=False, emoji=False, quiet=quiet)


def is_screen(console: Console) -> bool:
    """Whether lines end at an edge: on a terminal, not in a file or a pipe, even if colour is forced."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


def room(console: Console) -> int:
    """Columns that a line may take."""
    return console.width if is_screen(console) else WHOLE


def put(console: Console, line: RenderableType) -> None:
    """Print a line or a table: cut at the edge of a screen, whole in a file."""
    if not is_screen(console):
        whole(console, line)
    elif isinstance(line, Text):
        console.print(line, no_wrap=True, overflow="ellipsis", highlight=False)
    else:
        console.print(line, highlight=False)


def whole(console: Console, line: RenderableType) -> None:
    """Print a line that nothing cuts, for it is to be copied."""
    console.print(line, soft_wrap=True, highlight=False)


def say(console: Console, text: Text) -> None:
    """Print a sentence: folded between words on a screen, below its own indentation; one line in a file."""
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    if is_screen(console) and text.plain:
        console.print(Padding(text[indent:], (0, 0, 0, indent), expand=False), highlight=False)
    else:
        whole(console, text)


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else."""
    print(json.dumps(document, indent=2, allow_nan=False))


def clean(text: str) -> str:
    """A text as one line without control characters: what is not printable is escaped, as in \\x1b."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def setting(value: object) -> str:
    """A parameter's value."""
    return f"{value:.3g}" if isinstance(value, float) else clean(str(value))


def changes(values: Mapping[str, Value], reference: Mapping[str, Value]) -> list[str]:
    """Every parameter that differs from the reference's: its name, the value there, the value here."""
    return [
        f"{clean(name)} {setting(reference[name])} → {setting(value)}"
        if name in reference
        else f"{clean(name)} {setting(value)}"
        for name, value in values.items()
        if name not in reference or reference[name] != value
    ]


def fold(parts: Sequence[str], width: int, lines: int | None = None, between: str = " · ") -> list[str]:
    """Parts in at most `lines` lines of `width` columns; none is broken if it fits."""
    text = between.join(part.replace(" ", "\xa0") for part in parts)  # textwrap does not break there
    folded = textwrap.wrap(text, max(width, 10), max_lines=lines, placeholder=" …", break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in folded]


HEADING = Text(f"  {'trial':>5}  {'':<9} {'score':>8} {'gain':>9} {'time':>8}  tried", "dim")
"""Of the lines of trials."""


def trial_line(trial: Trial, history: History) -> Text:
    """A decided trial: verdict, score, gain over the champion of that time (positive is better), time, what was tried.

    What matters most comes first, since a screen cuts the line at its edge.
    """
    kind, before = trial.verdict.kind, trials_before(history, trial)
    gain = _gain(trial, before)
    line = Text(f" {VERDICTS[kind].mark} {trial.number:>4}  ")
    believed = "confirmed" if trial.verdict.level == "confirmed" else kind
    line.append(f"{believed:<9}", VERDICTS[kind].style)
    line.append(f" {number(trial.score.value):>8}", "bold" * (kind == "keep"))
    better = gain is not None and gain > 0
    line.append(f" {_signed(gain):>9}", "green" * better)
    line.append(f" {duration(sum(run.seconds for run in trial.runs)):>8}", "dim")
    reason = short_reason(trial)
    known = sum(rerun.calibrated for rerun in trial.reruns)
    reruns = len(trial.reruns) - known
    notes = [
        "" if trial.proposal.promotes is None else f"trial {trial.proposal.promotes} in full",
        f"{len(trial.runs)} runs" if len(trial.runs) > 1 else "",
        f"{known} more from a calibration" if known else "",
        f"{reruns} rerun{'s' * (reruns > 1)}" if reruns else "",
    ]
    what = "the baseline" if trial.number == 0 else what_was_tried(trial.proposal, best(before))
    parts = [
        (what, ""),
        (f"({', '.join(filter(None, notes))})" if any(notes) else "", "dim"),
        ("" if reason == what else reason, "red" if kind == "crash" else "dim"),
    ]
    if kind in ("crash", "cancelled") or (before and better != (kind == "keep")):  # the numbers do not say why
        parts = [parts[2], *parts[:2]]
    for words, style in parts:
        line.append(f"  {words}" if words else "", style)
    return line


def _gain(trial: Trial, before: History) -> float | None:
    """By how much a score is better than the champion's mean so far; None where one of them is missing."""
    champion = best(before)
    theirs = mean_of(before, champion.number) if champion else None
    if trial.score.value is None or theirs is None:
        return None
    return trial.score.value - theirs if trial.score.higher_is_better else theirs - trial.score.value


def _signed(gain: float | None) -> str:
    """A gain to three digits; empty without one."""
    if gain is None or 1000 <= abs(gain) < 1e6:
        return "" if gain is None else number(gain, sign=True)
    return f"{gain:+.3g}"


def short_reason(trial: Trial) -> str:
    """The first line of a verdict's reason; of a crash, the last line of its log comes first, and the remedy last."""
    parts = ReasonParts.of(trial.verdict.reason)
    if trial.verdict.kind != "crash":
        return clean(parts.seen)
    said = f"{parts.log} ({parts.seen})" if parts.log else parts.seen
    return clean(f"{said} {parts.remedy}".rstrip())


def what_was_tried(proposal: Proposal, champion: Trial | None) -> str:
    """The edit and its reason, or the parameters that differ from the champion's; empty for the baseline."""
    if champion is None:
        return ""
    values, theirs = proposal.params, champion.proposal.params
    changed = " ".join(f"{clean(name)}={setting(value)}" for name, value in values.items() if theirs.get(name) != value)
    edit = proposal.edit if proposal.edit != champion.proposal.edit else None
    if edit:
        more, less = lines_changed(edit)
        changed = f"+{more} -{less} lines: {clean(proposal.rationale)}  {changed}".rstrip()
    return changed or "the champion again"


def lines_changed(edit: str) -> tuple[int, int]:
    """Lines that a unified diff adds, and that it removes."""
    rows = edit.splitlines()
    more = sum(row.startswith("+") and not row.startswith("+++") for row in rows)
    return more, sum(row.startswith("-") and not row.startswith("---") for row in rows)


def before_line(history: History, metric: str) -> Text:
    """The trials of a campaign's earlier lives."""
    champion, first = best(history), baseline(history)
    line = f"   {len(history)} trial{'s' * (len(history) > 1)} before"
    if champion:
        line += f"; champion: trial {champion.number}, {metric} {number(mean_of(history, champion.number))}"
    if first and champion != first:
        line += f" (baseline {number(mean_of(history, 0))})"
    return Text(line, "dim")


def short(path: Path) -> str:
    """A path as a person would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def binaries() -> str:
    """The prefix with which a shell finds our commands: nothing, or the path of an environment that is not active."""
    directory = Path(sys.executable).parent
    if shutil.which("nightshift") == str(directory / "nightshift"):
        return ""
    return f"{short(directory)}/"
