"""Unified diffs between texts: applied and made by git, in an empty folder, as plain functions of texts.

They are about foreign texts, so the engine has them run by tasks/sandbox/reader.py.

`git apply` goes by the line numbers, and takes the nearest place where the old lines stand. Of functions that are alike
that may be the wrong one. So a diff is taken as it is only where all of its numbers are right, as those of our own are.
Anybody else's is otherwise applied twice, from the top and from the bottom of each file, and both have to agree.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from tasks.sandbox.reader import EditFailed
from tasks.system.redact import capped

EDIT_LIMIT = 256 * 2**10
FILE_LIMIT = 2**20
APPLY = ("git", "-c", "core.whitespace=blank-at-eol,-blank-at-eof,-space-before-tab", "apply", "--verbose")
ANYWHERE = ("--recount", "--unidiff-zero", "--whitespace=fix")
"""Lines are counted anew, need no context, and match whatever white space they end with."""
TOP, BOTTOM = 1, 10**6
"""Lines from which git begins to look for a place."""
DIFF = (
    *("git", "-c", f"core.attributesFile={os.devnull}", "diff", "--no-index", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--no-renames", "--text", "--no-prefix", "a", "b"),
)
PLAIN = re.compile(r" (create|delete) (mode 100644 |(?!mode \d{6} ))")
"""The accepted lines of `--summary`: the others are modes, links, renames and copies."""
BARE_HEAD = re.compile(r"^(?=--- .+\n\+\+\+ .+\n@@)", re.MULTILINE)
HUNK_HEAD = re.compile(r"^@@.*$", re.MULTILINE)
INSERTION = re.compile(r"^@@ -[1-9]\d*,0 ", re.MULTILINE)
"""The head of a hunk without old lines, which git would believe anything."""
MOVED = re.compile(r"^Hunk #\d+ succeeded at", re.MULTILINE)
UNSIGNED = re.compile(r"recount: unexpected line: (.*)")
REASON_CHARACTERS = 1_000
"""Of git's own words, among them the lines that it has searched for."""


def patched(before: Mapping[str, str], diff: str, editable: Sequence[str] | None = None) -> dict[str, str]:
    """Texts, by name, as a diff of our own leaves them. A file that it removes is not among them.

    Bytes that are not UTF-8 are surrogates. With `editable`, no other file may change, and none may be removed.
    """
    made, said = _applied(before, diff, editable, "--unidiff-zero")
    if MOVED.search(said):
        raise EditFailed("the edit does not apply: its lines stand elsewhere than it says")
    return made


def patched_by_text(before: Mapping[str, str], diff: str, editable: Sequence[str]) -> dict[str, str]:
    """The same of anybody's diff: by its numbers if all are right, else by its old lines alone.

    A file whose last line has no end stays so: hardly a model writes that as git wants it.
    """
    bare = {name for name, text in before.items() if text and text[-1] != "\n" and "\n\\ No newline" not in diff}
    before = {name: text + "\n" * (name in bare) for name, text in before.items()}
    after = _patched_by_text(before, diff, editable)
    return {name: text.removesuffix("\n") if name in bare else text for name, text in after.items()}


def _patched_by_text(before: Mapping[str, str], diff: str, editable: Sequence[str]) -> dict[str, str]:
    # With --recount, git takes the head of a second file for lines of the first, unless a line like this is between.
    marked = diff if "diff --git " in diff else BARE_HEAD.sub("diff -u\n", diff)
    with suppress(EditFailed):
        made = patched(before, marked, editable)
        # Of a hunk that is longer than it says, git would take a part.
        if not INSERTION.search(diff) and made == _applied(before, marked, editable, "--unidiff-zero", "--recount")[0]:
            return made
    top, bottom = (
        _applied(before, HUNK_HEAD.sub(f"@@ -{line} +{line} @@", marked), editable, *ANYWHERE)[0]
        for line in (TOP, BOTTOM)
    )
    if top != bottom:
        raise EditFailed("the edit does not apply: there are several places for a hunk; add lines around its change")
    return top


def _applied(
    before: Mapping[str, str], diff: str, editable: Sequence[str] | None, *options: str
) -> tuple[dict[str, str], str]:
    """The texts after a diff, and what git says."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        lay_out(scratch, before)
        done = _git([*APPLY, "--apply", "--summary", *options], scratch, diff)
        said = _said(done)
        if unsigned := UNSIGNED.search(said):  # of such a hunk git would take a part
            raise EditFailed(f"the edit has {unsigned[1][:80]!r} in a hunk: each line begins with ' ', '-' or '+'")
        if done.returncode:
            raise EditFailed(f"the edit does not apply: {capped(said[said.find('error: ') :], REASON_CHARACTERS)}")
        for line in done.stdout.decode(errors="replace").splitlines():
            if not PLAIN.match(line):
                raise EditFailed(f"the edit has {line.strip()!r}: it may not do that to a file")
        found = {path.relative_to(scratch).as_posix(): path for path in scratch.rglob("*") if path.is_file()}
        after = dict[str, str]()
        for name, path in found.items():
            is_as_before = path.read_bytes() == before.get(name, "\0").encode(errors="surrogateescape")
            after[name] = before[name] if is_as_before else text_of(scratch, name) or ""
    if editable is not None:
        for name in before.keys() | after.keys():
            if name not in after or (name not in editable and after[name] != before.get(name)):
                raise EditFailed(f"the edit touches or removes {name!r}; editable: {', '.join(editable)}")
    return after, said


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """See `edits.diff_of`."""
    with tempfile.TemporaryDirectory() as folder:
        for side, texts in (("a", before), ("b", after)):
            (Path(folder) / side).mkdir()
            lay_out(Path(folder) / side, texts)
        done = _git([*DIFF], Path(folder))
        if done.returncode not in (0, 1):  # 1: there is a difference
            raise EditFailed(f"the edit cannot be written as a diff: {_said(done)}")
    if len(done.stdout) > EDIT_LIMIT:
        raise EditFailed(f"the edit has {len(done.stdout)} bytes; at most {EDIT_LIMIT}: change less at a time")
    lines = done.stdout.decode(errors="replace").split("\n")
    return "\n".join(line for line in lines if not line.startswith("index "))


def is_place(name: str) -> bool:
    """Whether a name may be a program's file: below its folder, and not git's."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and not {"..", ".git"} & {part.lower() for part in parts}


def place(folder: Path, name: str) -> Path:
    """The path of a program's file; EditFailed where that is elsewhere, behind a link, or no file."""
    if not is_place(name):
        raise EditFailed(f"the edit touches {name!r}, which is not a place for a program's file")
    path = folder
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_symlink():
            raise EditFailed(f"the edit touches {name!r}, which a link leads to: {path.relative_to(folder)}")
    if path.exists() and not path.is_file():
        raise EditFailed(f"the edit touches {name!r}, which is not a file")
    return path


def text_of(folder: Path, name: str) -> str | None:
    """The text of a program's file that somebody else wrote, if it is a plain text of an allowed size; None without."""
    if not (path := place(folder, name)).is_file():
        return None
    status = path.stat()
    if status.st_mode & stat.S_IXUSR:
        raise EditFailed(f"the edit makes {name!r} executable: it may change text, nothing else")
    if status.st_size > FILE_LIMIT:
        raise EditFailed(f"the edit makes {name!r} {status.st_size} bytes long; at most {FILE_LIMIT}")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as wrong:
        raise EditFailed(f"the edit leaves {name!r} not UTF-8: {wrong}") from wrong
    if "\0" in text:
        raise EditFailed(f"the edit leaves a NUL in {name!r}: it may change text, nothing else")
    return text


def lay_out(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the texts into a folder; EditFailed where a name is no place in it."""
    for name, text in texts.items():
        target = place(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode(errors="surrogateescape"))


def _git(command: list[str], folder: Path, diff: str = "") -> subprocess.CompletedProcess[bytes]:
    # The ceiling keeps git from taking a repository around the folder for the one to patch.
    alone = git_environment(GIT_ATTR_NOSYSTEM="1", GIT_CEILING_DIRECTORIES=str(folder.absolute().parent), LC_ALL="C")
    done = subprocess.run(command, cwd=folder, input=diff.encode(), capture_output=True, env=alone)
    if done.returncode == -signal.SIGXCPU:
        raise EditFailed("the edit takes git more than seconds of processor time")
    return done


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode(errors="replace").strip() or f"git ended with status {done.returncode}"


def git_environment(**more: str) -> dict[str, str]:
    """The environment of git: without the user's configuration, and without a hook's repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    # A home on a mounted volume may belong to another user, which git would refuse.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return kept | alone | trusted | more
