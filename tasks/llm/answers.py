"""Parsing of a model's answer: lenient in form, strict in content.

Fences, prose around an answer, thoughts before it and numbers written as texts are accepted. Anything uncertain is
refused, with every fault.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.space import Choice, Parameter, Space, Value
from tasks.llm.quotes import one_line
from tasks.trial import Params

RATIONALE, CATEGORY = 1_000, 40
"""Characters that are kept of each."""
STARTS = 50
"""Opening braces that are tried for the beginning of an object."""
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
FENCED = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
HEADER = re.compile(r"[\s*#_>-]*(RATIONALE|CATEGORY|PARAMS)[\s*_]*:[*_]*[ \t]*", re.IGNORECASE)
IN_FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?(?=\{)")
FENCE_END = re.compile(r"\s*```[ \t]*(?:\n|\Z)")
NOTHING = frozenset({"", "none", "n/a", "-", "no change", "unchanged", "null"})


class Misread(ValueError):
    """An answer that cannot be used. The message names every fault."""


@dataclass(frozen=True)
class ParsedAnswer:
    """One proposal as a model put it."""

    params: Params
    """Only what it stated, each value in its range."""
    rationale: str
    category: str
    text: str
    """Its part of the answer."""


def without_thoughts(text: str) -> str:
    """The answer without the thoughts before it."""
    return THOUGHT.sub("", text).strip()


def ideas(text: str, space: Space, fixed: Params) -> tuple[list[ParsedAnswer], list[str]]:
    """The proposals of a JSON answer, and what is wrong with those that are none.

    Raises:
        Misread: there is no JSON object in the answer.
    """
    document = _document(without_thoughts(text))
    entries = document.get("proposals", document) if isinstance(document, dict) else document
    found, faults = [], []
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
        try:
            found.append(_idea(entry, space, fixed))
        except (Misread, RecursionError) as wrong:  # the latter of an object that is nested too deeply
            faults.append(f"proposal {number}: {wrong}" if isinstance(entries, list) else str(wrong))
    return found, faults


def headed(text: str, editable: Sequence[str], space: Space, fixed: Params) -> tuple[ParsedAnswer, str]:
    """The header of an answer that changes a program, and the answer with the header's lines emptied.

    Raises:
        Misread: PARAMS is no JSON object, or states what the space does not take.
    """
    answer = without_thoughts(text)
    stated: dict[str, str] = {}
    place, after, last = 0, 0, ""
    while place < len(answer):
        end = answer.find("\n", place) + 1 or len(answer)
        line = answer[place:end]
        if header := HEADER.match(line):
            last = header[1].upper()
            if last == "PARAMS":
                stated[last], end = _braces(answer, place + header.end(), end)
            else:
                stated[last] = line[header.end() :]
            after = end
        elif _begins_edit(line, editable):
            break
        elif last == "RATIONALE":
            stated[last] += line
        place = end
    params = stated.get("PARAMS", "").strip()
    given = _object(params) if params.lower() not in NOTHING else {}
    if not isinstance(given, dict):
        raise Misread('PARAMS must be one JSON object, such as PARAMS: {"learning_rate": 0.001}')
    words = _words(stated.get("RATIONALE", ""), stated.get("CATEGORY", ""))
    idea = ParsedAnswer(values(given, space, fixed), *words, text)
    return idea, "\n" * answer.count("\n", 0, after) + answer[after:]  # so that line numbers stay


def values(given: Mapping[str, Any], space: Space, fixed: Params) -> Params:
    """The stated values, each as its parameter has it; null states nothing.

    Raises:
        Misread: every unknown parameter and every value outside its range.
    """
    params, faults = {}, []
    for name, value in given.items():
        if value is None:
            continue
        if name in fixed:
            if value != fixed[name]:
                faults.append(f"{name} is fixed at {json.dumps(fixed[name])}")
        elif name not in space:
            near = difflib.get_close_matches(name, space, n=1)
            hint = f", did you mean {near[0]}?" if near else f": there are {', '.join(space) or 'none'}"
            faults.append(f"there is no parameter {one_line(name, 60)!r}{hint}")
        else:
            try:
                params[name] = _checked(space[name], value)
            except ValueError as wrong:
                faults.append(f"{name} {one_line(str(wrong), 200)}")
    if faults:
        raise Misread("; ".join(faults))
    return params


def _idea(entry: object, space: Space, fixed: Params) -> ParsedAnswer:
    if not isinstance(entry, dict):
        raise Misread(f"must be a JSON object, got {one_line(json.dumps(entry), 80)}")
    given = entry.get("params")
    if given is None:  # some put the parameters beside the rest
        given = {name: value for name, value in entry.items() if name in space}
        if not given:
            raise Misread('"params" is missing: an object of parameter names and values')
    if not isinstance(given, dict):
        raise Misread(f'"params" must be an object of names and values, got {one_line(json.dumps(given), 80)}')
    words = _words(entry.get("rationale"), entry.get("category"))
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
    if isinstance(value, str):
        if not isinstance(parameter, Choice):
            with contextlib.suppress(ValueError):
                value = float(value)
        elif value not in parameter.values:
            same = [own for own in parameter.values if value in (str(own), json.dumps(own))]
            value = same[0] if len(same) == 1 else value
    return parameter.check(value)


def _document(text: str) -> Any:
    """The answer's JSON: all of it, what stands in a fence, or the first object that is a proposal.

    An object in the midst of a text may be a part of one that is broken, so it has to say what it is.
    """
    for part in (text, *FENCED.findall(text)):
        found = _object(part)
        if isinstance(found, dict | list):
            return found
    place = text.find("{")
    for _ in range(STARTS):
        if place < 0:
            break
        try:
            found, end = json.JSONDecoder().raw_decode(text, place)
        except (ValueError, RecursionError):
            found, end = {}, place + 1
        if {"params", "proposals"} & found.keys():
            return found
        place = text.find("{", end)
    raise Misread('there is no JSON object with "params" in the answer')


def _object(text: str) -> Any:
    """The text as JSON; None where it is none."""
    try:
        return json.loads(text.strip())
    except (ValueError, RecursionError):
        return None


def _braces(text: str, place: int, line_end: int) -> tuple[str, int]:
    """The JSON object that begins at `place`, fenced or not, or else the rest of the line; and where it ends."""
    if opening := IN_FENCE.match(text, place):
        try:
            _, end = json.JSONDecoder().raw_decode(text, opening.end())
        except (ValueError, RecursionError):
            return text[place:line_end], line_end
        closing = FENCE_END.match(text, end) if "`" in opening[0] else None
        return text[opening.end() : end], closing.end() if closing else end
    return text[place:line_end], line_end


def _begins_edit(line: str, editable: Sequence[str]) -> bool:
    """Whether the header ends before this line: a fence, a marker of an edit, or the name of a file."""
    bare = line.strip(" \t\n*#`:")
    return bare in editable or line.lstrip().startswith(("```", "<<<<<", "diff --git", "--- ", "*** ", "@@"))
