"""`nightshift env import`: another tool's problem, written as an environment into a new folder."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from environments import earlier_trials
from environments.plugins import Refused
from flows.cli.arguments import as_typed
from flows.cli.skills import leave_word
from flows.views import terminal
from tasks.importing import HISTORY, Imported, imported

ACCOUNT = "imported.md"
"""File with the account of the conversion, beside environment.toml."""


def import_environment(place: str, to: Path | None, importer: str) -> dict[str, Any]:
    """Convert what lies at `place`, write the folder, and return the account of it.

    Raises:
        Refused: `place` is not recognised or cannot be converted, or the folder exists or lies in the original.
    """
    name, made = imported(place, importer)
    folder = to or _folder(place, made.name)
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} exists already: name a new folder with --to")
    if Path(place).is_dir() and folder.resolve().is_relative_to(Path(place).resolve()):
        raise Refused(f"{folder} would lie in {place}, and an original stays as it is: name another place with --to")
    _write(folder.resolve(), made)
    here = as_typed(folder)
    return {
        "importer": name, "origin": made.origin, "folder": here, "files": sorted(made.files),
        "left": [asdict(term) for term in made.left],
        "warnings": list(made.warnings), "earlier_trials": len(made.history),
        "next": shlex.join(["nightshift", "run", here, *made.options]),
    }  # fmt: skip


def _folder(place: str, name: str) -> Path:
    """A folder here by the original's name, and by another one where the original itself lies."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "imported"
    folder = Path(plain)
    return folder.with_name(f"{plain}-nightshift") if folder.resolve() == Path(place).resolve() else folder


def _write(target: Path, made: Imported) -> None:
    """Fill a folder beside the target and rename it, so that the target is there as a whole or not at all."""
    files: dict[str, str | Path] = {ACCOUNT: _account(made), **made.files}
    if made.history:
        files[HISTORY] = earlier_trials.text(made.history)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
        root = Path(aside) / target.name
        for name, content in files.items():
            path = root / name
            assert path.resolve().is_relative_to(root), f"{name} leaves the folder"
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content, "utf-8")
            else:
                shutil.copy(content, path)
        leave_word(root)
        root.rename(target)


def _account(made: Imported) -> str:
    """The account as a page."""
    lines = [f"# Imported\n\nFrom {made.origin}, by `nightshift env import`. The original was not changed."]
    if made.options:
        lines.append(f"\nOptions of `nightshift run` that fit: `{shlex.join(made.options)}`")
    if made.history:
        lines.append(f"\n{len(made.history)} earlier trials: {HISTORY}")
    lines += [f"\n**{warning}**" for warning in made.warnings]
    rows = [f"- {' '.join(term.theirs.split())}: {' '.join(term.ours.split())}" for term in made.left]
    lines += ["\n## Not carried, or otherwise here\n", *rows] if rows else []
    return "\n".join(lines) + "\n"


def shown(account: dict[str, Any]) -> str:
    """The account for the terminal, which is the page."""
    page = Path(account["folder"], ACCOUNT)
    return "\n".join([f"wrote {account['folder']}; {page}:\n", *map(terminal.clean, page.read_text().splitlines())])
