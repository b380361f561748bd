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
LATE = re.compile(r"^[ \t*#_>-]*PARAMS[ \t*_]*:[*_]*\s*\{", re.MULTILINE)
CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
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
    """The JSON in the answer that is a proposal, or several.

    Raises:
        Misread: there is none, or there are several that differ.
    """
    stated, place, failures, looked_at = list[Any](), 0, 0, 0
    while failures < STARTS and looked_at < DOCUMENTS and (start := JSON_START.search(text, place)):
        looked_at += 1
        try:
            document, place = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            failures, place = failures + 1, start.end()
            continue
        first = document[0] if isinstance(document, list) and document else document
        if isinstance(first, dict) and {"params", "proposals"} & first.keys():
            stated.append(document)
    if not stated:
        raise Misread('there is no JSON object with "params" in the answer')
    if any(other != stated[0] for other in stated):
        raise Misread("there are several proposals in the answer: write one JSON object, and nothing else")
    return stated[0]


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
    stated, is_fenced = dict[str, str](), False
    place, after, last, headers = 0, 0, "", 0
    while place < len(text) and headers < HEADERS:
        end = text.find("\n", place) + 1 or len(text)
        line = text[place:end]
        if header := HEADER.match(line):
            last, headers, after = header[1].upper(), headers + 1, end
            stated[last] = line[header.end() :]
        elif line.lstrip().startswith("```") and not last and HEADER.match(text, end):
            is_fenced = True
        elif is_fenced and CLOSING.match(line):
            is_fenced, after = False, end
        elif _begins_edit(line, editable):
            break
        elif last == "RATIONALE":
            stated[last] += line
        place = end
    edit = "\n" * text.count("\n", 0, after) + text[after:]  # so that the line numbers in a reason are right
    if is_fenced and edit.count("```") % 2 and (ends := list(CLOSING.finditer(edit))):
        edit = edit[: ends[-1].start()] + edit[ends[-1].end() :]
    if "PARAMS" not in stated and LATE.search(edit):
        raise Misread("PARAMS stands after the edit: write it before the edit, and nothing after it")
    return stated, _object(stated.get("PARAMS", "").strip()), edit


def _object(params: str) -> Any:
    """The JSON object of the header PARAMS."""
    given: Any = {}
    if params.lower() not in NOTHING:
        try:
            given = document(params)
        except Misread:
            given = None
    if not isinstance(given, dict):
        raise Misread('PARAMS must be one JSON object on its line, such as PARAMS: {"learning_rate": 0.001}')
    return given


def _begins_edit(line: str, editable: Sequence[str]) -> bool:
    """Whether the header ends before this line: a fence, a marker of an edit, or the name of a file."""
    bare = line.strip(" \t\n*#`:")
    return bare in editable or line.lstrip().startswith(("```", "<<<<<", "diff --git", "--- ", "*** ", "@@"))
