"""A model's answer as values: lenient in form, strict in content.

Numbers written as texts are accepted. Anything uncertain is refused, with every fault.
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
from tasks.llm import reading
from tasks.llm.quotes import one_line
from tasks.llm.reading import Misread
from tasks.sandbox.reading.reader import Unreadable, read
from tasks.trial import Params

RATIONALE, CATEGORY, NAME = 1_000, 40, 60
"""Characters that are kept of each, and of a parameter's name that there is not."""
FAULTS, PROPOSALS = 20, 100
"""Faults of a proposal that are told, and proposals of an answer that are read."""
NUMBER = re.compile(r"(?:[+-] ?)?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
DASH = re.compile("[\N{MINUS SIGN}\N{EN DASH}]")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


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


def ideas(text: str, space: Space, fixed: Params) -> tuple[list[ParsedAnswer], list[str]]:
    """The proposals of a JSON answer, and what is wrong with those that are none.

    Raises:
        Misread: there is no JSON object in the answer.
    """
    document = reading.proposals(text)
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
    """The header of an answer that changes a program, and the answer with the header emptied.

    Raises:
        Misread: PARAMS is no JSON object, or states what the space does not take.
    """
    stated, given, edit = reading.header(text, editable)
    words = *_words(stated.get("RATIONALE", ""), stated.get("CATEGORY", "")), expected(stated.get("EXPECTED"))
    return ParsedAnswer(values(given, space, fixed), *words, text), edit


def changed(edit: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The whole new text of each file that an answer changes, by name, in whichever format it is written.

    Raises:
        NoEdit: it holds no edit that can be applied, or cannot be read within limits.
    """
    try:
        return read(formats.changed, edit, dict(files), [*editable], "any")
    except Unreadable as wrong:
        raise NoEdit(wrong.about("the answer")) from wrong


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
    """A predicted change: a finite number, also as the first one of a text; None where there is none.

    Thousands may be set apart by commas. A percentage is none: of what, it does not say.
    """
    if isinstance(stated, str):
        plain = THOUSANDS.sub("", DASH.sub("-", stated)[:NAME])
        first = NUMBER.search(plain)
        is_share = first is not None and plain[first.end() :].lstrip().startswith("%")
        stated = float(first[0].replace(" ", "")) if first and not is_share else None
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    try:
        return float(stated) if math.isfinite(stated) else None
    except OverflowError:  # an integer that no float holds
        return None


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
