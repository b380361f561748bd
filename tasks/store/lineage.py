"""The lineage repository: one git commit per trial.

    git -C runs/<campaign>/lineage.git log champion
    git -C runs/<campaign>/lineage.git diff baseline champion

`champion` is the latest keep, `baseline` the first trial. Every trial has refs/trials/NNNN, whose commit holds the
program's files and params.json. The same trial always makes the same commit.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from environments.safe_open import open_below
from tasks.editing.patches import git_environment
from tasks.store.workspace import TrialDir
from tasks.system.home import CODE, is_checkout
from tasks.system.redact import scrub
from tasks.trial import Trial

PARAMS = "params.json"
PARAMS_PART = re.compile(r"^diff --git a/params\.json b/params\.json\n(?:(?!diff --git ).*\n?)*", re.MULTILINE)
WHO = "Nightshift <nightshift@localhost>"


def commit(repository: Path, place: TrialDir, trial: Trial, program: tuple[str, ...]) -> str:
    """Commit a decided trial, the files of `program` and its parameters; returns the hash. Idempotent."""
    _git(repository, "init", "--quiet", "--bare", "--template=")  # or complete it
    _git(repository, "symbolic-ref", "HEAD", "refs/heads/champion")
    parent = f"refs/trials/{trial.proposal.parent:04d}" if trial.proposal.parent is not None else None
    stream = b"".join(_stream(place, trial, program, parent))
    return _git(repository, "fast-import", "--quiet", "--force", stdin=stream).decode().strip()


def unlock(repository: Path) -> None:
    """Remove locks of a killed git. Only the holder of the campaign may do this."""
    for lock in list(repository.rglob("*.lock")):
        lock.unlink(missing_ok=True)


def crown(repository: Path, number: int) -> None:
    _git(repository, "update-ref", "refs/heads/champion", _ref(number))


def commits(repository: Path) -> dict[int, str]:
    if not repository.exists():
        return {}
    listed = _git(repository, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/trials").decode()
    return {int(name): commit for name, commit in map(str.split, listed.splitlines())}


def patch(repository: Path, number: int) -> str:
    """A trial's unified diff against the baseline; empty for the baseline."""
    return _git(repository, "diff", "--no-color", "baseline", _ref(number)).decode(errors="replace")


def without_parameters(diff: str) -> str:
    """A diff of the lineage without what it says of PARAMS, which no program has."""
    return PARAMS_PART.sub("", diff)


def source_commit(folder: Path) -> str:
    """The commit of the user's repository in which a folder is; empty without one. An installed folder has none: its
    virtual environment may lie in a repository that knows nothing of it.
    """
    if shutil.which("git") is None or (folder.is_relative_to(CODE) and not is_checkout()):
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, env=git_environment())
    return done.stdout.strip() if done.returncode == 0 else ""


def _stream(place: TrialDir, trial: Trial, program: tuple[str, ...], parent: str | None) -> Iterator[bytes]:
    when = int(trial.runs[0].started) if trial.runs else 0
    title = f"trial {trial.number}: {trial.verdict.kind}"
    message = f"{title}\n\n{trial.verdict.reason}\n\n{trial.proposal.rationale}\n".encode()
    yield f"commit {_ref(trial.number)}\nmark :1\ncommitter {WHO} {when} +0000\n".encode()
    yield data_entry(message)
    yield f"from {parent}\n".encode() if parent else b""
    yield b"deleteall\n"
    for name in program:
        if file := open_below(place.workspace, name):
            with file:
                yield file_entry(name, file.read())
    params = json.dumps(trial.proposal.params, indent=2, sort_keys=True) + "\n"
    yield file_entry(PARAMS, params.encode())
    if trial.number == 0:
        yield b"reset refs/heads/baseline\nfrom :1\n"
    yield b"get-mark :1\n"  # git answers with the hash


def file_entry(name: str, content: bytes, is_program: bool = False) -> bytes:
    mode = b"100755" if is_program else b"100644"
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return b'M %b inline "%b"\n' % (mode, os.fsencode(quoted)) + data_entry(content)


def data_entry(content: bytes) -> bytes:
    """Content of a commit or file, redacted: a repository is made to be passed on."""
    clear = scrub(content)
    return b"data %d\n%b\n" % (len(clear), clear)


def _ref(number: int) -> str:
    return f"refs/trials/{number:04d}"


def _git(repository: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    # An explicit path: git would search every directory above, and one of them is the user's repository.
    command = ["git", "-c", "core.fsync=committed", f"--git-dir={repository}", *arguments]  # its objects, too
    done = subprocess.run(command, input=stdin, capture_output=True, env=git_environment())
    if done.returncode:
        raise OSError(f"git {arguments[0]} in {repository}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
