"""The folder that a coding agent works in: its files before, and the result that is read from it.

    train.py ...     the champion's editable files: what the agent may change
    params.json      the champion's values of the search space: what it may change, too
    rationale.md     why, written by the agent
    TASK.md          what is asked, the problem and the campaign so far; it may not be changed

It is a git repository with one commit, since agents look for one. No git of ours runs in it afterwards: its
configuration may say anything by then. Files that the agent adds elsewhere are its scratch, and are not looked at.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.editing.patches import EditFailed, git_environment, is_place, text_of
from tasks.llm.prompt_parts import start
from tasks.proposing.brief import Brief
from tasks.system.redact import capped, known_secrets
from tasks.trial import Params, Value

OURS = ("TASK.md", "params.json", "rationale.md")
TASK, PARAMS, RATIONALE = OURS
SHOWN = 200
"""Characters of a value that are shown."""
GIT = (
    *("git", "-c", "user.name=Nightshift", "-c", "user.email=nightshift@localhost"),
    *("-c", "commit.gpgSign=false", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"),
)


@dataclass(frozen=True)
class LeftBehind:
    """An agent's result."""

    params: Params
    """The values of its params.json, checked only to be plain values."""
    files: dict[str, str]
    """The whole texts of the editable files that it changed."""
    rationale: str
    """Its rationale.md; empty without one."""


def lay_out(folder: Path, brief: Brief, task: str) -> dict[str, str]:
    """Write everything into an empty folder, and commit it; the texts of the files, by name.

    Raises:
        EditFailed: a file of the program has the name of one of ours, or is no place in the folder.
    """
    for name in (*brief.files, *brief.problem.editable):
        if name in OURS or not is_place(name):
            raise EditFailed(f"the environment's file {name!r} has no place beside {', '.join(OURS)}: rename it")
    params = json.dumps(start(brief), indent=1) + "\n"
    handed = {**brief.files, TASK: task, PARAMS: params}
    for name, text in handed.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(0o444 if name == TASK else 0o644)
    for words in (["init", "-q", "--template="], ["add", "-A", "-f"], ["commit", "-q", "-m", "The champion"]):
        subprocess.run([*GIT, *words], cwd=folder, env=git_environment(), check=True, capture_output=True)
    return handed


def read_back(folder: Path, handed: Mapping[str, str], editable: Sequence[str]) -> LeftBehind:
    """The result that an agent left, read after all of its processes have ended.

    Raises:
        EditFailed: it changed what it may not, or made a file into something else than a plain text.
    """
    if text_of(folder, TASK) != handed[TASK]:
        raise EditFailed(f"it changed {TASK!r}, which is not editable; editable: {', '.join((*editable, PARAMS))}")
    files: dict[str, str] = {}
    for name in dict.fromkeys((*editable, *(handed.keys() - set(OURS)))):
        text = text_of(folder, name)
        if text is None and name in handed:
            raise EditFailed(f"it removed {name!r}: the program's files may change, but must stay")
        if text is not None and text != handed.get(name):
            _check_secrets(name, text, handed.get(name, ""))
            files[name] = text
    rationale = text_of(folder, RATIONALE) or ""
    _check_secrets(RATIONALE, rationale, "")
    params = text_of(folder, PARAMS)
    return LeftBehind(_params(handed[PARAMS] if params is None else params), files, rationale)


def _check_secrets(name: str, text: str, before: str) -> None:
    """Refuse a text with a secret that was not there before."""
    written = {one.name for one in known_secrets() if one.form in text.encode() and one.form not in before.encode()}
    if written:
        raise EditFailed(
            f"it wrote the value of {', '.join(sorted(written))} into {name!r}: no secret belongs in a file"
        )


def _params(text: str) -> Params:
    """The values of params.json."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise EditFailed(f"it left {PARAMS} no JSON: {capped(str(wrong), SHOWN)}") from wrong
    if not isinstance(document, dict):
        raise EditFailed(f"{PARAMS} must hold one value for each parameter, by name")
    for name, value in document.items():
        if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
            shown = capped(repr(value), SHOWN)
            raise EditFailed(f"{PARAMS}: {name!r} must be a number, a text or a boolean, got {shown}")
    return document
