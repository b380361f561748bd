"""A stand-in for two coding agents: it plays one act, and speaks as they do at their end.

path = install(folder, "claude", "edit")     # a program `claude` in the folder, and what it is to do
asked(folder)                                # what it was given, each time that it was started
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TextIO

ASKED = "asked.jsonl"
Act = Callable[[pathlib.Path, pathlib.Path, str], object]
"""Done in a folder, with its train.py, by an agent that was installed in another one."""
CANARY = "SCRIPTED_API_KEY"
"""A variable whose value the act `key` gives away."""


def install(folder: pathlib.Path, name: str, act: str) -> pathlib.Path:
    """Write an executable of that name which plays the act."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
        f"import scripted_agent\nscripted_agent.main({name!r}, {act!r}, {str(folder)!r})\n"
    )
    path.chmod(0o755)
    return path


def asked(folder: pathlib.Path) -> list[dict[str, object]]:
    path = folder / ASKED
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def main(name: str, act: str, folder: str) -> None:
    here = pathlib.Path()
    facts = {
        "arguments": sys.argv[1:],
        "variables": dict(os.environ),
        "cwd": str(pathlib.Path.cwd()),
        "files": sorted(path.as_posix() for path in here.rglob("*") if ".git" not in path.parts),
        "stdin": sys.stdin.read(),  # it would wait for ever if nobody had closed it
        "task": (here / "TASK.md").read_text(),
    }
    with (pathlib.Path(folder) / ASKED).open("a") as file:
        file.write(json.dumps(facts) + "\n")
    say("thinking", sys.stderr)
    play(act, here, folder)
    speak(name, act)


def play(act: str, here: pathlib.Path, folder: str) -> None:
    """Do what the act is; an unknown one does nothing.

    `proposal: TEXT` leaves that text as proposal.json; `hang: N` leaves a `sleep N` behind, twice.
    """
    act, _, argument = act.partition(": ")
    if argument and act == "proposal":
        (here / "proposal.json").write_text(argument)
    elif argument:
        hang(argument, here / "train.py")
    elif act in ACTS:
        ACTS[act](here, here / "train.py", folder)


def edit(here: pathlib.Path, train: pathlib.Path, folder: str) -> None:
    rate = "0.02" if "could not be tried" in (here / "TASK.md").read_text() else "0.01"
    train.write_text(train.read_text().replace("RATE = 0.1", f"RATE = {rate}"))
    proposal = json.loads((here / "proposal.json").read_text())
    proposal |= {"rationale": "The rate is too high.\nIt diverges.", "category": "Learning rate"}
    (here / "proposal.json").write_text(json.dumps(proposal))
    (here / "scratch.py").write_text("only = 'for me'\n")


def forbidden(here: pathlib.Path, train: pathlib.Path, folder: str) -> None:
    (here / "TASK.md").chmod(0o644)
    (here / "TASK.md").write_text("the score is 1000")


def hang(seconds: str, train: pathlib.Path) -> None:
    """Two processes, one of which has detached itself and thrown its variables away."""
    train.write_text("RATE = 0.01\n")
    subprocess.Popen(["sleep", seconds], start_new_session=True, env={})
    subprocess.Popen(["sleep", seconds])
    time.sleep(300)


def give_a_key_away(here: pathlib.Path, train: pathlib.Path, folder: str) -> None:
    edit(here, train, folder)
    say(os.environ[CANARY], sys.stderr)


def link(here: pathlib.Path, train: pathlib.Path, folder: str) -> None:
    train.unlink()
    train.symlink_to("/etc/hostname")


def say(text: str, stream: TextIO = sys.stdout) -> None:
    stream.write(text + "\n")


ACTS: dict[str, Act] = {
    **dict.fromkeys(("edit", "repair"), edit),
    "forbidden": forbidden,
    "key": give_a_key_away,
    "hides the key": lambda here, train, folder: train.write_text(f"KEY = {os.environ[CANARY]!r}\n"),
    "link": link,
    "mode": lambda here, train, folder: train.chmod(0o755),
    "binary": lambda here, train, folder: train.write_bytes(b"\xff\xfe\x00"),
    "long": lambda here, train, folder: train.write_bytes(b"#" * (2**20 + 1)),
    "remove": lambda here, train, folder: train.unlink(),
}
"""What it does in its folder, by the name of the act."""


def speak(name: str, act: str) -> None:
    message = "Credit balance is too low" if act == "is_error" else "I am done."
    counts = {"input_tokens": 10, "output_tokens": 7}
    if name == "claude":
        counts |= {"cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000}
        result = {
            "type": "result", "subtype": "success", "is_error": act == "is_error", "num_turns": 3,
            "result": message, "total_cost_usd": 0.25, "usage": counts,
        }  # fmt: skip
        say(json.dumps(result))
    elif name == "codex":
        # It tells of errors that it has got over, too.
        events: list[dict[str, object]] = [
            {"type": "thread.started"},
            {"type": "error", "message": "Reconnecting... 1/5"},
        ]
        if act == "is_error":
            events.append({"type": "turn.failed", "error": {"message": message}})
        else:
            events.append({"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}})
            events.append({"type": "item.completed", "item": {"type": "agent_message", "text": message}})
            events.append({"type": "turn.completed", "usage": counts})
        say("\n".join(map(json.dumps, events)))
    else:
        say(message)
    if act in ("exit 1", "is_error"):
        say("fatal: no luck today", sys.stderr)
        sys.exit(1)
