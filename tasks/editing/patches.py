"""Unified diffs between texts: applied and made by git, in an empty folder, as plain functions of texts.

They are about foreign texts, so the engine has them run by tasks/sandbox/reader.py.

`git apply` goes by the line numbers, and takes the nearest place where the old lines stand. Of functions that are alike
that may be the wrong one. So a diff is taken as it is only where all of its numbers are right. Otherwise it is applied
twice, from the top and from the bottom of each file, and both have to make the same.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

EDIT_LIMIT = 256 * 2**10
FILE_LIMIT = 2**20
APPLY = ("git", "-c", "core.whitespace=blank-at-eol,-blank-at-eof,-space-before-tab", "apply", "--verbose")
ANYWHERE = ("--recount", "--unidiff-zero", "--whitespace=fix")
"""Lines are counted anew, need no context, and match whatever white space they end with."""
FIRST, LAST = 1, 10**6
"""Lines from which git begins to look for a place."""
DIFF = (
    *("git", "-c", f"core.attributesFile={os.devnull}", "diff", "--no-index", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--no-renames", "--text", "--no-prefix", "a", "b"),
)
CREATED = re.compile(r" create (mode 100644 |(?!mode \d{6} ))")
"""The only accepted line of `--summary` for an edit: the others are modes, links, removals, renames and copies."""
PLAIN = re.compile(r" (create|delete) (mode 100644 |(?!mode \d{6} ))")
"""The accepted lines for a diff between texts."""
BARE_HEAD = re.compile(r"^(?=--- .+\n\+\+\+ .+\n@@)", re.MULTILINE)
HUNK_HEAD = re.compile(r"^@@.*$", re.MULTILINE)
MOVED = re.compile(r"^Hunk #(\d+) succeeded at (\d+)", re.MULTILINE)
INSERTION = re.compile(r"^@@ -[1-9]\d*,0 ", re.MULTILINE)
"""The head of a hunk without old lines, which git would believe anything."""
UNSIGNED = re.compile(r"recount: unexpected line: (.*)")
NOWHERE = re.compile(r"error: while searching for:\n(.*?)\n\nerror: patch failed: (.*):\d+$", re.DOTALL | re.MULTILINE)


class EditFailed(Exception):
    """A code edit does not apply or is not allowed; the message says what, where and why."""


class NotThere(EditFailed):
    """The old lines of a hunk are not in its file."""

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        super().__init__(f"the edit does not apply: the old lines of a hunk are not in {name}")
        self.name = name
        self.lines = lines


def patched(before: Mapping[str, str], diff: str, editable: Sequence[str] | None = None) -> dict[str, str]:
    """Texts, by name, as a diff leaves them. A file that it removes is not among them.

    Bytes that are not UTF-8 are surrogates. Without `editable`, the only files to change and add, some may be removed.
    """
    with_numbers = _readable(diff)
    by_lines = {line: HUNK_HEAD.sub(f"@@ -{line} +{line} @@", with_numbers) for line in (FIRST, LAST)}
    names = _touched(by_lines[FIRST], editable)
    allowed = PLAIN if editable is None else CREATED

    def attempt(text: str, *options: str) -> tuple[dict[str, str] | None, str]:
        """The texts of the files that it is about, or None, and what git says."""
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            _lay_out(scratch, {name: before[name] for name in names if name in before})
            done = _git([*APPLY, "--apply", "--summary", *options], scratch, text)
            if done.returncode:
                return None, _said(done)
            for line in done.stdout.decode(errors="replace").splitlines():
                if not allowed.match(line):
                    raise EditFailed(f"the edit has {line.strip()!r}: it may not do that to a file")
            texts = {name: text_of(scratch, name) for name in names}
            return {name: made for name, made in texts.items() if made is not None}, _said(done)

    def attempt_by_numbers(*options: str) -> dict[str, str] | None:
        texts, said = attempt(with_numbers, "--unidiff-zero", *options)
        return None if MOVED.search(said) or UNSIGNED.search(said) else texts

    made = None if INSERTION.search(with_numbers) else attempt_by_numbers()
    # Of a hunk that is longer than it says, git would take a part.
    if made is None or made != attempt_by_numbers("--recount"):
        (made, said), (other, other_said) = (attempt(by_lines[line], *ANYWHERE) for line in (FIRST, LAST))
        if made is None or UNSIGNED.search(said):
            raise _reason(said)
        if made != other:
            hunks = [both[0] for both in MOVED.findall(other_said) if both not in MOVED.findall(said)]
            raise EditFailed(
                f"the edit does not apply: there are several places for hunk {', '.join(hunks)}; correct all line "
                "numbers, or add lines around the change"
            )
    return {**{name: text for name, text in before.items() if name not in names}, **made}


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """See `edits.diff_of`."""
    with tempfile.TemporaryDirectory() as folder:
        for side, texts in (("a", before), ("b", after)):
            (Path(folder) / side).mkdir()
            _lay_out(Path(folder) / side, texts)
        done = _git([*DIFF], Path(folder))
        if done.returncode not in (0, 1):  # 1: there is a difference
            raise EditFailed(f"the edit cannot be written as a diff: {_said(done)}")
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
    path = place(folder, name)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
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


def _readable(diff: str) -> str:
    """The diff for git, if it is text of an allowed size."""
    try:
        size = len(diff.encode())
    except UnicodeEncodeError as wrong:
        raise EditFailed(f"the edit is not UTF-8: {wrong}") from wrong
    if size > EDIT_LIMIT:
        raise EditFailed(f"the edit has {size} bytes; at most {EDIT_LIMIT}: change less at a time")
    # With --recount, git takes the head of a second file for lines of the first, unless a line like this is between.
    marked = diff if "diff --git " in diff else BARE_HEAD.sub("diff -u\n", diff)
    return marked if marked.endswith("\n") else marked + "\n"


def _touched(diff: str, editable: Sequence[str] | None) -> list[str]:
    """The files that git would change, each of them editable."""
    with tempfile.TemporaryDirectory() as folder:
        done = _git([*APPLY, "--numstat", "-z", "--recount"], Path(folder), diff)
    if done.returncode:
        raise _reason(_said(done))
    entries = [line.split("\t", 2) for line in done.stdout.decode(errors="replace").split("\0")]
    names = []
    for added, _, name in (entry for entry in entries if len(entry) == 3):
        if editable is not None and name not in editable:
            raise EditFailed(f"the edit touches {name!r}; editable: {', '.join(editable)}")
        if added == "-":
            raise EditFailed(f"the edit is a binary patch of {name!r}: it may change text, nothing else")
        names.append(name)
    if not names:
        raise EditFailed("the edit changes nothing: it holds no hunk of a unified diff")
    return sorted(set(names))


def _reason(said: str) -> EditFailed:
    """Why a diff does not apply, by what git says."""
    if unsigned := UNSIGNED.search(said):
        return EditFailed(f"the edit has {unsigned[1][:80]!r} in a hunk: each line begins with ' ', '-' or '+'")
    if nowhere := NOWHERE.search(said):
        return NotThere(nowhere[2], nowhere[1].split("\n"))
    errors = [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
    return EditFailed(f"the edit does not apply: {'; '.join(errors) or said}")


def _lay_out(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        target = place(folder, name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode(errors="surrogateescape"))
        except UnicodeEncodeError as wrong:
            raise EditFailed(f"{name!r} is not UTF-8: {wrong}") from wrong
        except OSError as wrong:
            raise EditFailed(f"{name!r} is not a place for a file: {wrong.strerror}") from wrong


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
