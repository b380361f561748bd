"""Parameters, diffs and places as several verbs take them on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments.plugins import Refused
from tasks.editing.edits import EditFailed
from tasks.trial import Params


def parse_params(text: str | bytes, what: str) -> Params:
    """Parameters as JSON; `what` names them in a refusal."""
    try:
        params = json.loads(text)
    except ValueError as wrong:
        raise Refused(f"{what} {text!r} is not JSON: {wrong}") from wrong
    if not isinstance(params, dict) or not all(isinstance(v, int | float | str) for v in params.values()):
        raise Refused(f'{what} {text!r}: give a JSON object of numbers, texts and booleans, such as {{"lr": 0.001}}')
    return params


def read_diff(path: Path, what: str) -> str:
    """A unified diff; `what` names it in a refusal."""
    text = path.read_text(errors="replace")
    if not text.strip():
        raise Refused(f"{what} {path} is empty: give a unified diff, as `diff -u a/train.py b/train.py` writes it")
    return text


def placed(diff: str, what: str, program: Mapping[str, str], editable: Sequence[str]) -> str:
    """A diff with the line numbers that its context has in the program.

    Raises:
        Refused: a hunk fits nowhere, or in several places, or it changes another file; `what` names it.
    """
    from tasks.editing.edits import diff_of
    from tasks.formats import NoEdit
    from tasks.llm.answers import changed
    from tasks.store.lineage import PARAMS, without_parameters

    if PARAMS not in program and not (diff := without_parameters(diff)).strip():
        raise Refused(f"{what}: it changes nothing but {PARAMS}, which the lineage alone has: give parameters as such")
    try:
        return diff_of(program, {**program, **changed(diff, program, editable)})
    except (NoEdit, EditFailed) as wrong:
        raise Refused(f"{what}: {str(wrong).replace(' of the answer', '')}") from wrong  # a diff is one whole answer


def as_typed(folder: Path) -> str:
    """A folder as the name of an environment: ./ in front, since a bundled one may be called so too."""
    return str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
