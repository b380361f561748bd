"""Code edits of a trial's program: unified diffs of editable files, applied whole or not at all.

git applies a diff to copies of the files in an empty folder. The resulting files are checked, not the diff's own
headers; when all checks pass, they are written into the workspace. All of that is done by a confined process
(tasks/sandbox/reading/reader.py), since whoever wrote the edit may have written it against its reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import environments
from environments import Environment
from tasks.editing import checks, patches
from tasks.editing.patches import FILE_LIMIT, EditFailed
from tasks.sandbox.reading.reader import Unreadable, read

__all__ = ["EditFailed", "apply_edit", "check_whole", "diff_of", "patched", "sources"]
THE_EDIT = "the edit"


def check_whole(diff: str) -> None:
    """Refuse a diff by whoever counts its lines, before it is stored, if it looks cut off.

    Raises:
        EditFailed: a hunk has fewer lines than its head says; it cannot be read within limits.
    """
    try:
        read(patches.check_whole, diff)
    except Unreadable as wrong:
        raise EditFailed(wrong.about(THE_EDIT)) from wrong


def apply_edit(workspace: Path, edit: str, environment: Environment) -> None:
    """Apply a unified diff to the editable files: all of it or nothing.

    Raises:
        EditFailed: it does not apply; it touches another file, or does more to one than change its text; a file would
            not parse; a call that the environment requires is left out; a seed is fixed; it cannot be read within
            limits.
    """
    files, executable, odd = _editable(workspace, environment)
    program = sources(workspace) if environment.required_calls else {}
    editable, required = [*environment.editable], [*environment.required_calls]
    try:
        changed = read(
            checks.edited_program, files, executable, odd, edit, editable, program, required, environment.name
        )
    except Unreadable as wrong:
        raise EditFailed(wrong.about("the edited program")) from wrong
    for name, text in changed.items():
        target = patches.place(workspace, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())


def _editable(workspace: Path, environment: Environment) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """The editable files that there are, the executable ones, and those that may not be touched, with the reason."""
    files, executable, odd = dict[str, str](), list[str](), dict[str, str]()
    for name in environment.editable:
        try:
            path = patches.place(workspace, name)
        except EditFailed as wrong:
            odd[name] = str(wrong)
            continue
        if not path.exists():
            continue
        if (size := path.stat().st_size) > FILE_LIMIT:
            odd[name] = f"the edit touches {name!r}, which is {size} bytes long; at most {FILE_LIMIT}"
            continue
        files[name] = path.read_bytes().decode(errors="surrogateescape")
        executable += [name] if patches.is_executable(path) else []
    return files, executable, odd


def sources(folder: Path) -> dict[str, str]:
    """The Python files of a program, by their paths in it."""
    python = [path for path in environments.files(folder) if path.suffix == ".py"]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace") for path in python}


def diff_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The diff between two sets of texts, by name, as git writes it; empty if nothing differs.

    Raises:
        EditFailed: a text is not UTF-8, a name is no place for a file, or it cannot be made within limits.
    """
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not names:
        return ""
    sides = [{name: texts[name] for name in names if name in texts} for texts in (before, after)]
    try:
        return read(patches.difference, *sides)
    except Unreadable as wrong:
        raise EditFailed(wrong.about(THE_EDIT)) from wrong


def patched(before: Mapping[str, str], diff: str, reverse: bool = False) -> dict[str, str]:
    """Texts, by name, as a diff leaves them, applied as `apply_edit` does. A file that it removes is not among them.

    `reverse`: as they were before the diff was applied.

    Raises:
        EditFailed: it does not apply, or does more than add, remove and change texts.
    """
    if not diff:
        return dict(before)
    made = _patched(tuple(sorted(before.items())), diff, reverse)
    if isinstance(made, str):
        raise EditFailed(made)
    return dict(made)


@lru_cache(maxsize=4096)
def _patched(before: tuple[tuple[str, str], ...], diff: str, reverse: bool) -> tuple[tuple[str, str], ...] | str:
    """The texts, or the reason why there are none."""
    try:
        return tuple(read(patches.patched, dict(before), diff, reverse).items())
    except Unreadable as wrong:
        return wrong.about(THE_EDIT)
