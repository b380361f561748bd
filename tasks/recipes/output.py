"""A recipe's output: whether it can be used, what it holds, and whether it has changed.

A recipe runs in the sandbox, but the engine, programs and a judge read its output. So the output is checked once, when
it is made: it holds plain files only, and each question stands in one file only. The result is stored in prepared.json,
with a hash of every file.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from environments.plugins import Refused, explain
from environments.recipe import DATA, JUDGE, POOLS, TRAIN
from tasks.system import interrupt
from tasks.system.redact import capped, clean

FILE = "prepared.json"
LINE_BYTES = 2**20
"""Longest question, in bytes."""
SMALL_BYTES = 16 * 2**20
"""Files up to this size are read again to check that they have not changed; of larger ones only the size is checked."""
SHOWN = 300
"""Longest text of a recipe in a message, in characters."""


class Unfit(Exception):
    """A recipe's output cannot be used; the message says which file, and why."""


@dataclass(frozen=True)
class Content:
    """A file as it was made."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Prepared:
    """The content of prepared.json."""

    recipe: str
    """The digest of the recipe (environments/recipe.py)."""
    content: str
    """Digest of all files, 16 hexadecimal digits: equal for the same questions and base model."""
    files: dict[str, Content]
    """By path relative to the folder."""
    questions: dict[str, int]
    """Number of questions in train, search, confirm and report, for the files that exist."""
    seconds: float
    """Time that the recipe took."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


PREPARED = TypeAdapter(Prepared)


def read(place: Path) -> Prepared | None:
    """The record of a folder; None without a folder. Refused when it is unreadable, or a file has changed."""
    if not place.exists():
        return None
    try:
        made = PREPARED.validate_json((place / FILE).read_bytes())
    except (OSError, ValidationError) as broken:
        raise _changed(place / FILE, place) from broken
    for name, content in made.files.items():
        path = place / name
        is_same = path.is_file() and path.stat().st_size == content.bytes
        if not is_same or (content.bytes <= SMALL_BYTES and _sha256(path) != content.sha256):
            raise _changed(path, place)
    return made


def _changed(path: Path, place: Path) -> Refused:
    return Refused(f"{path} is not what was made: `chmod -R u+w {place}; rm -r {place}`, and it is made anew")


def contents(folder: Path) -> dict[str, Content]:
    """Every file of `data` and `judge` below the folder. Unfit when one is missing, or an entry is no plain file."""
    files = dict[str, Content]()
    for name in (DATA, JUDGE):
        if (folder / name).is_symlink() or not (folder / name).is_dir():
            raise Unfit(f"there is no folder {name}: a recipe writes {DATA} and {JUDGE} into the folder that it gets")
        for path in sorted((folder / name).rglob("*")):
            inside, status = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not inside.isprintable():
                raise Unfit(f"{shown(inside)} is no plain file with one plain name: save a copy of what is meant")
            interrupt.check()
            files[inside] = Content(status.st_size, _sha256(path))
    return files


def digest(files: Mapping[str, Content]) -> str:
    """The digest of a folder's content."""
    lines = [f"{name} {content.bytes} {content.sha256}\n" for name, content in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Question(BaseModel):
    """A line of a file of questions; other keys are for the reward."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    id: Annotated[str, Field(pattern=r"\S")]
    question: Annotated[str, Field(pattern=r"\S")]
    answer: str | int | float


def check_questions(folder: Path) -> dict[str, int]:
    """The number of questions in each file. Unfit: one is none or stands in two places, or a pool is missing."""
    paths = [folder / (DATA if name == TRAIN else JUDGE) / f"{name}.jsonl" for name in (TRAIN, *POOLS)]
    missing = [path for path in paths[1:] if not path.is_file()]
    if missing and len(missing) < len(POOLS):
        raise Unfit(f"{JUDGE}/{missing[0].name} is missing: the judge asks from {', '.join(POOLS)}")
    seen: dict[bytes, str] = {}
    counts: dict[str, int] = {}
    for path in filter(Path.is_file, paths):
        counts[path.stem] = 0
        for where, question in _questions(path):
            counts[path.stem] += 1
            interrupt.check()
            # The identity is the recipe's own; the same words under two of them are one question all the same.
            for what in (f"id {question.id}", f"question {' '.join(question.question.split())}"):
                key = hashlib.sha256(what.encode()).digest()
                if key in seen:
                    raise Unfit(f"{where}: {shown(what)} stands in {seen[key]} already: each one may stand once")
                seen[key] = path.name
        if not counts[path.stem]:
            raise Unfit(f"{path.parent.name}/{path.name} has no question")
    return counts


def _questions(path: Path) -> Iterator[tuple[str, Question]]:
    """Each line of a file, checked, with where it stands."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, LINE_BYTES + 1), b""), 1):
            where = f"{path.parent.name}/{path.name}, line {number}"
            if len(line) > LINE_BYTES:
                raise Unfit(f"{where} is longer than {LINE_BYTES} bytes")
            try:
                if line.strip():
                    yield where, Question.model_validate_json(line)
            except ValidationError as wrong:
                raise Unfit(shown(str(explain(wrong, where)))) from wrong


def shown(text: str) -> str:
    """A recipe's text, safe to show."""
    return capped(" ".join(clean(text)), SHOWN)
