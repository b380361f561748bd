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
from typing import TextIO

ASKED = "asked.jsonl"
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
        "lines": "".join(pathlib.Path(f"/proc/{one}/cmdline").read_text() for one in (os.getpid(), os.getppid())),
        "variables": dict(os.environ),
        "cwd": str(pathlib.Path.cwd()),
        "files": sorted(path.as_posix() for path in here.rglob("*") if ".git" not in path.parts),
        "stdin": sys.stdin.read(),  # it would wait for ever if nobody had closed it
        "task": (here / "TASK.md").read_text(),
    }
    with (pathlib.Path(folder) / ASKED).open("a") as file:
        file.write(json.dumps(facts) + "\n")
    say("thinking", sys.stderr)
    play(act)
    speak(name, act)


def play(act: str) -> None:
    """Do what the act is; an unknown one does nothing.

    `proposal: TEXT` leaves that text as proposal.json; `hang: N` leaves a `sleep N` behind, twice.
    """
    act, _, argument = act.partition(": ")
    if act == "proposal":
        pathlib.Path("proposal.json").write_text(argument)
    elif act == "hang":
        hang(argument)
    elif act in ("edit", "key"):
        edit()
    elif act == "hides the key":
        pathlib.Path("train.py").write_text(f"KEY = {os.environ[CANARY]!r}\n")
    if act == "key":
        say(os.environ[CANARY], sys.stderr)


def edit() -> None:
    train, proposal = pathlib.Path("train.py"), pathlib.Path("proposal.json")
    rate = "0.02" if "could not be tried" in pathlib.Path("TASK.md").read_text() else "0.01"
    train.write_text(train.read_text().replace("RATE = 0.1", f"RATE = {rate}"))
    said = {"rationale": "The rate is too high.\nIt diverges.", "category": "Learning rate"}
    proposal.write_text(json.dumps(json.loads(proposal.read_text()) | said))
    pathlib.Path("scratch.py").write_text("only = 'for me'\n")


def hang(seconds: str) -> None:
    """Two processes, one of which has detached itself and thrown its variables away."""
    pathlib.Path("train.py").write_text("RATE = 0.01\n")
    subprocess.Popen(["sleep", seconds], start_new_session=True, env={})
    subprocess.Popen(["sleep", seconds])
    time.sleep(300)


def say(text: str, stream: TextIO = sys.stdout) -> None:
    stream.write(text + "\n")


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
