"""The end of a training: its weights are turned into a model, and what is large is deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from prime_rl_parts import Failed, adapter
from prime_rl_parts.reasons import LOG_BYTES, read
from prime_rl_parts.run import Run


def weights(broadcast: Path) -> list[Path]:
    """The files of a broadcast; empty if it is incomplete: STABLE is written last."""
    files = [path for path in broadcast.iterdir() if ".safetensors" in path.suffixes]
    return files if (broadcast / "STABLE").exists() else []


def assemble(run: Run, reached: int) -> str:
    """Make out/model from the last complete broadcast and the base model's configuration and tokenizer.

    What an adapter was trained beside comes from the base model, with the adapter added. Returns what to know of it.

    Raises Failed: there is no broadcast after step 0.
    """
    broadcasts = ((int(path.name[5:]), weights(path)) for path in run.folder.glob("broadcasts/step_*"))
    step, files = max((one for one in broadcasts if all(one)), default=(0, []))
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
    note = ""
    if is_adapted:
        kept = adapter.merge(run.base, files[0].parent, making)
        run.note(adapter_kept=round(kept, 4))
        note = adapter.rounded(kept)
    else:
        for path in files:  # moved: the engine refuses checkpoints with hard links
            path.rename(making / path.name)
    making.rename(model)
    run.note(scored_step=step, reached_step=reached)
    return note


def tidy(run: Run) -> None:
    """Keep the end of each log, and delete large files."""
    for name in ("run/rollouts", "run/broadcasts", "run/checkpoints", "converted"):
        shutil.rmtree(run.home / name, ignore_errors=True)
    run.questions.unlink(missing_ok=True)
    for path in run.home.rglob("*.log"):
        if not path.is_symlink() and path.stat().st_size > LOG_BYTES:
            path.write_text(read(path))
    (run.folder / "logs/latest").unlink(missing_ok=True)
