"""Pack a champion: its program, configuration and checkpoint with champion.json, as a folder that can be loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from environments import Environment
from environments.judges import Misbehaved
from environments.judges.control import Control
from environments.judges.text import BASE, MODEL, Text
from environments.recipe import DATA
from tasks.recipes import output
from tasks.sandbox import outputs
from tasks.serving.description import FILE, TOKENIZER, Description, LeafDescription
from tasks.store import safe_read, workspace
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.trial import Trial


class NotPredictable(Exception):
    """The champion answers no rows; the message says why."""


def pack(environment: Environment, place: TrialDir, trial: Trial, to: Path) -> Description:
    """Copy a trial's program and checkpoint into a folder, with their description.

    Raises:
        NotPredictable: what is in the folder cannot be loaded.
    """
    for folder in (place.workspace, place.out):
        safe_read.pack_folder(folder, to)
    described = _describe(environment, trial)
    packed = TrialDir(to)
    if workspace.program_digest(packed) != described.program or outputs.checkpoint(packed.out) != described.checkpoint:
        raise NotPredictable("its files could not all be sent, or are not those that were judged")
    if described.judge == "text":
        _pack_tokenizer(environment, to / TOKENIZER)
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
    judge = environment.judge
    if isinstance(judge, Control):
        return Description(judge="control", **facts, **_spaces(judge, environment.folder))
    if isinstance(judge, Text) and (judge.backend != "openai" or judge.endpoint.model == MODEL):
        return Description(judge="text", **facts)
    asked = "an endpoint of others" if isinstance(judge, Text) else "a command"
    raise NotPredictable(f"it is judged by {asked}, and answers no rows")


def _spaces(judge: Control, folder: Path) -> dict[str, Any]:
    """The spaces of the environment, which all sources share."""
    try:
        described = (tuple(map(LeafDescription.of, leaves)) for leaves in judge.spaces(folder))
        return dict(zip(("observation", "action"), described, strict=True))
    except (ValueError, Misbehaved) as wrong:
        raise NotPredictable(f"its environment cannot be made here: {wrong}") from wrong


def _pack_tokenizer(environment: Environment, to: Path) -> None:
    """Copy the base model's tokenizer, without weights and code, if the judge used it."""
    base = environment.prepared / DATA / BASE if environment.prepared else None
    if base is None or not base.is_dir():
        return
    for path in sorted(base.iterdir()):
        if path.is_file() and path.suffix not in (*output.CODE, output.WEIGHTS):
            to.mkdir(exist_ok=True)
            shutil.copyfile(path, to / path.name)
