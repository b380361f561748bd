"""What another user of this machine, and a trial with a network, get of one of our own servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.system.daemon import Note
from tasks.system.login import login_file
from tests.support.sandboxed import answers

USER = 4242
"""The number of a user whom this machine does not know."""
PRELUDE = """
import json, os, urllib.error, urllib.request

def tried(function):
    try:
        return function()
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError as refused:
        return type(refused).__name__

def ask(path, **headers):
    method, _, path = path.rpartition(" ")
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request(URL + path, body, {"Content-Type": "application/json", **headers})
    return urllib.request.urlopen(request, timeout=20).status

tried(lambda: ask("/"))  # has everything imported
"""
TRY = """
own = {"Origin": URL, "Host": "localhost:" + URL.rpartition(":")[2]}
print(json.dumps({
    **{path: tried(lambda: ask(path)) for path in PATHS},
    "as its page": tried(lambda: ask(PATHS[0], **own)),
    "guess": tried(lambda: ask(PATHS[0], Authorization="Basic bmlnaHRzaGlmdDo=")),
    "login": tried(lambda: open(LOGIN).read()),
    "variables": tried(lambda: open(f"/proc/{PID}/environ").read()),
}))
"""


def of_another_user(note: Note, home: Path, paths: Sequence[str]) -> dict[str, Any]:
    """Its answers to another user, by path; `login`, `variables`: what that user reads of the file and of /proc."""
    become = f"os.setgroups([]); os.setgid({USER}); os.setuid({USER})\n"
    code = _targets(note, home, paths) + PRELUDE + become + TRY
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def of_a_trial(note: Note, home: Path, paths: Sequence[str], place: Path, level: Level) -> dict[str, Any]:
    """The same of a trial's program with `network = true`, which runs in `place`."""
    code = _targets(note, home, paths) + PRELUDE + TRY
    return dict(answers(place, level, code, view=VisiblePaths((), (), network=True)))


def is_nothing(got: dict[str, Any], paths: Sequence[str]) -> bool:
    """Whether every request was refused for the lack of a login, and nothing could be read."""
    files = {got["login"], got["variables"]}
    asked = {got[name] for name in (*paths, "as its page", "guess")}
    return files <= {"PermissionError", "FileNotFoundError"} and asked == {401}


def _targets(note: Note, home: Path, paths: Sequence[str]) -> str:
    page, login = note.url.removesuffix("/api"), str(login_file(home))
    return f"URL, LOGIN, PID, PATHS = {page!r}, {login!r}, {note.pid}, {list(paths)!r}\n"
