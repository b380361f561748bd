"""Code edits of a trial's program: unified diffs of editable files, applied whole or not at all.

git applies a diff to copies of the files in an empty folder. The resulting files are checked, not the diff's own
headers; when all checks pass, they are written into the workspace.
"""

from __future__ import annotations

import io
import os
import re
import stat
import subprocess
import tempfile
import tokenize
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from environments import Environment
from tasks.editing import fixed_seeds
from tasks.editing.python_source import NotPython, parse, sources
from tasks.editing.required_calls import missing_calls

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


class EditFailed(Exception):
    """A code edit does not apply or is not allowed; the message says what, where and why."""


def apply_edit(workspace: Path, edit: str, environment: Environment) -> None:
    """Apply a unified diff to the editable files: all of it or nothing.

    Raises:
        EditFailed: it does not apply; it touches another file, or does more to one than change its text; a file would
            not parse; a call that the environment requires is left out; a seed is fixed.
    """
    diff = _readable(edit)
    with tempfile.TemporaryDirectory(prefix="nightshift-edit-") as scratch:
        changed = _apply(workspace, diff, environment, Path(scratch))
    _check_python(workspace, changed, environment)
    for name, content in changed.items():
        target = workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


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


def _apply(workspace: Path, diff: bytes, environment: Environment, scratch: Path) -> dict[str, bytes]:
    """The files that the diff changes, with their new contents."""
    names = _touched(diff, environment, scratch)
    for name in names:
        original = _place(workspace, name)
        if original.exists():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(original.read_bytes())
            (scratch / name).chmod(0o755 if _is_executable(original) else 0o644)
    for line in _git([*GIT, "--apply", "--summary"], scratch, diff).splitlines():
        if not NEW_FILE.match(line):
            raise EditFailed(f"the edit has {line.strip()!r}: it may change and add plain files, nothing else")
    left = {path.relative_to(scratch).as_posix() for path in scratch.rglob("*") if not path.is_dir()}
    for name in sorted(left ^ set(names)):
        raise EditFailed(f"the edit {'makes' if name in left else 'removes'} {name!r}: it may not")
    return {name: _content(scratch / name, name, workspace / name) for name in names}


def _touched(diff: bytes, environment: Environment, scratch: Path) -> list[str]:
    """The files that git would change, each of them editable."""
    entries = [line.split("\t", 2) for line in _git([*GIT, "--numstat", "-z"], scratch, diff).split("\0")]
    counted = [entry for entry in entries if len(entry) == 3]
    for added, _, name in counted:
        if name not in environment.editable:
            raise EditFailed(f"the edit touches {name!r}; editable: {', '.join(environment.editable)}")
        if added == "-":
            raise EditFailed(f"the edit is a binary patch of {name!r}: it may change text, nothing else")
    if not counted:
        raise EditFailed("the edit changes nothing: it holds no hunk of a unified diff")
    return sorted({name for _, _, name in counted})


def is_place(name: str) -> bool:
    """Whether a name may be a program's file: below its folder, and not git's."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and not {"..", ".git"} & {part.lower() for part in parts}


def _place(workspace: Path, name: str) -> Path:
    """The path of an editable file in the workspace; no link may lead to it."""
    if not is_place(name):
        raise EditFailed(f"the edit touches {name!r}, which is not a place for a program's file")
    path = workspace
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_symlink():
            raise EditFailed(f"the edit touches {name!r}, which a link leads to: {path.relative_to(workspace)}")
    if path.exists() and not path.is_file():
        raise EditFailed(f"the edit touches {name!r}, which is not a file")
    return path


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


def _content(path: Path, name: str, original: Path) -> bytes:
    """The file that git has written, if it is text and only its text has changed."""
    executable = original.exists() and _is_executable(original)
    if path.is_symlink() or not path.is_file() or _is_executable(path) != executable:
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
    return content


def _check_python(workspace: Path, changed: Mapping[str, bytes], environment: Environment) -> None:
    """Check that changed files parse, that required calls are still there, and that no further seed is fixed."""
    after = {name: content.decode() for name, content in changed.items() if name.endswith(".py")}
    try:
        for name, source in after.items():
            _check_encoding(name, source)
            parse(name, source)
        program = sources(workspace)
        missing = missing_calls({**program, **after}, environment.required_calls)
        before = {name: program[name] for name in after if name in program}
        fixed = fixed_seeds.added(before, after)
    except NotPython as wrong:
        raise EditFailed(f"the edited program is not Python: {wrong}") from wrong
    except RecursionError as deep:
        raise EditFailed("the edited program is nested too deeply to be followed") from deep
    if missing:
        calls = ", ".join(f"{name}()" for name in missing)
        raise EditFailed(f"the edited program never calls {calls}, which {environment.name} requires: keep the call")
    for site in fixed:
        raise EditFailed(f"the edit fixes a seed, {site.file}:{site.line}: {site.text}; use the one in config.json")


def _check_encoding(name: str, source: str) -> None:
    """Refuse a line such as `# coding: utf-7`, with which Python reads another program than everyone else."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
    except SyntaxError as wrong:
        raise NotPython(f"{name}:1: {wrong.msg}") from wrong
    if encoding not in ("utf-8", "utf-8-sig"):
        raise NotPython(f"{name}:1: it claims to be in {encoding}, where a program's files are in utf-8")


def diff_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The diff between two sets of texts, by name, as git writes it; empty if nothing differs.

    Raises:
        EditFailed: a text is not UTF-8, or a name is no place for a file.
    """
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not names:
        return ""
    with tempfile.TemporaryDirectory(prefix="nightshift-diff-") as scratch:
        for side, texts in (("a", before), ("b", after)):
            (Path(scratch) / side).mkdir()
            _lay_out(Path(scratch) / side, {name: texts[name] for name in names if name in texts})
        shown = _git([*DIFF], Path(scratch), b"", differ=1)
    # git names the new side of an added file twice, and the old side of a removed one.
    lines = (line for line in shown.split("\n") if not line.startswith("index "))
    return "\n".join(_two_sides(line) if line.startswith("diff --git ") else line for line in lines)


def patched(before: Mapping[str, str], diff: str, reverse: bool = False) -> dict[str, str]:
    """Texts, by name, as a diff leaves them, applied as `apply_edit` does. A file that it removes is not among them.

    `reverse`: as they were before the diff was applied.

    Raises:
        EditFailed: it does not apply, or does more than add, remove and change texts.
    """
    return dict(_patched(tuple(sorted(before.items())), diff, reverse)) if diff else dict(before)


@lru_cache(maxsize=4096)
def _patched(before: tuple[tuple[str, str], ...], diff: str, reverse: bool) -> tuple[tuple[str, str], ...]:
    readable = _readable(diff)
    with tempfile.TemporaryDirectory(prefix="nightshift-edit-") as folder:
        scratch = Path(folder)
        _lay_out(scratch, dict(before))
        command = [*GIT, "--apply", "--summary", *(["--reverse"] if reverse else [])]
        for line in _git(command, scratch, readable).splitlines():
            if not PLAIN.match(line):
                raise EditFailed(f"the edit has {line.strip()!r}: it may add, remove and change plain files")
        left = {path.relative_to(scratch).as_posix(): path for path in scratch.rglob("*") if not path.is_dir()}
        return tuple((name, _content(path, name, path).decode()) for name, path in sorted(left.items()))


def _lay_out(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        target = _place(folder, name)
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
    if done.returncode not in (0, differ):
        said = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
        raise EditFailed(f"the edit does not apply: {said}")
    return done.stdout.decode(errors="replace")


def git_environment(**more: str) -> dict[str, str]:
    """The environment of git: without the user's configuration, and without a hook's repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    # A home on a mounted volume may belong to another user, which git would refuse.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return kept | alone | trusted | more
