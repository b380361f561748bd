"""`nightshift env new`: a small environment that runs, as a start for your own."""

from __future__ import annotations

import shlex
from pathlib import Path

import tomlkit

from environments import FILE
from environments.plugins import Refused, require
from flows.cli.env_import import import_environment

TEMPLATE = Path(__file__).with_name("template")
COPIED = {"command": TEMPLATE, "grpo": TEMPLATE / "grpo"}
IMPORTED = {"sb3": TEMPLATE / "sb3/train.py", "rl-zoo": TEMPLATE / "rl-zoo/ppo.yml"}


def write_environment(folder: Path, kind: str = "command") -> str:
    """Write a template into a folder, and return a message with the next command.

    Args:
        folder: New, or without these files.
        kind: `command`; or what the program is written with: `sb3`, `rl-zoo`, `grpo`.

    Raises:
        Refused: one of the files exists already, or there is no such kind.
    """
    require(kind, {**COPIED, **IMPORTED}, "kind")
    here = str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    typed = shlex.quote(here)
    if kind in IMPORTED:
        [own] = [f for f in import_environment(str(IMPORTED[kind]), folder, "")["files"] if f.startswith("repository/")]
        wrote = f"{own}, to be edited; of your own, `nightshift env import` makes the same"
    else:
        contents = {file.name: file.read_text() for file in sorted(COPIED[kind].iterdir()) if file.is_file()}
        for name in contents:
            if (folder / name).exists():
                raise Refused(f"{folder / name} exists already: choose another folder, or write {FILE} yourself")
        title = folder.resolve().name
        contents[FILE] = f"title = {tomlkit.string(title).as_string()}\n{contents[FILE]}"
        contents["program.md"] = f"# {title}\n\n{contents['program.md']}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text)
        wrote = ", ".join(contents)
    return f"wrote {here}: {wrote}\nnext: nightshift env validate {typed} && nightshift run {typed} --trials 5"
