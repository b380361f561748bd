"""A coding agent at work: its folder before, its run, and the result that is read from the folder.

It may change the champion's files and params.json, writes rationale.md, and reads TASK.md; all else is its scratch. The
folder is a git repository, since agents look for one. No git of ours runs in it afterwards: its configuration may say
anything by then. It runs without a sandbox, since it needs the network and its own login, but below a supervisor
(tasks/sandbox/supervisor.py): it cannot outlive its engine, and at its end all of its processes are killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments.limits import Limits
from tasks.editing.patches import EditFailed, git_environment, is_place, text_of
from tasks.llm.prompt_parts import start
from tasks.proposing.brief import Brief
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.program import Program, Stopped
from tasks.system.clock import clock
from tasks.system.orphans import MARKER
from tasks.system.redact import capped, known_secrets, scrub_text
from tasks.trial import Params, Value

OURS = ("TASK.md", "params.json", "rationale.md")
TASK, PARAMS, RATIONALE = OURS
SHOWN = 200
"""Characters of a value that are shown."""
GIT = (
    *("git", "-c", "user.name=Nightshift", "-c", "user.email=nightshift@localhost"),
    *("-c", "commit.gpgSign=false", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"),
)
LIMITS = Limits(scratch_gb=4, output_mb=16)
VIEW = VisiblePaths((), (), network=True, gpu=True)
"""`gpu`: like the drivers of one, the engines of these agents reserve far more address space than they use."""
KEPT = 4 * 2**20
"""Bytes of the end of its standard output that are kept: its last words."""
LOOK_SECONDS = 0.05
BEGIN = """\
import json, os, sys
variables = json.load(sys.stdin)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
try:
    os.execve(sys.argv[1], sys.argv[1:], variables)
except OSError as wrong:
    sys.exit(f"cannot start {sys.argv[1]}: {wrong.strerror}")
"""
"""Becomes the agent. Its variables, a key among them, come by a pipe: a command line can be read by everybody."""


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
    """Write everything into an empty folder, and commit it; the texts of the files, by name."""
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
    """The result of an agent whose processes have all ended; EditFailed where it changed what it may not."""
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


@dataclass(frozen=True)
class Ended:
    """The end of an agent, and its output."""

    failure: str
    """The reason of a failure; empty when it ended with status 0."""
    printed: str
    """The end of its standard output, without the engine's secrets."""


def run(argv: Sequence[str], *, cwd: Path, log: Path, variables: Mapping[str, str], seconds: float) -> Ended:
    """Run an agent to its end, or for so many seconds. When this returns, nothing of it is left.

    Args:
        argv: The path of its program first.
        log: What it prints goes there, capped and without secrets; its temporary files go beside it.

    Raises:
        CannotStart: the machine has no process, memory, file or disk left for it.
        KeyboardInterrupt: somebody asked the engine to end.
    """
    marker = f"agent/{secrets.token_hex(8)}"
    begin = [sys.executable, "-I", "-S", "-c", BEGIN, *argv]
    heard = b""
    with Program(begin, cwd=cwd, log=log, marker=marker, level="none", view=VIEW, limits=LIMITS, pipes=True) as program:
        try:
            own = {"TMPDIR": f"{log}.tmp", "NO_COLOR": "1", MARKER: marker}  # see tasks/sandbox/program.py
            pipe = program.process.stdin
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already, and its status says why
                pipe.write(json.dumps({**variables, **own}).encode())
            pipe.close()
            deadline = clock() + seconds
            status = None
            while status is None and clock() < deadline:
                status = program.poll(LOOK_SECONDS)
                heard = _listen(program, heard)
            if status is None:
                failure = f"did not end within {seconds:g} s"
            else:
                program.left_over()
                heard = _listen(program, heard)
                failure = f"{program.describe(status)}\n{program.tail()}".rstrip() if status else ""
        except Stopped as stopped:
            failure = f"was stopped: {stopped}"
        program.kill()
    return Ended(failure, scrub_text(heard.decode(errors="replace")))


def _listen(program: Program, heard: bytes) -> bytes:
    """The kept end of its standard output."""
    pipe = program.process.stdout
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    while chunk := pipe.read(2**18):
        heard = (heard + chunk)[-KEPT:]
        program.note(chunk)
    return heard
