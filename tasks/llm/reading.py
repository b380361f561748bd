"""The text of a model's answer, taken apart: thoughts, JSON, the header before an edit.

Fences, prose around an answer and thoughts before it are accepted. A model may write anything, and this process reads
it: nothing here may need more than a few seconds for the longest answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

ANSWER_LIMIT = 2**19
"""Most characters of an answer: twice those of the longest program that may be edited."""
STARTS, DOCUMENTS, HEADERS = 50, 1_000, 20
"""Braces and brackets that may begin no JSON, documents of JSON, and lines of a header that are looked at."""
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
TAG = re.compile(r"<(/?)think(?:ing)?>([ \t]*$)?", re.MULTILINE)
JSON_START = re.compile(r"[{\[]")
HEADER = re.compile(r"[\s*#_>-]*(RATIONALE|CATEGORY|EXPECTED|PARAMS)[\s*_]*:[*_]*[ \t]*", re.IGNORECASE)
WRAPPED = re.compile(
    r"^[ \t]*```[\w-]*[ \t]*\n(\s*[*_#]*(?:RATIONALE|CATEGORY|EXPECTED)[\s*_]*:)?", re.MULTILINE | re.IGNORECASE
)
LATE = re.compile(r"^[ \t*#_>-]*PARAMS[ \t*_]*:[*_]*\s*\{", re.MULTILINE)
CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
IN_FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?(?=\{)")
FENCE_END = re.compile(r"\s*```[ \t]*(?:\n|\Z)")
NOTHING = frozenset({"", "none", "n/a", "-", "no change", "unchanged", "null"})


class Misread(ValueError):
    """An answer that cannot be used. The message names every fault."""


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


def proposals(text: str) -> Any:
    """The answer's JSON: the proposal, or several, that stands in the text; else the only JSON that there is.

    Raises:
        Misread: there is no JSON object in the answer, or several proposals that differ.
    """
    documents, is_broken = _documents(text)
    stated = [document for document in documents if _is_proposal(document)]
    if any(other != stated[0] for other in stated):
        raise Misread("there are several proposals in the answer: write one JSON object, and nothing else")
    if not stated and len(documents) == 1 and not is_broken:  # else it may be a part of an object that is broken
        stated = documents
    if not stated:
        raise Misread('there is no JSON object with "params" in the answer')
    return stated[0]


def _is_proposal(document: Any) -> bool:
    if isinstance(document, list):
        return any(isinstance(one, dict) and "params" in one for one in document)
    return bool({"params", "proposals"} & document.keys())


def _documents(text: str) -> tuple[list[Any], bool]:
    """The JSON objects and arrays that stand in a text, none within another; and whether one seems to be broken."""
    documents, failures, place = list[Any](), 0, 0
    while failures < STARTS and len(documents) < DOCUMENTS and (start := JSON_START.search(text, place)):
        try:
            document, place = json.JSONDecoder().raw_decode(text, start.start())
            documents.append(document)
        except (ValueError, RecursionError):
            failures, place = failures + 1, start.end()
    return documents, failures > 0


def document(text: str) -> Any:
    """The text as JSON.

    Raises:
        Misread: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise Misread(f"no JSON: {str(wrong)[:200]}") from wrong


def header(text: str, editable: Sequence[str]) -> tuple[dict[str, str], Any, str]:
    """The headers of an answer that changes a program by name, PARAMS as JSON, and the answer with them emptied.

    Raises:
        Misread: PARAMS is no JSON object, or stands after the edit.
    """
    text, stated = _unwrapped(text, editable), dict[str, str]()
    place, after, last, headers = 0, 0, "", 0
    while place < len(text) and headers < HEADERS:
        end = text.find("\n", place) + 1 or len(text)
        line = text[place:end]
        if header := HEADER.match(line):
            last, headers = header[1].upper(), headers + 1
            if last == "PARAMS":
                stated[last], end = _braces(text, place + header.end(), end)
            else:
                stated[last] = line[header.end() :]
            after = end
        elif _begins_edit(line, editable):
            break
        elif last == "RATIONALE":
            stated[last] += line
        place = end
    params = stated.get("PARAMS", "").strip()
    given: Any = {}
    if params.lower() not in NOTHING:
        try:
            given = document(params)
        except Misread:
            given = None
    if not isinstance(given, dict):
        raise Misread('PARAMS must be one JSON object, such as PARAMS: {"learning_rate": 0.001}')
    if "PARAMS" not in stated and LATE.search(text, after):
        raise Misread("PARAMS stands after the edit: write it before the edit, and nothing after it")
    return stated, given, "\n" * text.count("\n", 0, after) + text[after:]  # so that line numbers stay


def _unwrapped(text: str, editable: Sequence[str]) -> str:
    """The answer without a fence around its headers, or around all of it; every line stays where it was."""
    opening = WRAPPED.search(text)
    if not opening or not opening[1]:
        return text
    text = text[: opening.start()] + "\n" + text[opening.start(1) :]
    ends = list(CLOSING.finditer(text))
    if text.count("```") % 2 and ends:
        holds_edit = any(_begins_edit(line, editable) for line in text[: ends[0].start()].splitlines())
        end = ends[-1] if holds_edit else ends[0]
        text = text[: end.start()] + text[end.end() :]
    return text


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
