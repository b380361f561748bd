"""A model's answer as values: without its thoughts, JSON or the header before an edit, each parameter in its range.

Lenient in form (prose and fences around an answer, numbers written as texts), strict in content: anything uncertain is
refused, with every fault. A model may write anything, and this process reads it: nothing here may need more than a few
seconds for the longest answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.space import Choice, Parameter, Space, Value
from tasks import formats
from tasks.formats import NoEdit
from tasks.llm.quotes import one_line
from tasks.sandbox.reader import Unreadable, read
from tasks.trial import Params

ANSWER_LIMIT = 2**19
"""Most characters of an answer: twice those of the longest program that may be edited."""
RATIONALE, CATEGORY, NAME = 1_000, 40, 60
"""Characters that are kept of each, and of a parameter's name that there is not."""
FAULTS, PROPOSALS, STARTS = 20, 100, 200
"""Faults that are told, proposals of an answer that are read, and places where JSON may begin."""
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
TAG = re.compile(r"<(/?)think(?:ing)?>([ \t]*$)?", re.MULTILINE)
JSON_START = re.compile(r"[{\[]")
HEADER = re.compile(r"[\s*#_>-]*(RATIONALE|CATEGORY|EXPECTED|PARAMS)[\s*_]*:[*_]*[ \t]*", re.IGNORECASE)
LATE = re.compile(r"^[ \t*#_>-]*(RATIONALE|PARAMS(?=[ \t*_]*:[*_]*\s*\{))[ \t*_]*:", re.MULTILINE)
"""A line of the header behind or in an edit; not an annotated constant of a program."""
IN_A_FENCE = re.compile(r"\A\s*```\w*\n((?:(?!```).*\n)*)```\s*\Z")
"""An answer that is one fence as a whole."""
NOTHING = frozenset({"", "none", "n/a", "-", "no change", "unchanged", "null"})
NUMBER = re.compile(r"([+-]? ?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)")


class Misread(ValueError):
    """An answer that cannot be used. The message names every fault."""


@dataclass(frozen=True)
class ParsedAnswer:
    """One proposal as a model put it."""

    params: Params
    """Only what it stated, each value in its range."""
    rationale: str
    category: str
    expected: float | None
    """The change of the objective that it predicts; None where it states no number."""
    text: str
    """Its part of the answer."""


def is_thought(text: str) -> bool:
    """Whether the text is the beginning of thoughts that never end."""
    return re.match(r"\s*<think(?:ing)?>", text) is not None and THOUGHT.match(text) is None


def without_thoughts(text: str) -> str:
    """The answer without the thoughts before it.

    Some servers put the opening tag into the question. The thoughts then end with the first tag, if that ends a line
    and the answer follows: a rationale is asked for, and an edit may have such a tag in its code.
    """
    first = TAG.search(text)
    if first and first[1] and first[2] is not None and "rationale" in text[first.end() :].lower():
        return text[first.end() :].strip()
    return THOUGHT.sub("", text).strip()


def ideas(text: str, space: Space, fixed: Params) -> tuple[list[ParsedAnswer], list[str]]:
    """The proposals of a JSON answer, and what is wrong with those that are none; Misread without any JSON."""
    document = _proposals(text)
    entries = document.get("proposals", document) if isinstance(document, dict) else document
    entries = entries[:PROPOSALS] if isinstance(entries, list) else [entries]
    parsed, faults = list[ParsedAnswer](), list[str]()
    for number, entry in enumerate(entries, 1):
        try:
            parsed.append(_idea(entry, space, fixed))
        except Misread as wrong:
            faults.append(f"proposal {number}: {wrong}" if len(entries) > 1 else str(wrong))
        except RecursionError:
            faults.append("its JSON is nested too deeply")
    return parsed, faults[:FAULTS]


def headed(text: str, editable: Sequence[str], space: Space, fixed: Params) -> tuple[ParsedAnswer, str]:
    """The header of an answer that changes a program, and the answer with the header emptied; Misread else."""
    if fence := IN_A_FENCE.match(text):
        text = fence[1]
    lines, stated, last, after = text.split("\n"), dict[str, str](), "", 0
    for number, line in enumerate(lines, 1):
        if header := HEADER.match(line):
            last, after = header[1].upper(), number
            stated[last] = line[header.end() :]
        elif _begins_edit(line, editable):
            break
        elif last == "RATIONALE" and len(stated[last]) < RATIONALE:
            stated[last] += f" {line}"
    edit = "\n" * after + "\n".join(lines[after:])  # so that the line numbers in a reason are right
    if late := next((header[1] for header in LATE.finditer(edit) if header[1] not in stated), None):
        raise Misread(f"{late} stands in a fence or after the edit: write it before, and nothing after the edit")
    words = *_words(stated.get("RATIONALE", ""), stated.get("CATEGORY", "")), expected(stated.get("EXPECTED"))
    return ParsedAnswer(values(_params(stated.get("PARAMS", "").strip()), space, fixed), *words, text), edit


def changed(edit: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """See `formats.changed`; what cannot be read within limits is no edit either."""
    try:
        return read(formats.changed, edit, dict(files), [*editable], "any")
    except Unreadable as wrong:
        raise NoEdit(str(wrong)) from wrong


def values(given: Mapping[str, Any], space: Space, fixed: Params) -> Params:
    """The stated values, each as its parameter has it; null states nothing.

    Raises:
        Misread: every unknown parameter and every value outside its range.
    """
    params, faults = dict[str, Value](), list[str]()
    for name, value in given.items():
        if value is None or value == fixed.get(name):
            continue
        if name in fixed:
            faults.append(f"{name} is fixed at {json.dumps(fixed[name])}")
        elif name not in space:
            faults.append(f"there is no parameter {one_line(name, NAME)!r}: there are {', '.join(space) or 'none'}")
        else:
            try:
                params[name] = _checked(space[name], value)
            except ValueError as wrong:
                faults.append(f"{name} {one_line(str(wrong), 200)}")
        if len(faults) == FAULTS:
            break
    if faults:
        raise Misread("; ".join(faults))
    return params


def expected(stated: object) -> float | None:
    """A predicted change: a finite number, also as the first one of a text. A percentage is none: of what?"""
    if isinstance(stated, str):
        first = NUMBER.search(stated[:NAME].replace("\N{MINUS SIGN}", "-").replace(",", ""))
        stated = float(first[1].replace(" ", "")) if first and not first[2] else None
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    try:
        return float(stated) if math.isfinite(stated) else None
    except OverflowError:  # an integer that no float holds
        return None


def _proposals(text: str) -> Any:
    """The JSON in the answer that is a proposal, or a list of several."""
    stated, place = list[Any](), 0
    for _ in range(STARTS):
        if (start := JSON_START.search(text, place)) is None:
            break
        try:
            document, place = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            place = start.end()
            continue
        first = document[0] if isinstance(document, list) and document else document
        if isinstance(first, dict) and {"params", "proposals"} & first.keys():
            stated.append(document)
    if not stated:
        raise Misread('there is no JSON object with "params" in the answer')
    if any(other != stated[0] for other in stated):
        raise Misread("there are several proposals in the answer: write one JSON object, and nothing else")
    return stated[0]


def _idea(entry: Any, space: Space, fixed: Params) -> ParsedAnswer:
    given = entry.get("params") if isinstance(entry, dict) else None
    if not isinstance(given, dict):
        shown = one_line(json.dumps(entry), 80)
        raise Misread(f'must be an object with "params", an object of parameter names and values, got {shown}')
    words = *_words(entry.get("rationale"), entry.get("category")), expected(entry.get("expected"))
    return ParsedAnswer(values(given, space, fixed), *words, json.dumps(entry, ensure_ascii=False))


def _words(rationale: object, category: object) -> tuple[str, str]:
    """Rationale and category as texts of one line; one that is no text counts as not given."""
    why = one_line(rationale, RATIONALE) if isinstance(rationale, str) else ""
    kind = one_line(category, CATEGORY).strip(" *_`\"'.") if isinstance(category, str) else ""
    return why or "no reason was given", kind


def _params(stated: str) -> Any:
    """The JSON object of the header PARAMS."""
    given: Any = {}
    if stated.lower() not in NOTHING:
        try:
            given = json.loads(stated)
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, dict):
        raise Misread('PARAMS must be one JSON object on its line, such as PARAMS: {"learning_rate": 0.001}')
    return given


def _begins_edit(line: str, editable: Sequence[str]) -> bool:
    """Whether the header ends before this line: a fence, a marker of an edit, or the name of a file."""
    bare = line.strip(" \t\r*#`:")
    return bare in editable or line.lstrip().startswith(("```", "<<<<<", "diff --git", "--- ", "*** ", "@@"))


def _checked(parameter: Parameter, value: object) -> Value:
    """The value in its range, a number that was written as a text included."""
    if not isinstance(value, Value):
        raise ValueError(f"must be a single value, got {json.dumps(value)}")
    if isinstance(value, str) and not isinstance(parameter, Choice):
        with contextlib.suppress(ValueError):
            value = float(value)
    elif isinstance(value, str) and isinstance(parameter, Choice) and value not in parameter.values:
        same = [own for own in parameter.values if value in (str(own), json.dumps(own))]
        value = same[0] if len(same) == 1 else value
    return parameter.check(value)
