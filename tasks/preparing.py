"""Preparing: run an environment's recipe, which makes the data for training and judging, once for all campaigns.

runs/.prepared/arithmetic-0123456789abcdef/     named by the hash of the recipe
    data/            for training: train.jsonl, a base model
    judge/           for the judge alone: search.jsonl, confirm.jsonl, report.jsonl
    settings.json    the recipe's settings
    prepared.json    a hash of every file, and the time that it took
runs/.prepared/arithmetic-0123456789abcdef.log, .lock, .making/     its output; held while it runs; its working folder
runs/.prepared/report-0123456789abcdef.looks.jsonl                  the uses of report questions (tasks/stats)

A recipe runs in the sandbox, without a GPU, a key, or files that its hash does not cover. With `network = true` it may
use the network, unless HF_HUB_OFFLINE is set, and read and fill the user's Hugging Face cache, without the token beside
it. The engine, programs and a judge read its output, so that is checked once, when it is made: it holds plain files
only, and each question stands in one file only. Only then does it get the final name, and is read-only. A campaign
stores a copy of prepared.json and refuses to go on with other data.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from environments import FILE, Environment
from environments.limits import Limits
from environments.plugins import Refused, explain
from environments.recipe import DATA, JUDGE, POOLS, SETTINGS, TRAIN, Recipe
from tasks.sandbox import confinement, outputs
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.isolation import check_given, working
from tasks.sandbox.program import SAID, CannotStart, NotAProgram, Program, Stopped
from tasks.system import file_trees, interrupt, orphans
from tasks.system.files import write_atomic
from tasks.system.redact import one_line

FOLDER, RECORD = ".prepared", "prepared.json"
SMALL_BYTES = 16 * 2**20
"""Files up to this size are read again to check that they have not changed; of larger ones only the size is checked."""
SHOWN = 300
"""Longest text of a recipe in a message, in characters."""
SAY_SECONDS = 15.0
"""Between two progress messages."""
CACHES = {
    "HF_HUB_CACHE": "hub", "HF_DATASETS_CACHE": "datasets", "HF_XET_CACHE": "xet", "HF_ASSETS_CACHE": "assets",
}  # fmt: skip
"""Parts of the Hugging Face cache, by the variables that name their folders."""
OFFLINE = "HF_HUB_OFFLINE"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Content:
    """A file as it was made."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Prepared:
    """The content of prepared.json."""

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


def place(environment: Environment, runs: Path) -> Path | None:
    """The folder of its recipe's output, below the directory of all campaigns; None without a recipe."""
    if environment.prepare is None:
        return None
    return runs.absolute() / FOLDER / f"{environment.name}-{environment.prepare.digest(environment.folder)}"


def laid(environment: Environment, runs: Path) -> Environment:
    """The environment with the folder of its recipe's output set; nothing is made."""
    return environment.model_copy(update={"prepared": place(environment, runs)})


def prepare(environment: Environment, runs: Path, say: Say) -> Path:
    """Run its recipe unless its output exists; the output's folder. Concurrent calls wait for each other.

    `runs` is the directory of all campaigns; `say` gets a line of progress a few times a minute. Beside a frozen
    environment the record of the output is stored, or it is `compare`d with the stored one. Raises Refused: the recipe
    failed, or its output has been changed; OSError: the machine could not start it.
    """
    final, recipe = place(environment, runs), environment.prepare
    assert final is not None and recipe is not None, f"{environment.name} has no recipe"
    if read(final) is None:
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(final.with_name(f"{final.name}.lock"))  # free once its holder is dead
        with lock.acquire(cancel_check=interrupt.check):  # type: ignore[arg-type]  # it raises
            if read(final) is None:
                _make(environment, recipe, final, say)
    note = environment.folder.parent / RECORD
    if environment.prepared and not note.is_file():
        write_atomic(note, (final / RECORD).read_bytes())
    compare(environment)
    return final


def compare(environment: Environment) -> None:
    """Compare the recipe's output with the stored record; missing output passes. Raises Refused."""
    note = environment.folder.parent / RECORD
    if environment.prepared is None or not note.is_file():
        return
    before, now = PREPARED.validate_json(note.read_bytes()), read(environment.prepared)
    if now and now.content != before.content:
        raise Refused(
            f"{environment.prepared} was made anew, and is not what {note.parent} began with (content {before.content} "
            f"then, {now.content} now): scores on other data do not compare. Put the folder back, or begin anew under "
            "another name"
        )


def _make(environment: Environment, recipe: Recipe, final: Path, say: Say) -> None:
    """Run the recipe in a working folder, check its output, and move that to its final name."""
    staging, log = (final.with_name(f"{final.name}.{kind}") for kind in ("making", "log"))
    marker = f"prepare-{hashlib.sha256(str(staging).encode()).hexdigest()[:16]}"
    orphans.end(marker)  # left by an engine that was killed
    file_trees.remove(staging)
    made, texts = staging / "made", staging / "texts"
    for path, name in recipe.texts(environment.folder):
        (texts / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, texts / name)
    made.mkdir()
    settings = json.dumps(recipe.settings, indent=2) + "\n"
    (made / SETTINGS).write_text(settings)
    file_trees.open_to_all(staging)  # whatever the umask: it may run as another user
    say(f"{environment.name}: {recipe.program} prepares it, once for all campaigns, in {recipe.seconds:g} s at most")
    try:
        seconds = _run(recipe, environment.limits, staging, final.parents[1], log, marker, say)
        _tidy(made, settings)
        files, questions = contents(made), check_questions(made)
    except Refused as wrong:
        file_trees.remove(staging)
        first, _, rest = str(wrong).partition("\n")
        raise Refused(f"{environment.folder / FILE}: [prepare] {first}. Its log is {log}\n{rest}".rstrip()) from wrong
    lines = [f"{name} {content.bytes} {content.sha256}\n" for name, content in sorted(files.items())]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    record = Prepared(digest, files, questions, round(seconds, 3))
    (made / RECORD).write_bytes(PREPARED.dump_json(record, indent=2) + b"\n")
    for path in (made, *made.rglob("*")):  # the engine's, and read-only; the top folder once it is moved
        os.chown(path, os.geteuid(), os.getegid())
        path.chmod(0o755 if path == made else 0o555 if path.is_dir() else 0o444)
    made.rename(final)
    final.chmod(0o555)
    file_trees.remove(staging)
    say(f"{environment.name}: prepared, {in_words(record)}")


def _run(recipe: Recipe, limits: Limits, staging: Path, runs: Path, log: Path, marker: str, say: Say) -> float:
    """Run a recipe to its end; the seconds that it took.

    It reads copies of its files in texts/ of `staging` and writes made/; it must not see `runs`, the directory of all
    campaigns. The recipe's disk_gb replaces the environment's limits of size. Raises Refused: it failed, took too long,
    wrote too much, or its settings name a path that no program may read; OSError: the machine could not start it.
    """
    texts, made = staging / "texts", staging / "made"
    # With the network, it runs as the user, who owns the cache.
    level = next(level for level in working() if not (recipe.network and confinement.owner(level) is not None))
    if level == "none" != working()[0]:
        raise Refused(
            "as root, a recipe with network = true needs Landlock, which this kernel lacks: run it as another user, or "
            "fetch what it needs first and set prepare.network = false"
        )
    given = tuple(paths_in(recipe.settings))
    check_given(level, runs, given)
    caches = shared(os.environ) if recipe.network else {}
    for cache in caches.values():
        with suppress(OSError):  # one that is read-only may have what is asked for
            cache.mkdir(parents=True, exist_ok=True)
    caches = {name: cache for name, cache in caches.items() if cache.is_dir()}
    network = recipe.network and os.environ.get(OFFLINE, "").upper() not in ("1", "ON", "YES", "TRUE")
    confinement.give(made, level)
    variables = [f"{OFFLINE}={0 if network else 1}", *(f"{name}={path}" for name, path in caches.items())]
    command = ["env", *variables, sys.executable, recipe.program, str(made)]
    view = VisiblePaths((texts, *given), (made,), network, shared=tuple(caches.values()))
    roomy = {"file_gb": max(recipe.disk_gb, limits.file_gb), "out_gb": recipe.disk_gb, "out_files": 2**31}
    limits = limits.model_copy(update=roomy)
    try:
        with Program(command, cwd=texts, log=log, marker=marker, level=level, view=view, limits=limits) as program:
            reason = _fault(program, recipe, made, say)
    except (CannotStart, NotAProgram) as fault:
        raise OSError(f"{recipe.program} cannot be started: {fault}") from fault
    if reason:
        raise Refused(f"{recipe.program}: {reason}\n{program.tail()}".rstrip())
    return time.monotonic() - program.started


def _fault(program: Program, recipe: Recipe, made: Path, say: Say) -> str | None:
    """Wait for its end; why it failed, or None."""
    reason = None
    try:
        while (status := program.wait(min(SAY_SECONDS, recipe.seconds))) is None:
            if (passed := time.monotonic() - program.started) > recipe.seconds:
                return f"was not done within {recipe.seconds:g} s: raise [prepare] seconds"
            say(f"{recipe.program}, {passed:.0f} s: {program.tail().rpartition(SAID)[2]}")
        if status:
            return program.describe(status)
    except Stopped as stopped:
        reason = str(stopped)
    if outputs.excess(made, program.limits):
        return f"wrote more than {recipe.disk_gb:g} GiB: raise [prepare] disk_gb"
    return reason


def paths_in(settings: object) -> Iterator[Path]:
    """Existing absolute paths in the settings, such as a model's."""
    if isinstance(settings, Mapping | list | tuple):
        for value in settings.values() if isinstance(settings, Mapping) else settings:
            yield from paths_in(value)
    elif isinstance(settings, str) and settings.startswith("/") and os.path.exists(settings):  # noqa: PTH110 (any text)
        yield Path(settings)


def shared(variables: Mapping[str, str]) -> dict[str, Path]:
    """The folders of the user's Hugging Face cache, by the variable of each."""
    above = variables.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(variables.get("HF_HOME") or Path(above) / "huggingface")
    folders = {name: Path(variables.get(name) or cache / part) for name, part in CACHES.items()}
    return {name: path.expanduser().absolute() for name, path in folders.items()}


def in_words(made: Prepared) -> str:
    """A line on the output and the time that it took."""
    counts = ", ".join(f"{count} {name}" for name, count in made.questions.items())
    what = f"questions {counts}; " if counts else ""
    return f"{what}{made.bytes / 2**20:.1f} MiB in {made.seconds:.0f} s, content {made.content}"


def _tidy(made: Path, settings: str) -> None:
    """Remove what is not part of a recipe's output. Raises Refused: something stands where it does not belong."""
    file_trees.open_to_all(made)
    for path in [*made.rglob(".*")]:  # hidden files, in which downloads keep timestamps
        file_trees.remove(path)
    for path in made.iterdir():
        if path.name not in (DATA, JUDGE, SETTINGS):
            name = one_line(path.name, SHOWN)
            raise Refused(f"{name} stands beside {DATA} and {JUDGE}: write it into one of them, or remove it")
    file_trees.remove(made / SETTINGS)  # the recipe may have replaced it by anything
    (made / SETTINGS).write_text(settings)


def report_pool(environment: Environment) -> Path | None:
    """The prepared folder with its report questions, which wear out; None if they are drawn anew for each use."""
    made = read(environment.prepared) if environment.prepared else None
    return environment.prepared if made and made.questions.get("report") else None


def read(place: Path) -> Prepared | None:
    """The record of a folder; None without a folder. Refused when it is unreadable, or a file has changed."""
    if not place.exists():
        return None
    try:
        made = PREPARED.validate_json((place / RECORD).read_bytes())
    except (OSError, ValidationError) as broken:
        raise _changed(place / RECORD, place) from broken
    for name, content in made.files.items():
        path = place / name
        is_same = path.is_file() and path.stat().st_size == content.bytes
        if not is_same or (content.bytes <= SMALL_BYTES and _sha256(path) != content.sha256):
            raise _changed(path, place)
    return made


def _changed(path: Path, place: Path) -> Refused:
    return Refused(f"{path} is not what was made: `chmod -R u+w {place}; rm -r {place}`, and it is made anew")


def contents(folder: Path) -> dict[str, Content]:
    """Every file of `data` and `judge` below the folder. Refused when one is missing, or an entry is no plain file."""
    files = dict[str, Content]()
    for name in (DATA, JUDGE):
        if (folder / name).is_symlink() or not (folder / name).is_dir():
            raise Refused(f"there is no folder {name}: a recipe writes {DATA} and {JUDGE} into the folder that it gets")
        for path in sorted((folder / name).rglob("*")):
            inside, status = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not inside.isprintable():
                raise Refused(
                    f"{one_line(inside, SHOWN)} is no plain file with one plain name: save a copy of what is meant"
                )
            interrupt.check()
            files[inside] = Content(status.st_size, _sha256(path))
    return files


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Question(BaseModel, strict=True, allow_inf_nan=False):
    """A line of a file of questions; other keys are for the reward."""

    id: Annotated[str, Field(pattern=r"\S")]
    question: Annotated[str, Field(pattern=r"\S")]
    answer: str | int | float


def check_questions(folder: Path) -> dict[str, int]:
    """The number of questions in each file. Refused: one is none or stands in two places, or a pool is missing."""
    paths = [folder / (DATA if name == TRAIN else JUDGE) / f"{name}.jsonl" for name in (TRAIN, *POOLS)]
    missing = [path for path in paths[1:] if not path.is_file()]
    if missing and len(missing) < len(POOLS):
        raise Refused(f"{JUDGE}/{missing[0].name} is missing: the judge asks from {', '.join(POOLS)}")
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
                    raise Refused(
                        f"{where}: {one_line(what, SHOWN)} stands in {seen[key]} already: each one may stand once"
                    )
                seen[key] = path.name
        if not counts[path.stem]:
            raise Refused(f"{path.parent.name}/{path.name} has no question")
    return counts


def _questions(path: Path) -> Iterator[tuple[str, Question]]:
    """Each line of a file, checked, with where it stands."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path.parent.name}/{path.name}, line {number}"
            try:
                yield where, Question.model_validate_json(line)
            except ValidationError as wrong:
                raise Refused(one_line(str(explain(wrong, where)), SHOWN)) from wrong
