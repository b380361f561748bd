"""Code edits of a trial's program: unified diffs of editable files, applied whole or not at all.

git applies a diff to copies of the files in an empty folder. The resulting files are checked, not the diff's own
headers; when all checks pass, they are written into the workspace. All of that is done by a confined process
(tasks/sandbox/reader.py), since whoever wrote the edit may have written it against its reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import environments
from environments import Environment
from tasks.editing import checks, formats, patches
from tasks.editing.patches import FILE_LIMIT
from tasks.sandbox.reader import EditFailed, read

__all__ = ["EditFailed", "apply_edit", "changed", "diff_of", "patched"]


def apply_edit(workspace: Path, edit: str, environment: Environment) -> None:
    """Apply a unified diff to the editable files: all of it or nothing.

    Raises:
        EditFailed: it does not apply in one place only, touches another file, does more than change texts, leaves what
            is no Python, leaves out a required call, fixes a seed, or cannot be read within limits.
    """
    editable = {name: patches.place(workspace, name) for name in environment.editable if patches.is_place(name)}
    files = {
        name: path.read_bytes().decode(errors="surrogateescape")
        for name, path in editable.items()
        if path.exists() and path.stat().st_size <= FILE_LIMIT
    }
    python = [path for path in environments.files(workspace) if path.suffix == ".py" and environment.required_calls]
    program = {path.relative_to(workspace).as_posix(): path.read_text("utf-8", "replace") for path in python}
    required = [*environment.required_calls]
    made = read(checks.edited_program, files, edit, [*editable], program, required, environment.name)
    patches.lay_out(workspace, made)


def changed(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """See `formats.changed`. Raises EditFailed also where an answer cannot be read within limits."""
    return read(formats.changed, answer, dict(files), [*editable])


def diff_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The diff between two sets of texts, by name, as git writes it; empty if nothing differs.

    Raises:
        EditFailed: a text is not UTF-8, a name is no place for a file, or it cannot be made within limits.
    """
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    old, new = ({name: texts[name] for name in names if name in texts} for texts in (before, after))
    return read(patches.difference, old, new) if names else ""


def patched(before: Mapping[str, str], diff: str | None) -> dict[str, str]:
    """Texts, by name, as a diff leaves them. A file that it removes is not among them.

    Raises:
        EditFailed: it does not apply, or does more than add, remove and change texts.
    """
    return dict(_patched(tuple(sorted(before.items())), diff)) if diff else dict(before)


@lru_cache(maxsize=4096)
def _patched(before: tuple[tuple[str, str], ...], diff: str) -> tuple[tuple[str, str], ...]:
    return tuple(read(patches.patched, dict(before), diff).items())
