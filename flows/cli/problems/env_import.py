"""`nightshift env import`: another tool's problem, written as an environment into a new folder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from environments import FILE, earlier_trials
from environments.plugins import Refused
from flows.cli.arguments import writing
from flows.views import terminal
from tasks.importing import HISTORY, Imported, Term, imported

ACCOUNT = "imported.md"
"""File with the account of the conversion, beside environment.toml."""
WIDTH = 34


def import_environment(place: str, to: Path | None, importer: str) -> dict[str, Any]:
    """Convert what lies at `place`, write the folder, and return the account of it.

    Raises:
        Refused: `place` is not recognised or cannot be converted, or the folder exists or lies in the original.
    """
    name, made = imported(place, importer)
    folder = to or _folder(place, made.name)
    with writing(folder, "--to"):
        _check_target(folder, place)
        _write(folder, made)
    here = str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    return {
        "importer": name, "origin": made.origin, "folder": here, "files": sorted(made.files),
        "carried": [asdict(term) for term in made.carried], "left": [asdict(term) for term in made.left],
        "warnings": list(made.warnings), "earlier_trials": len(made.history),
        "next": shlex.join(["nightshift", "run", here, *made.options]),
    }  # fmt: skip


def _folder(place: str, name: str) -> Path:
    """The default: a folder here by the original's name, and by another one where the original itself lies."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "imported"
    folder = Path(plain)
    return folder.with_name(f"{plain}-nightshift") if folder.resolve() == Path(place).resolve() else folder


def _check_target(folder: Path, place: str) -> None:
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} exists already: name a new folder with --to")
    original = Path(place).resolve()
    original = original if original.is_dir() else original.parent
    if Path(place).is_dir() and folder.resolve().is_relative_to(original):
        raise Refused(f"{folder} would lie in {place}, and an original stays as it is: name another place with --to")


def _write(folder: Path, made: Imported) -> None:
    """Fill a folder beside the target and rename it, so that the target is there as a whole or not at all."""
    target = folder.resolve()
    texts = {ACCOUNT: _account(made), **({HISTORY: earlier_trials.text(made.history)} if made.history else {})}
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as half_made:
        whole = Path(half_made) / target.name
        for name, content in {**texts, **made.files}.items():
            _put(whole, name, content)
        whole.rename(target)


def _put(root: Path, name: str, content: str | Path) -> None:
    path = root / name
    assert path.resolve().is_relative_to(root), f"{name} leaves the folder"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, "utf-8")
    else:
        shutil.copy(content, path)


def _account(made: Imported) -> str:
    """The account as a page."""
    parts = [f"# Imported\n\nFrom {made.origin}, by `nightshift env import`. The original was not changed.\n"]
    parts += [f"\nOptions of `nightshift run` that fit: `{shlex.join(made.options)}`\n"] if made.options else []
    parts += [f"\n**{warning}**\n" for warning in made.warnings]
    for title, terms in (("Carried", made.carried), ("Not carried", made.left)):
        rows = "".join(f"| {_cell(term.theirs)} | {_cell(term.ours)} |\n" for term in terms)
        parts += [f"\n## {title}\n\n| there | here |\n|---|---|\n{rows}"] if terms else []
    return "".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def shown(account: dict[str, Any]) -> str:
    """The account as lines for the terminal."""
    lines = [f"recognised: {account['origin']}", f"wrote {account['folder']}: {FILE} and {ACCOUNT} with this account"]
    for title, key in (("carried", "carried"), ("not carried", "left")):
        lines += [f"\n{title}:", *_paired(Term(**term) for term in account[key])] if account[key] else []
    if account["earlier_trials"]:
        lines.append(f"\n{account['earlier_trials']} earlier trials: {HISTORY}")
    lines += [f"\nWARNING: {terminal.clean(warning)}" for warning in account["warnings"]]
    return "\n".join(lines)


def _paired(terms: Iterable[Term]) -> list[str]:
    """A line each, or two where the first part is long."""
    words = [(terminal.clean(term.theirs), terminal.clean(term.ours)) for term in terms]
    return [
        f"  {theirs:<{WIDTH}} {ours}" if len(theirs) <= WIDTH else f"  {theirs}\n      {ours}" for theirs, ours in words
    ]
