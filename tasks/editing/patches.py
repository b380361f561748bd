"""Unified diffs between texts: applied and made by git, in an empty folder, as plain functions of texts.

They are about foreign texts, so the engine has them run by tasks/sandbox/reading/reader.py.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from tasks.system.variables import variables

EDIT_LIMIT = 256 * 2**10
FILE_LIMIT = 2**20
GIT = ("git", "apply", "--recount", "--ignore-whitespace", "-C1")
NEW_FILE = re.compile(r" create (mode 100644 |(?!mode \d{6} ))")
"""The only accepted line of `git apply --summary`: the others are modes, links, removals, renames and copies."""
PLAIN = re.compile(r" (create|delete) mode 100644 ")
"""The accepted lines of that summary for a diff between texts."""
DIFF = (
    *("git", "-c", f"core.attributesFile={os.devnull}", "diff", "--no-index", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--no-renames", "--text", "--no-prefix", "a", "b"),
)
HEAD = re.compile(r"^diff --git (.*?)\r?$", re.MULTILINE)
BARE_HEAD = re.compile(r"^(?=--- .+\n\+\+\+ .+\n@@ -)", re.MULTILINE)
BINARY = re.compile(r"^(GIT binary patch|Binary files .* differ)\r?$", re.MULTILINE)
HUNK = re.compile(r"^@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")


class EditFailed(Exception):
    """A code edit does not apply or is not allowed; the message says what, where and why."""


def edited(
    files: Mapping[str, str], executable: Sequence[str], odd: Mapping[str, str], diff: str, editable: Sequence[str]
) -> dict[str, str]:
    """The files that a diff changes, with their new texts.

    Args:
        files: The editable files that there are. Bytes that are not UTF-8 are surrogates (`surrogateescape`).
        executable: Those of them that are executable.
        odd: Editable files that may not be touched for now, and why.

    Raises:
        EditFailed: it does not apply; it touches another file, or does more to one than change its text.
    """
    readable = _readable(diff)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        names = _touched(readable, editable, scratch)
        for name in names:
            if name in odd:
                raise EditFailed(odd[name])
            if name in files:
                place(scratch, name).parent.mkdir(parents=True, exist_ok=True)
                opener = partial(os.open, mode=0o755 if name in executable else 0o644)  # chmod has no effect here
                with open(scratch / name, "wb", opener=opener) as file:
                    file.write(files[name].encode(errors="surrogateescape"))
        for line in _git([*GIT, "--apply", "--summary"], scratch, readable).splitlines():
            if not NEW_FILE.match(line):
                raise EditFailed(f"the edit has {line.strip()!r}: it may change and add plain files, nothing else")
        left = {path.relative_to(scratch).as_posix() for path in scratch.rglob("*") if not path.is_dir()}
        for name in sorted(left ^ set(names)):
            raise EditFailed(f"the edit {'makes' if name in left else 'removes'} {name!r}: it may not")
        return {name: _content(scratch / name, name, name in executable) for name in names}


def patched(before: Mapping[str, str], diff: str, reverse: bool) -> dict[str, str]:
    """Texts, by name, as a diff leaves them; with `reverse`, as they were before it.

    Raises:
        EditFailed: it does not apply, or does more than add, remove and change texts.
    """
    readable = _readable(diff)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        _lay_out(scratch, before)
        command = [*GIT, "--apply", "--summary", *(["--reverse"] if reverse else [])]
        for line in _git(command, scratch, readable).splitlines():
            if not PLAIN.match(line):
                raise EditFailed(f"the edit has {line.strip()!r}: it may add, remove and change plain files")
        left = {path.relative_to(scratch).as_posix(): path for path in scratch.rglob("*") if not path.is_dir()}
        return {name: _content(path, name, is_executable(path)) for name, path in sorted(left.items())}


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The diff between two sets of texts, by name, as git writes it; empty if nothing differs.

    Raises:
        EditFailed: a text is not UTF-8, or a name is no place for a file.
    """
    with tempfile.TemporaryDirectory() as folder:
        for side, texts in (("a", before), ("b", after)):
            (Path(folder) / side).mkdir()
            _lay_out(Path(folder) / side, texts)
        shown = _git([*DIFF], Path(folder), b"", differ=1)
    # git names the new side of an added file twice, and the old side of a removed one.
    lines = (line for line in shown.split("\n") if not line.startswith("index "))
    return "\n".join(_two_sides(line) if line.startswith("diff --git ") else line for line in lines)


def is_place(name: str) -> bool:
    """Whether a name may be a program's file: below its folder, and not git's."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and not {"..", ".git"} & {part.lower() for part in parts}


def place(folder: Path, name: str) -> Path:
    """The path of a program's file; no link may lead to it.

    Raises:
        EditFailed: it is elsewhere, or something else than a file.
    """
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


def is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


def is_cut_off(stated: tuple[int, int], found: tuple[int, int], ends_in_removal: bool, is_last: bool) -> bool:
    """Whether a hunk has fewer lines than its head says, and nothing shows that its end is one.

    People and models count badly, so a hunk that is followed by more may be shorter. The last one may be what is left
    of a longer one, and so may any that removes lines at its end where its head says that others come for them. One
    line less on both sides is the blank one at the end, which is easily lost.

    Args:
        stated: Lines of the old and the new side by the head; `found`: in the hunk.
    """
    lost_old, lost_new = stated[0] - found[0], stated[1] - found[1]
    if min(lost_old, lost_new) < 0 or lost_old == lost_new <= 1:
        return False
    return is_last or (ends_in_removal and lost_new > lost_old)


def _readable(edit: str) -> bytes:
    """The diff for git, if it is text of an allowed size."""
    text = edit if edit.endswith("\n") else edit + "\n"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as wrong:
        raise EditFailed(f"the edit is not UTF-8: {wrong}") from wrong
    if size > EDIT_LIMIT:
        raise EditFailed(f"the edit has {size} bytes; at most {EDIT_LIMIT}: change less at a time")
    if "\0" in text or BINARY.search(text):
        raise EditFailed("the edit is a binary patch: it may change text, nothing else")
    for head in HEAD.findall(text):
        old, new = head[: len(head) // 2], head[len(head) // 2 + 1 :]
        if old.partition("/")[2] != new.partition("/")[2]:
            raise EditFailed(f"the edit has 'diff --git {head}': it must name one file, twice (a/train.py b/train.py)")
    # With --recount, git takes the head of a second file for lines of the first, unless a line like this is between.
    return (text if HEAD.search(text) else BARE_HEAD.sub("diff -u\n", text)).encode()


def check_whole(diff: str) -> None:
    """Refuse a new diff with a hunk that is cut off, which --recount would hide.

    Stored ones are read as they were accepted.

    Raises:
        EditFailed: a hunk is cut off.
    """
    lines = diff.split("\n")
    heads = [(at, head) for at, line in enumerate(lines) if (head := HUNK.match(line))]
    ends = [*(at for at, _ in heads[1:]), len(lines)]
    for (at, head), end in zip(heads, ends, strict=False):
        body = list[str]()
        for here in range(at + 1, end):
            line = lines[here]
            names = line.startswith("--- ") and lines[here + 1 : here + 2] and lines[here + 1].startswith("+++ ")
            if names or (line.rstrip("\r") and line[0] not in " +-\\"):
                break
            body.append(line or " ")
        after = at + 1 + len(body)
        stated = int(head[1] or 1), int(head[2] or 1)
        # Blank lines at the end are context as long as the head says so.
        while body and not body[-1].strip() and any(c > s for c, s in zip(_counts(body), stated, strict=True)):
            body.pop()
        counts = _counts(body)
        is_last = not any(line.strip() for line in lines[after:])
        if is_cut_off(stated, counts, body[-1:] != [] and body[-1][0] == "-", is_last):
            raise EditFailed(
                f"the edit is cut off: the hunk in its line {at + 1} has {counts[0]} old and {counts[1]} new lines, "
                f"and its head says {stated[0]} and {stated[1]}: correct the numbers, or send all of it"
            )


def _counts(body: Sequence[str]) -> tuple[int, int]:
    """Old and new lines of a hunk."""
    return sum(line[0] in " -" for line in body), sum(line[0] in " +" for line in body)


def _touched(diff: bytes, editable: Sequence[str], scratch: Path) -> list[str]:
    """The files that git would change, each of them editable."""
    entries = [line.split("\t", 2) for line in _git([*GIT, "--numstat", "-z"], scratch, diff).split("\0")]
    counted = [entry for entry in entries if len(entry) == 3]
    for added, _, name in counted:
        if name not in editable:
            raise EditFailed(f"the edit touches {name!r}; editable: {', '.join(editable)}")
        if added == "-":
            raise EditFailed(f"the edit is a binary patch of {name!r}: it may change text, nothing else")
    if not counted:
        raise EditFailed("the edit changes nothing: it holds no hunk of a unified diff")
    return sorted({name for _, _, name in counted})


def _content(path: Path, name: str, executable: bool) -> str:
    """The text that git has written, if it is one and only the text has changed."""
    if path.is_symlink() or not path.is_file() or is_executable(path) != executable:
        raise EditFailed(f"the edit changes what kind of file {name!r} is: it may change text, nothing else")
    content = path.read_bytes()
    if len(content) > FILE_LIMIT:
        raise EditFailed(f"the edit makes {name!r} {len(content)} bytes long; at most {FILE_LIMIT}")
    try:
        text = content.decode()
    except UnicodeDecodeError as wrong:
        raise EditFailed(f"the edit leaves {name!r} not UTF-8: {wrong}") from wrong
    if "\0" in text:
        raise EditFailed(f"the edit leaves a NUL in {name!r}: it may change text, nothing else")
    return text


def _lay_out(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        target = place(folder, name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        except UnicodeEncodeError as wrong:
            raise EditFailed(f"{name!r} is not UTF-8: {wrong}") from wrong
        except OSError as wrong:
            raise EditFailed(f"{name!r} is not a place for a file: {wrong.strerror}") from wrong


def _two_sides(head: str) -> str:
    """git's head of a file, with the old name as a/NAME and the new one as b/NAME."""
    names = head.removeprefix("diff --git ")
    old, new = names[: len(names) // 2], names[len(names) // 2 + 1 :]
    quote = '"' * old.startswith('"')
    return f"diff --git {quote}a{old[len(quote) + 1 :]} {quote}b{new[len(quote) + 1 :]}"


def _git(command: list[str], folder: Path, diff: bytes, differ: int = 0) -> str:
    """The output of git; `differ`: the exit status by which it says that files differ."""
    # The ceiling keeps git from taking a repository around the folder for the one to patch.
    alone = git_environment(GIT_ATTR_NOSYSTEM="1", GIT_CEILING_DIRECTORIES=str(folder.absolute().parent), LC_ALL="C")
    done = subprocess.run(command, cwd=folder, input=diff, capture_output=True, env=alone)
    if done.returncode == -signal.SIGXCPU:
        raise EditFailed("the edit takes git more than seconds of processor time")
    if done.returncode not in (0, differ):
        said = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
        raise EditFailed(f"the edit does not apply: {said or f'git ended with status {done.returncode}'}")
    return done.stdout.decode(errors="replace")


def git_environment(**more: str) -> dict[str, str]:
    """The environment of git: without the user's configuration, and without a hook's repository."""
    kept = {name: value for name, value in variables().items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    # A home on a mounted volume may belong to another user, which git would refuse.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return kept | alone | trusted | more
