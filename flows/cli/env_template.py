"""`nightshift env new`: a small environment that runs, as a start for your own."""

from __future__ import annotations

import shlex
from pathlib import Path

import tomlkit

from environments import FILE
from environments.plugins import Refused
from flows.cli.skills import leave_word

TEMPLATE = Path(__file__).with_name("template")


def write_environment(folder: Path) -> str:
    """Write the template into a folder, and return a message with the next command.

    Raises:
        Refused: one of the files exists already.
    """
    contents = {file.name: file.read_text() for file in sorted(TEMPLATE.iterdir()) if file.is_file()}
    for name in contents:
        if (folder / name).exists():
            raise Refused(f"{folder / name} exists already: choose another folder, or write {FILE} yourself")
    title = folder.resolve().name
    contents[FILE] = f"title = {tomlkit.string(title).as_string()}\n{contents[FILE]}"
    contents["program.md"] = f"# {title}\n\n{contents['program.md']}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text)
    leave_word(folder)
    here = str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    typed = shlex.quote(here)
    wrote = f"wrote {here}: {', '.join(contents)}"
    return f"{wrote}\nnext: nightshift env validate {typed} && nightshift run {typed} --trials 5"
