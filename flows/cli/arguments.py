"""Parameters and diffs as several verbs take them on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from environments.plugins import Refused
from tasks.editing.edits import EditFailed, check_whole
from tasks.trial import Params


def parse_params(text: str, what: str) -> Params:
    """Parameters as JSON; `what` names them in a refusal."""
    try:
        params = json.loads(text)
    except ValueError as wrong:
        raise Refused(f"{what} {text!r} is not JSON: {wrong}") from wrong
    if not isinstance(params, dict) or not all(isinstance(v, int | float | str) for v in params.values()):
        raise Refused(f'{what} {text!r}: give a JSON object of numbers, texts and booleans, such as {{"lr": 0.001}}')
    return params


def read_text(path: Path, what: str) -> str:
    """The text of a file; `what` names it in a refusal."""
    try:
        return path.read_text()
    except OSError as wrong:
        raise Refused(f"{what} {path}: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise Refused(f"{what} {path} is not text: {wrong}") from wrong


def read_diff(path: Path, what: str) -> str:
    """A unified diff that is whole; `what` names it in a refusal."""
    text = read_text(path, what)
    if not text.strip():
        raise Refused(f"{what} {path} is empty: give a unified diff, as `diff -u a/train.py b/train.py` writes it")
    try:
        check_whole(text)
    except EditFailed as wrong:
        raise Refused(f"{what} {path}: {wrong}") from wrong
    return text
