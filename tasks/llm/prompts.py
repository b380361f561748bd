"""Prompts: Markdown files as Jinja templates. An environment's own replace ours.

Ours lie beside this file, in `prompts/`. A file of the same name in the environment's `prompts/` replaces it; since
prompts include each other, that may be one part alone. Their values:

    problem                 the environment
    count, form             how many proposals are asked for, and how an edit is to be written
    reason, before          why the last answer cannot be tried, and what an agent had changed, quoted
    all of `told`           the campaign in words

Output of programs and words of models and people are quoted, marked line by line as data. Each part has a cap, so that
a prompt does not grow with the campaign; only the program is shown whole, since an edit needs it. The newest trials and
the best ones are told in full, of the others each has a line, the newest first; what has no room is counted.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from environments import plugins
from environments.plugins import Refused
from environments.space import Choice, Int, Parameter
from tasks.describe import changes, mean_of, parameter_changes
from tasks.numbers import number
from tasks.proposing.brief import NO_PROBLEM, Brief
from tasks.stats.champion import run_sd
from tasks.stats.predictions import effect, record
from tasks.system.redact import capped, one_line, quote, scrub_text
from tasks.trial import History, Proposal, Trial, Value, baseline, best, measured

if TYPE_CHECKING:
    import jinja2

OURS = Path(__file__).parent / "prompts"
NAMES = tuple(sorted(path.stem for path in OURS.glob("*.md")))
"""The prompts that there are, parts of others included."""
DEFAULTS: dict[str, object] = {"count": 1, "form": "search_replace", "reason": "", "before": ""}
"""Values that only some prompts are given, as the others have them: a part may be in any prompt."""
WIDTH = 200
"""Characters of a quoted line."""
PROGRAM_MD = 20_000
"""Characters of program.md."""
REFUSED, REJECTED, EARLIER, IMPORTED = 8, 10, 30, 30
"""Lines on refused suggestions, proposals that were not approved, earlier campaigns, imported trials."""
HISTORY, IN_FULL = 18_000, 14_000
"""Characters of the trials that are told one by one, and of those among them that are told in full."""
NEWEST, BEST = 8, 4
"""Trials that are told in full, as far as there is room: two of the newest first, then the best of all."""
LOG_LINES, DIFF_LINES = 25, 30
"""Last lines of a crash's reason, which ends with those of its log, and of an edit."""


def render(name: str, brief: Brief, **values: object) -> str:
    """The prompt of that name about a brief, with its values filled in; the environment's own files stand before ours.

    Raises:
        Refused: a prompt of its folder that is no template, or that names what there is not.
    """
    import jinja2

    known = {"problem": brief.problem} | DEFAULTS | told(brief) | values
    try:
        return _templates(brief.problem.folder / OURS.name).get_template(f"{name}.md").render(known).strip() + "\n"
    except Exception as wrong:  # a template may raise anything, and a part may include itself
        # A fault in a part is told with the part's own place.
        line = f", line {wrong.lineno}" if isinstance(wrong, jinja2.TemplateSyntaxError) else ""
        raise Refused(
            f"prompt {getattr(wrong, 'filename', None) or f'{name}.md'}{line}: {wrong}. Values that a prompt may name: "
            f"{', '.join(known)}"
        ) from wrong


def check(folder: Path) -> None:
    """Refuse an environment's own prompts that cannot be said of a campaign that is yet to begin."""
    brief = Brief({}, (), problem=NO_PROBLEM.model_copy(update={"folder": folder}))
    for path in sorted((folder / OURS.name).glob("*.md")):
        plugins.require(path.stem, NAMES, "prompt", str(path.parent))
        render(path.stem, brief)


@lru_cache(maxsize=8)
def _templates(own: Path) -> jinja2.Environment:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Sandboxed: an environment may come from elsewhere, and a prompt has no business but to be filled in.
    return ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader([own, OURS]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is no web page
    )


def told(brief: Brief) -> dict[str, object]:
    """A brief as the parts of a prompt, by name; a part without content is an empty text."""
    problem, history = brief.problem, brief.history
    champion, first = best(history), baseline(history)
    now, original = champion.proposal if champion else None, first.proposal if first else None
    luck, predictions = run_sd(history), record(history)
    path = problem.folder / "program.md"
    program_md = path.read_text("utf-8", "replace") if path.is_file() else ""
    reasons = [f"trial {trial.number}: {why}" for trial in history for why in trial.proposal.turned_down]
    return {
        "program_md": capped(scrub_text(program_md).strip(), PROGRAM_MD),
        "space": "\n".join(_parameter(name, one, brief) for name, one in brief.space.items()),
        "files": "\n\n".join(_file(name, text) for name, text in brief.files.items()),
        "champion": champion.number if champion else None,
        "score": _score_of(history, champion.number) if champion else "",
        "baseline_score": _score_of(history, 0),
        "noise": number(luck) if champion and math.isfinite(luck) else "",
        "keep_rule": brief.keep_rule,
        "history": trials(history),
        "predictions": predictions["words"] if predictions else "",
        "refused": listed(reasons[-REFUSED:]),
        "rejected": listed(
            f"{changed(original, one.proposal)} ({one_line(one.proposal.rationale, WIDTH)}): {one.words}"
            for one in brief.rejected[-REJECTED:]
        ),
        "earlier": _earlier(brief),
        "imported": _imported(brief),
        "pending": listed(
            f"trial {taken}: {changed(now, one)}: {one_line(one.rationale, WIDTH)}"
            for taken, one in sorted(brief.pending.items())
        ),
        "left": brief.left,
        "under_way": len(brief.pending),
    }


def trials(history: History) -> str:
    """The trials in their order, as far as there is room."""
    others, first = [trial for trial in history if trial.number > 0], baseline(history)
    scored = [trial for trial in others if trial.score.value is not None]
    top = sorted(scored, key=lambda trial: -trial.score.utility)[:BEST]
    newest = others[: -NEWEST - 1 : -1]
    said = dict[int, str]()
    for trial in (*([first] if first else []), *newest[:2], *top, *newest[2:]):
        text = _in_full(history, trial)
        if trial.number not in said and sum(map(len, said.values())) + len(text) <= IN_FULL:
            said[trial.number] = text
    for trial in reversed(others):
        line = f"- {_in_a_line(first.proposal if first else None, trial)}"
        if trial.number not in said and sum(map(len, said.values())) + len(line) <= HISTORY:
            said[trial.number] = line
    left_out = sum(trial.number not in said for trial in others)
    parts = [said[trial.number] for trial in history if trial.number in said]
    return "\n".join(([f"{left_out} older trials are left out."] if left_out else []) + parts)


def changed(old: Proposal | None, new: Proposal) -> str:
    """The differences between two proposals, with the values as an answer writes them."""
    return ", ".join(changes(new, old, _shown)) or "nothing"


def _shown(value: Value) -> str:
    """A value in four digits, and as it is written in an answer."""
    return json.dumps(float(f"{value:.4g}") if isinstance(value, float) else value)


def _in_full(history: History, trial: Trial) -> str:
    """A trial: what it did otherwise than the champion of its time, and what came of it."""
    proposal, then = trial.proposal, best(history[: history.index(trial)])
    against = f"trial {then.number}, the champion then" if then and then.number else "the baseline"
    before = then or baseline(history)
    old = before.proposal if before else None
    lines = [f"### {f'Trial {trial.number}' if trial.number else 'The baseline'}: {trial.verdict.kind}"]
    if trial.number:
        lines.append(f"- Changed against {against}: {changed(old, proposal)}")
    if trial.score.value is not None:
        gain = effect(history, trial, then)
        than_then = "" if gain is None else f", {number(gain, sign=True)} against the champion then"
        lines.append(f"- Score: {_score_of(history, trial.number)}{than_then}")
    if proposal.expected is not None:
        lines.append(f"- Its proposer expected {number(proposal.expected, sign=True)} against the champion it knew")
    if trial.score.also:
        values = ", ".join(f"{name} {number(value)}" for name, value in trial.score.also.items())
        lines.append(f"- Measured besides: {one_line(values, 2 * WIDTH)}")
    curve = trial.runs[0].curve[3::4] if trial.runs else ()
    if any(value is not None for value in curve):
        lines.append(f"- Reported at each fifth of its budget: {', '.join(map(number, curve))}")
    errors = [run.error for run in trial.runs if run.error]
    if trial.verdict.kind == "crash" or errors:  # the reason is not in our own words alone
        lines += ["- Why:", quote([*errors, trial.verdict.reason][0], WIDTH, LOG_LINES)]
    else:
        lines.append(f"- Why: {one_line(trial.verdict.reason, WIDTH)}")
    if proposal.rationale:
        lines += ["- The idea was:", quote(proposal.rationale, 2 * WIDTH, 4)]
    if proposal.edit and trial is not best(history):  # the champion's program is told whole
        own = _own_lines(proposal.edit, old.edit if old else None)
        lines += ["- Lines of the program that it changed:", quote("\n".join(own), WIDTH, DIFF_LINES)]
    return "\n".join(lines) + "\n"


def _in_a_line(old: Proposal | None, trial: Trial) -> str:
    """A trial: what it did otherwise than `old`, and what came of it."""
    score = f" at {number(trial.score.value)}" if trial.score.value is not None else ""
    return f"Trial {trial.number}, {trial.verdict.kind}{score}: {capped(changed(old, trial.proposal), WIDTH)}"


def _own_lines(edit: str, parent: str | None) -> list[str]:
    """The lines that an edit changes and its parent's does not."""
    new, old = (Counter(re.findall(r"^(?!\+\+\+ |--- )[+-].*", diff, re.MULTILINE)) for diff in (edit, parent or ""))
    return [*(new - old).elements()]


def _score_of(history: History, trial: int) -> str:
    """The mean over all of a trial's runs, and how many these are."""
    runs = sum(score.value is not None for score in measured(history, trial))
    return f"{number(mean_of(history, trial))} ({runs} run{'s' * (runs != 1)})" if runs else "none"


def _parameter(name: str, parameter: Parameter, brief: Brief) -> str:
    now = f"now {json.dumps(brief.start[name])}, the baseline's {json.dumps(parameter.default)}"
    if isinstance(parameter, Choice):
        return f"- {name}: one of {', '.join(map(json.dumps, parameter.values))}; {now}"
    kind = "a whole number" if isinstance(parameter, Int) else "a number"
    scale = ", on a logarithmic scale" if parameter.log else ""
    return f"- {name}: {kind} from {json.dumps(parameter.low)} to {json.dumps(parameter.high)}{scale}; {now}"


def _file(name: str, text: str) -> str:
    """A file as it is: an edit has to match it. The fence is longer than any in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    shown = scrub_text(text)
    return f"{name}:\n\n{fence}\n{shown}{'' if shown.endswith(chr(10)) else chr(10)}{fence}"


def _earlier(brief: Brief) -> str:
    """The trials of earlier campaigns, a line each, against the defaults of the space."""
    defaults = Proposal({name: one.default for name, one in brief.space.items()} | brief.problem.fixed)
    lines = []
    for trial in [trial for trial in brief.earlier if trial.number > 0][-EARLIER:]:
        champion = trial.verdict.evidence.get("champion")
        beside = "" if champion is None else f" (the champion had {number(champion)})"
        lines.append(f"{_in_a_line(defaults, trial)}{beside}: {one_line(trial.proposal.rationale, WIDTH)}")
    return listed(lines)


def _imported(brief: Brief) -> str:
    """The best trials of another tool, best first, a line each."""
    lines = list[str]()
    for place, one in brief.ranked[:IMPORTED]:
        score = "failed" if one.score is None else number(one.score)
        params = one_line(", ".join(parameter_changes(dict(one.params), {}, _shown)), WIDTH)
        parts = (score, params, one_line(one.note, WIDTH))
        lines.append(f"{place} of {len(brief.imported)}: {': '.join(filter(None, parts))}")
    return listed(lines)


def listed(lines: Iterable[str]) -> str:
    """Lines of foreign text as one quote; empty without any."""
    kept = [one_line(line, 2 * WIDTH) for line in lines]
    return quote("\n".join(kept), 3 * WIDTH, len(kept)) if kept else ""
