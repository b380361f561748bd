"""A certified champion as a folder that MLflow loads: its program (workspace/), checkpoint (out/) and champion.json.

`mlflow.pyfunc.load_model` imports this module and calls `_load_pyfunc` with the folder of the model. Nothing of that is
imported or unpickled here: each prediction starts the program in the sandbox, as under judgement. Every row is the
first step of an episode of its own: a recurrent policy remembers nothing from row to row.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from environments import Environment, judge_name
from environments.judges import Misbehaved
from environments.judges._playing import Leaf, frame_bytes, read_actions
from environments.judges.control import PROTOCOL, Control, Conversation
from environments.limits import Limits
from environments.plugins import Refused
from tasks.sandbox import confinement, isolation, outputs
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.interpreter import interpreter_of
from tasks.sandbox.program import Program
from tasks.store import safe_read, workspace
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.trial import Trial

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

FILE = "champion.json"
Rows = NDArray[Any]
"""The leaves of a space one after the other, each flattened."""


class NotPredictable(Exception):
    """The champion answers no rows; the message says why."""


class CannotPredict(Exception):
    """The model cannot be loaded, or its program gave no valid answer; the message says why."""


class Description(BaseModel):
    """champion.json: how the program is run, for a reader without its campaign."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    environment: str
    settings: dict[str, Any]
    """The fields of the judge."""
    limits: Limits
    device: str
    python: str = ""
    """As in environment.toml."""
    readable: tuple[str, ...]
    """Absolute paths outside that the program may read."""
    program: str
    """Digest of workspace/, without config.json."""
    checkpoint: str
    """Digest of out/."""
    observation: tuple[dict[str, Any], ...]
    """The leaves of the space, in the order of transmission."""
    action: tuple[dict[str, Any], ...]


def pack(environment: Environment, place: TrialDir, trial: Trial, to: Path) -> None:
    """Copy a trial's program and checkpoint into a folder. NotPredictable if they cannot be loaded from there."""
    for folder in (place.workspace, place.out):
        safe_read.pack_folder(folder, to)
    judge, run, packed = environment.judge, trial.runs[0], TrialDir(to)
    if run.program is None or run.checkpoint is None:
        raise NotPredictable("it left no checkpoint")
    if not isinstance(judge, Control):
        raise NotPredictable(f"the judge {judge_name(judge)} gives it no observations")
    if workspace.program_digest(packed) != run.program or outputs.checkpoint(packed.out) != run.checkpoint:
        raise NotPredictable("its files could not all be sent, or are not those that were judged")
    try:
        seen, taken = judge.spaces(environment.folder)
    except (ValueError, Misbehaved) as wrong:
        raise NotPredictable(f"its environment cannot be made here: {wrong}") from wrong
    described = Description(
        environment=environment.name, settings=judge.model_dump(mode="json"), limits=environment.limits,
        device=environment.device, python=environment.python, program=run.program, checkpoint=run.checkpoint,
        readable=tuple(path for path in environment.readable if Path(path).is_absolute()),
        observation=tuple(leaf.describe() for leaf in seen), action=tuple(map(_bounded, taken)),
    )  # fmt: skip
    write_atomic(to / FILE, described.model_dump_json(indent=2) + "\n")


def _bounded(leaf: Leaf) -> dict[str, Any]:
    bounds = {"low": leaf.low.tolist(), "high": leaf.high.tolist()}
    return {**leaf.describe(), "native": leaf.native.str, "choice": leaf.choice, **bounds}


def _leaf(
    path: str, dtype: str, shape: Sequence[int], native: str = "", choice: bool = False, low: Any = 0, high: Any = 0
) -> Leaf:
    """A leaf as it was described; the bounds of an observation do not matter."""
    own = np.dtype(native or dtype)
    return Leaf(path, (), np.dtype(dtype), tuple(shape), own, np.asarray(low, own), np.asarray(high, own), choice)


def _load_pyfunc(path: str) -> Policy:
    """The model in a folder; MLflow calls this. CannotPredict if it is not what was certified, or cannot run here."""
    file = Path(path, FILE)
    try:
        described = Description.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as broken:
        raise CannotPredict(f"{file} cannot be read: load it with the Nightshift that wrote it: {broken}") from broken
    return Policy(Path(path), described)


class Policy:
    """A policy of a control environment: a row of observations in, an action out. Its program runs on a private copy of
    the model's files that is laid out as a trial's directory.
    """

    def __init__(self, files: Path, described: Description) -> None:
        self._described, self._judge = described, Control.model_validate(described.settings)
        self._seen = [_leaf(**facts) for facts in described.observation]
        self._taken = [_leaf(**facts) for facts in described.action]
        folder = Path(tempfile.mkdtemp(prefix="nightshift-model-")).resolve()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.place = TrialDir(folder / "trial")
        for name in (self.place.workspace.name, self.place.out.name):
            if (files / name).is_dir():
                shutil.copytree(files / name, self.place.path / name, symlinks=True)
        changed = workspace.program_digest(self.place) != described.program
        if changed or outputs.checkpoint(self.place.out) != described.checkpoint:
            raise CannotPredict(f"{files} has changed since it was judged: download it again")
        here = {"out": str(self.place.out), "data": None, "resume": None, "init": None}
        write_atomic(self.place.config, json.dumps(self._config() | here))
        file_trees.open_to_all(self.place.path)
        self._readable = tuple(Path(path) for path in described.readable)
        try:
            self._level = isolation.choose("auto")
            isolation.check_given(self._level, self.place.path, self._readable)
        except Refused as wrong:
            raise CannotPredict(str(wrong)) from wrong
        if self._level == "none":  # whoever can write to a registry can have put another program there
            raise CannotPredict("no sandbox works on this machine: `nightshift doctor` says why")

    def get_raw_model(self) -> Policy:
        return self

    def predict(self, model_input: pd.DataFrame | Rows, params: dict[str, Any] | None = None) -> Rows:
        """The actions for observations, one a row, in the judge's mode; `params` has no effect."""
        rows = np.asarray(model_input)
        widths = [int(np.prod(leaf.shape)) for leaf in self._seen]
        if rows.ndim != 2 or rows.shape[1] != sum(widths) or not len(rows):
            raise CannotPredict(f"an observation is a row of {sum(widths)} numbers, got shape {rows.shape}")
        hello = {
            "lanes": len(rows), "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._taken], "protocol": PROTOCOL,
            "deterministic": [self._judge.deterministic] * len(rows), "seed": secrets.randbelow(2**31),
        }  # fmt: skip
        parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
        sent = [part.astype(leaf.dtype).tobytes() for leaf, part in zip(self._seen, parts, strict=True)]
        frame = b"\1" * len(rows) * 2 + b"".join(sent)  # each row is active, and begins an episode
        answer = self._answered(json.dumps(hello).encode() + b"\n", frame, frame_bytes(self._taken, len(rows)))
        try:
            taken = read_actions(self._taken, answer, np.ones(len(rows), np.bool_))
        except Misbehaved as wrong:
            raise CannotPredict(f"the program {wrong}") from wrong
        if len(taken) == 1 and taken[0].ndim == 1:
            return taken[0]
        return np.concatenate([column.reshape(len(rows), -1) for column in taken], axis=1)

    def _config(self) -> dict[str, Any]:
        """The program's configuration, which its digest leaves out."""
        config: object = None
        if file := safe_read.open_below(self.place.workspace, self.place.config.name):
            with file, suppress(ValueError, RecursionError):
                config = json.load(file)
        if isinstance(config, dict):
            return config
        raise CannotPredict("workspace/config.json of the model is missing or no JSON object: download it again")

    def _answered(self, hello: bytes, frame: bytes, size: int) -> bytes:
        """What its program, started for one prediction, answers. CannotPredict if that is wrong, late or nothing."""
        from tasks.evaluate import PipedCandidate  # it brings Prefect

        place, described, judge = self.place, self._described, self._judge
        command = workspace.fill(judge.command(), {"out": str(place.out), "device": described.device})
        own = interpreter_of(described.python)
        readable = (place.workspace, place.out, *self._readable, *confinement.visible(own))
        view = VisiblePaths(readable, (), network=False, gpu=described.device != "cpu", python=own.executable)
        with Program(
            command, cwd=place.workspace, log=place.judge_log,
            marker=f"model-{os.getpid()}-{time.monotonic_ns()}", level=self._level, view=view, limits=described.limits,
            pipes=True,
        ) as program:  # fmt: skip
            talk = Conversation(PipedCandidate(program, place.result), judge.answer_seconds, judge.total_seconds)
            try:
                talk.greet(hello, judge.start_seconds)
                answer = talk.ask(frame, size)
                talk.expect_silence()
            except (Misbehaved, ValueError) as wrong:
                program.kill()
                raise CannotPredict(f"{wrong}\n{program.tail()}".rstrip()) from wrong
        return answer
