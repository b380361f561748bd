"""Preparing: run an environment's recipe, which makes the data for training and judging, once for all campaigns.

runs/.prepared/arithmetic-0123456789abcdef/     named by the hash of the recipe
    data/            for training: train.jsonl, a base model
    judge/           for the judge alone: search.jsonl, confirm.jsonl, report.jsonl
    settings.json    the recipe's settings
    prepared.json    the recipe's hash, time, and a hash of every file (tasks/recipes/output.py)
runs/.prepared/arithmetic-0123456789abcdef.log, .lock, .making/     its output; held while it runs; its working folder
runs/.prepared/report-0123456789abcdef.looks.jsonl                  the uses of report questions (tasks/stats)

Only complete and checked output gets the final name, and is read-only. A campaign stores a copy of prepared.json and
refuses to go on with other data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from environments import FILE, Environment
from environments.plugins import Refused
from environments.recipe import DATA, JUDGE, SETTINGS, Recipe
from tasks.recipes import output
from tasks.recipes.output import PREPARED, Content, Prepared, Unfit
from tasks.system import file_trees, interrupt, orphans
from tasks.system.files import write_atomic

if TYPE_CHECKING:  # what runs a recipe is not loaded to read its output
    from tasks.recipes.execution import Say

FOLDER = ".prepared"
OTHER_MAKES = ("kfd", "dxg")
"""Devices below /dev of AMD's and WSL's GPUs, which nvidia-smi does not list."""


def place(environment: Environment, runs: Path) -> Path | None:
    """The folder of its recipe's output, below the directory of all campaigns; None without a recipe."""
    if environment.prepare is None:
        return None
    digest = environment.prepare.digest(environment.prepare.texts(environment.folder))
    return runs.absolute() / FOLDER / f"{environment.name}-{digest}"


def laid(environment: Environment, runs: Path) -> Environment:
    """The environment with the folder of its recipe's output set; nothing is made."""
    return environment.model_copy(update={"prepared": place(environment, runs)})


def prepare(environment: Environment, runs: Path, say: Say) -> Path:
    """Run its recipe unless its output exists; the output's folder. Concurrent calls wait for each other.

    `runs` is the directory of all campaigns; `say` gets a line of progress a few times a minute. Raises Refused: the
    recipe failed, or its output has been changed; OSError: the machine could not start it.
    """
    final, recipe = place(environment, runs), environment.prepare
    assert final is not None and recipe is not None, f"{environment.name} has no recipe"
    if output.read(final):
        return final
    check_disk(environment, runs)
    final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(final.with_name(f"{final.name}.lock"))  # free once its holder is dead
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"{environment.name}: waiting for another process that prepares it")
        while not lock.is_locked:
            interrupt.check()
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0.2)
    try:
        if output.read(final) is None:
            _make(environment, recipe, final, say)
    finally:
        lock.release()
    return final


def check_disk(environment: Environment, runs: Path) -> None:
    """Check that the disk has room for the recipe's output, or that existing output is unchanged. Raises Refused."""
    final, recipe = place(environment, runs), environment.prepare
    if final is None or recipe is None or output.read(final):
        return
    there = next(path for path in final.parents if path.exists())
    if (free := shutil.disk_usage(there).free / 2**30) < recipe.disk_gb:
        needs = f"{environment.name} needs {recipe.disk_gb:g} GiB to be prepared ([prepare] disk_gb)"
        raise Refused(f"{needs}, and the disk of {there} has {free:.1f} GiB free: make room there")


def check_gpus(environment: Environment, home: Path) -> None:
    """Check that there is a GPU for an environment that needs one. Raises Refused."""
    if environment.device != "cuda":
        return
    from tasks.machine.slots import slots_of

    other_make = any(Path("/dev", name).exists() for name in OTHER_MAKES)
    if not (other_make or slots_of(environment, home).have_gpus):
        fact = f"{environment.name} has device = 'cuda', but this machine has no usable GPU"
        raise Refused(f"{fact}: see `nightshift doctor`")


def hold_to(environment: Environment) -> None:
    """Store the record of the recipe's output beside a frozen environment, or `compare` it with the stored one."""
    made = environment.prepared and output.read(environment.prepared)
    note = environment.folder.parent / output.FILE
    if made and not note.is_file():
        write_atomic(note, PREPARED.dump_json(made, indent=2).decode() + "\n")
    compare(environment)


def compare(environment: Environment) -> None:
    """Compare the recipe's output with the record stored at the freeze; missing output passes. Raises Refused."""
    note = environment.folder.parent / output.FILE
    if environment.prepared is None or not note.is_file():
        return
    before, now = PREPARED.validate_json(note.read_bytes()), output.read(environment.prepared)
    if now and now.content != before.content:
        raise Refused(
            f"{environment.prepared} was made anew, and is not what {note.parent} began with (content {before.content} "
            f"then, {now.content} now): scores on other data do not compare. Put the folder back, or begin anew under "
            "another name"
        )


def _make(environment: Environment, recipe: Recipe, final: Path, say: Say) -> None:
    """Run the recipe in a working folder, check its output, and move that to its final name."""
    from tasks.recipes import execution

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
        seconds = execution.run(recipe, environment.limits, texts, made, final.parents[1], log, marker, say)
        files, questions = _checked(made, settings)
    except Unfit as wrong:
        file_trees.remove(staging)
        first, _, rest = str(wrong).partition("\n")
        raise Refused(f"{environment.folder / FILE}: [prepare] {first}. Its log is {log}\n{rest}".rstrip()) from wrong
    record = Prepared(
        recipe=final.name.rpartition("-")[2], content=output.digest(files), files=files, questions=questions,
        seconds=round(seconds, 3),
    )  # fmt: skip
    (made / output.FILE).write_bytes(PREPARED.dump_json(record, indent=2) + b"\n")
    for path in (made, *made.rglob("*")):  # the engine's, and read-only; the top folder once it is moved
        os.chown(path, os.geteuid(), os.getegid())
        path.chmod(0o755 if path == made else 0o555 if path.is_dir() else 0o444)
    made.rename(final)
    final.chmod(0o555)
    file_trees.remove(staging)
    say(f"{environment.name}: prepared, {in_words(record)}")


def in_words(made: Prepared) -> str:
    """A line on the output and the time that it took."""
    counts = ", ".join(f"{count} {name}" for name, count in made.questions.items())
    what = f"questions {counts}; " if counts else ""
    return f"{what}{made.bytes / 2**20:.1f} MiB in {made.seconds:.0f} s, content {made.content}"


def _checked(made: Path, settings: str) -> tuple[dict[str, Content], dict[str, int]]:
    """Check a recipe's output: every file, and the number of questions. Unfit when it cannot be used."""
    file_trees.open_to_all(made)
    for path in [*made.rglob(".*")]:  # hidden files, in which downloads keep timestamps
        file_trees.remove(path)
    for path in made.iterdir():
        if path.name not in (DATA, JUDGE, SETTINGS):
            name = output.shown(path.name)
            raise Unfit(f"{name} stands beside {DATA} and {JUDGE}: write it into one of them, or remove it")
    file_trees.remove(made / SETTINGS)  # the recipe may have replaced it by anything
    (made / SETTINGS).write_text(settings)
    return output.contents(made), output.check_questions(made)


def report_pool(environment: Environment) -> Path | None:
    """The prepared folder with its report questions, which wear out; None if they are drawn anew for each use."""
    made = output.read(environment.prepared) if environment.prepared else None
    return environment.prepared if made and made.questions.get("report") else None
