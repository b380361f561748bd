"""Pack a champion: its program, configuration and checkpoint with champion.json, as a folder that can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from environments import Environment
from environments.judges import Misbehaved
from environments.judges.control import Control
from environments.judges.text import Text
from tasks.sandbox import outputs
from tasks.serving.description import FILE, Description, LeafDescription
from tasks.store import safe_read, workspace
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.trial import Trial


class NotPredictable(Exception):
    """The champion answers no rows; the message says why."""


def pack(environment: Environment, place: TrialDir, trial: Trial, to: Path) -> Description:
    """Copy a trial's program and checkpoint into a folder. NotPredictable if they cannot be loaded from there."""
    for folder in (place.workspace, place.out):
        safe_read.pack_folder(folder, to)
    described = _describe(environment, trial)
    packed = TrialDir(to)
    if workspace.program_digest(packed) != described.program or outputs.checkpoint(packed.out) != described.checkpoint:
        raise NotPredictable("its files could not all be sent, or are not those that were judged")
    write_atomic(to / FILE, described.model_dump_json(indent=2) + "\n")
    return described


def _describe(environment: Environment, trial: Trial) -> Description:
    run = trial.runs[0]
    if run.program is None or run.checkpoint is None:
        raise NotPredictable("it left no checkpoint")
    facts: dict[str, Any] = {
        "environment": environment.name,
        "metric": environment.metric,
        "settings": environment.judge.model_dump(mode="json"),
        "limits": environment.limits,
        "device": environment.device,
        "python": environment.python,
        "readable": tuple(path for path in environment.readable if Path(path).is_absolute()),
        "program": run.program,
        "checkpoint": run.checkpoint,
    }
    if isinstance(environment.judge, Control):
        return Description(**facts, **_spaces(environment.judge, environment.folder))
    is_text = isinstance(environment.judge, Text)
    raise NotPredictable(
        f"it is {'a language model, which its own libraries load' if is_text else 'judged by a command'}"
    )


def _spaces(judge: Control, folder: Path) -> dict[str, Any]:
    """The spaces of the environment, which all sources share."""
    try:
        described = (tuple(map(LeafDescription.of, leaves)) for leaves in judge.spaces(folder))
        return dict(zip(("observation", "action"), described, strict=True))
    except (ValueError, Misbehaved) as wrong:
        raise NotPredictable(f"its environment cannot be made here: {wrong}") from wrong
