"""The end of a training: kill its processes, turn its weights into a model, shorten its logs."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from prime_rl_parts import Failed, adapter
from prime_rl_parts.reasons import LOG_BYTES, read
from prime_rl_parts.run import MADE_AT, Run

SWEEP_SECONDS = 20.0
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphaned descendants become this process's children."""


def adopt() -> None:
    """Keep all descendants below this process, so that `sweep` finds them."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)


def marker_of(pid: int) -> str:
    """The marker of a process; empty if it has none or belongs to another user."""
    with suppress(OSError):
        found = re.search(rb"(?:^|\0)PRL_RUN_ID=([^\0]*)", Path(f"/proc/{pid}/environ").read_bytes())
        return found[1].decode(errors="replace") if found else ""
    return ""


def alive(marker: str) -> list[int]:
    """The processes with the marker, and all descendants of this one, in any session."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(path.parent.name)] = int(parent)
    found = [os.getpid()]
    for above in found:
        found += [pid for pid, parent in parents.items() if parent == above]
    return list({*found[1:], *(pid for pid in parents if marker_of(pid) == marker)})


def sweep(marker: str) -> None:
    """Kill all of them, until there is none."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while left := alive(marker):
        if time.monotonic() > deadline:
            raise Failed(f"GPU memory is taken: processes {left[:4]} survive SIGKILL", retry=True)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def weights(broadcast: Path) -> list[Path]:
    """The files of a broadcast; empty if it is incomplete: STABLE is written last."""
    files = [path for path in broadcast.iterdir() if ".safetensors" in path.suffixes]
    return files if (broadcast / "STABLE").exists() else []


def assemble(run: Run, reached: int) -> str:
    """Make out/model from the last complete broadcast and the base model's configuration and tokenizer.

    Returns what to know of it, or nothing.

    What an adapter was trained beside comes from the base model too, with the adapter added.

    Raises:
        Failed: there is no broadcast after step 0.
    """
    found = ((int(path.name[5:]), weights(path)) for path in run.folder.glob("broadcasts/step_*"))
    step, files = max((one for one in found if all(one)), default=(0, []))
    if not files:
        raise Failed(f"left nothing to score: no step's weights were handed on; it came to step {reached}")
    model = Path(run.config["out"]) / "model"
    making = model.with_name(".model")
    making.mkdir()
    is_adapted = (files[0].parent / adapter.CONFIG).exists()
    for path in run.base.iterdir():
        is_index = ".index." in path.name  # of the base model's files, which adapted weights are written into again
        if path.suffix in (".json", ".txt", ".model", ".jinja", ".tiktoken") and (is_adapted or not is_index):
            shutil.copyfile(path, making / path.name)
    if is_adapted:
        kept = adapter.merge(run.base, files[0].parent, making)
        run.note(adapter_kept=round(kept, 4))
    else:
        kept = 1.0
        for path in files:  # moved: the engine refuses checkpoints with hard links
            path.rename(making / path.name)
    making.rename(model)
    run.note(scored_step=step, reached_step=reached)
    return adapter.rounded(kept)


def tidy(run: Run) -> None:
    """Keep the end of each log, and delete large files."""
    for name in ("run/rollouts", "run/broadcasts", "run/checkpoints", "converted"):
        shutil.rmtree(run.home / name, ignore_errors=True)
    if run.settings.keep_cache and run.cache.is_dir():
        (run.cache / MADE_AT).write_text(f"{run.cache}\n")
        if run.cache != run.kept:
            shutil.copytree(run.cache, run.kept, symlinks=True)
    if run.cache != run.kept or not run.settings.keep_cache:
        shutil.rmtree(run.cache, ignore_errors=True)
    run.questions.unlink(missing_ok=True)
    for path in run.home.rglob("*.log"):
        if not path.is_symlink() and path.stat().st_size > LOG_BYTES:
            path.write_text(read(path))
    (run.folder / "logs/latest").unlink(missing_ok=True)
