"""A model's answer as values: without its thoughts, its JSON, each parameter in its range, and the edit behind that.

Lenient in form (prose and fences around an answer, numbers written as texts), strict in content: anything uncertain is
refused, with every fault. A model may write anything, and this process reads it: nothing here may need more than a few
seconds for the longest answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from environments.space import Choice, Parameter, Space, Value
from tasks import formats
from tasks.formats import NoEdit
from tasks.sandbox.reader import Unreadable, read
from tasks.system.redact import one_line
from tasks.trial import Params

ANSWER_LIMIT = 2**19
"""Most characters of an answer: twice those of the longest program that may be edited."""
RATIONALE, CATEGORY, NAME = 1_000, 40, 60
"""Characters that are kept of each, and of a parameter's name that there is not."""
NO_REASON = "no reason was given"
FAULTS, PROPOSALS, STARTS = 20, 100, 200
"""Faults that are told, proposals of an answer that are read, and places where JSON may begin."""
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
TAG = re.compile(r"<(/?)think(?:ing)?>([ \t]*$)?", re.MULTILINE)
JSON_START = re.compile(r"[{\[]")
FENCED, END_OF_FENCE = re.compile(r"```\w*\s*\Z"), re.compile(r"\s*```")
"""What stands around JSON in a fence of its own."""
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


def headed(text: str, space: Space, fixed: Params) -> tuple[ParsedAnswer, str]:
    """The JSON object of an answer that changes a program, and the rest, with blank lines in its place."""
    stated = [one for one in _documents(text) if isinstance(one[0], dict) and "rationale" in one[0]]
    if not stated and '"rationale"' not in text:
        return ParsedAnswer({}, NO_REASON, "", None, text), text
    if len(stated) != 1:
        raise Misread(
            f'there are {len(stated)} JSON objects with a "rationale" in the answer: write one, before the edit'
        )
    document, start, end = stated[0]
    if (before := FENCED.search(text, 0, start)) and (behind := END_OF_FENCE.match(text, end)):
        start, end = before.start(), behind.end()
    edit = text[:start] + "\n" * text.count("\n", start, end) + text[end:]  # so that line numbers in a reason are right
    return replace(_idea(document | {"params": document.get("params") or {}}, space, fixed), text=text), edit


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


def _documents(text: str) -> Iterator[tuple[Any, int, int]]:
    """The pieces of JSON in a text, each with its beginning and end."""
    place = 0
    for _ in range(STARTS):
        if (start := JSON_START.search(text, place)) is None:
            return
        try:
            document, place = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            place = start.end()
            continue
        yield document, start.start(), place


def _proposals(text: str) -> Any:
    """The JSON in the answer that is a proposal, or a list of several."""
    stated = list[Any]()
    for document, _, _ in _documents(text):
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
    rationale, category = (one if isinstance(one, str) else "" for one in map(entry.get, ("rationale", "category")))
    why, kind = one_line(rationale, RATIONALE) or NO_REASON, one_line(category, CATEGORY).strip(" *_`\"'.")
    params, change = values(given, space, fixed), expected(entry.get("expected"))
    return ParsedAnswer(params, why, kind, change, json.dumps(entry, ensure_ascii=False))


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
