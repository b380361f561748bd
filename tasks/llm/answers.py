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
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from environments.plugins import Refused
from environments.space import Float, Int, Value
from tasks.proposing.brief import Brief, Suggestion
from tasks.system.redact import one_line
from tasks.trial import Params

ANSWER_LIMIT = 2**19
"""Most characters of an answer: twice those of the longest program that may be edited."""
RATIONALE, CATEGORY, FAULT = 1_000, 40, 200
"""Characters that are kept of each."""
NO_REASON = "no reason was given"
FAULTS, STARTS = 20, 200
"""Faults that are told; places where JSON may begin, and proposals in it, which are at most a hundred."""
OPENING, CLOSING = re.compile(r"\s*<think(?:ing)?>"), re.compile(r"</think(?:ing)?>")
TAG = re.compile(r"<(/?)think(?:ing)?>([ \t]*$)?", re.MULTILINE)
JSON_START = re.compile(r"[{\[]")
CLOSING_FENCE = re.compile(r"^[ \t]*```[ \t]*$|\A\s*```", re.MULTILINE)
EDIT = re.compile(r"^(?:<{5,}[ \t]*SEARCH\b|diff --git |@@ )", re.MULTILINE)
"""The beginning of an edit."""


class Misread(ValueError):
    """An answer that cannot be used. The message names every fault."""


def without_thoughts(text: str) -> str | None:
    """The answer without the thoughts before it; None where these never end.

    Some servers put the opening tag into the question. The thoughts then end with the first tag of all, at the end of a
    line, if the answer follows: a rationale is asked for, and an edit may have such tags in its code.
    """
    is_opened, end, first = OPENING.match(text) is not None, CLOSING.search(text), TAG.search(text)
    is_end = first is not None and first[1] == "/" and first[2] is not None
    if end and (is_opened or (is_end and "rationale" in text[end.end() :].lower())):
        return text[end.end() :].strip()
    return None if is_opened else text.strip()


def ideas(text: str, brief: Brief) -> list[Suggestion]:
    """The proposals of a JSON answer, each with its part of the text; those that are none are left out.

    What they do not state stays at the champion's value. Misread where there is none: with what is wrong with each.
    """
    document, _ = _stated(text, "params", "proposals")
    entries = document.get("proposals", document) if isinstance(document, dict) else document
    entries = entries[:STARTS] if isinstance(entries, list) else [entries]
    parsed, faults = list[Suggestion](), list[str]()
    for number, entry in enumerate(entries, 1):
        try:
            parsed.append(_idea(entry, brief))
        except (Misread, RecursionError) as wrong:
            faults.append(f"proposal {number}: {wrong}" if len(entries) > 1 else str(wrong))
    if not parsed:
        raise Misread("\n".join(faults[:FAULTS]) or "there is no proposal in the answer")
    return parsed


def headed(text: str, brief: Brief) -> tuple[Suggestion, str]:
    """The JSON object of an answer that changes a program, and the edit behind it, in its lines of the answer."""
    document, end = _stated(text, "rationale")
    edit = text[end:]
    if text.count("```", 0, end) % 2:  # the end of a fence of its own, or of one around both
        edit = CLOSING_FENCE.sub("", edit, count=1)
    if EDIT.search(text, 0, end) and not EDIT.search(edit):
        raise Misread("the edit stands before the JSON object: write the object first, and the edit behind it")
    return replace(_idea(document, brief), text=text), "\n" * text.count("\n", 0, end) + edit


def _values(given: Mapping[str, Any], brief: Brief) -> Params:
    """The stated values, each as its parameter has it; null states nothing. Misread: it names every fault."""
    params, faults = dict[str, Value](), list[str]()
    for name, value in given.items():
        if value is None or len(faults) == FAULTS:
            continue
        try:
            complete = brief.problem.complete({name: _single(name, value, brief)})
        except Refused as wrong:
            faults.append(one_line(str(wrong), FAULT))
        else:
            params |= {name: complete[name]} if name in brief.space else {}
    if faults:
        raise Misread("; ".join(faults))
    return params


def _expected(stated: Any) -> float | None:
    """A predicted change: a finite number, also as a text."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        change = float(stated)
        return change if math.isfinite(change) and not isinstance(stated, bool) else None
    return None


def _stated(text: str, *keys: str) -> tuple[Any, int]:
    """The JSON object with one of these keys, or the list of such, and where it ends."""
    stated, place = list[tuple[Any, int]](), 0
    for _ in range(STARTS):
        if (start := JSON_START.search(text, place)) is None:
            break
        try:
            document, place = json.JSONDecoder(strict=False).raw_decode(text, start.start())
        except (ValueError, RecursionError):
            place = start.end()
            continue
        first = document[0] if isinstance(document, list) and document else document
        if isinstance(first, dict) and first.keys() & keys:
            stated.append((document, place))
    if not stated:
        raise Misread(f'there is no JSON object with "{keys[0]}" in the answer')
    if any(other != stated[0][0] for other, _ in stated):
        raise Misread("there are several proposals in the answer: write one JSON object")
    return stated[0]


def _idea(entry: Any, brief: Brief) -> Suggestion:
    given = (entry.get("params") or {}) if isinstance(entry, dict) else None
    if not isinstance(given, dict):
        shown = one_line(json.dumps(entry), 80)
        raise Misread(f'must be an object with "params", an object of parameter names and values, got {shown}')
    rationale, category = (one if isinstance(one, str) else "" for one in map(entry.get, ("rationale", "category")))
    why, kind = one_line(rationale, RATIONALE) or NO_REASON, one_line(category, CATEGORY).strip(" *_`\"'.")
    return Suggestion(
        {**brief.start, **_values(given, brief)}, why, category=kind, text=json.dumps(entry, ensure_ascii=False),
        expected=_expected(entry.get("expected")),
    )  # fmt: skip


def _single(name: str, value: object, brief: Brief) -> Value:
    """The value itself, or the number that was written as a text."""
    if not isinstance(value, Value):
        raise Refused(f"parameter {name!r} must be a single value, got {json.dumps(value)}")
    if isinstance(value, str) and isinstance(brief.space.get(name), Float | Int):
        with contextlib.suppress(ValueError):
            return float(value)
    return value
