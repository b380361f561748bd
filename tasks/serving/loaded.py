"""A champion as a loaded MLflow model: each prediction starts its program in the sandbox, as under judgement.

`mlflow.pyfunc.load_model` imports this module and calls `_load_pyfunc` with the folder of the model. Nothing of that is
imported or unpickled here: the program answers over pipes, in a process without network that can write nothing. Every
row is the first step of an episode of its own: a recurrent policy remembers nothing from row to row.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from environments.judges import Misbehaved
from environments.judges._conversation import Conversation
from environments.judges._leaves import columns, frame_bytes
from environments.judges.control import PROTOCOL, Control
from environments.plugins import Refused
from tasks.evaluate import PipedCandidate
from tasks.sandbox import confinement, isolation, outputs
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.interpreter import interpreter_of
from tasks.sandbox.program import Program
from tasks.serving.description import FILE, Description, Rows, acted, observed
from tasks.store import workspace
from tasks.store.safe_read import open_below
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

LANES = 1000
"""Most rows of one frame."""


class CannotPredict(Exception):
    """The model cannot be loaded, or its program gave no valid answer; the message says why."""


def _load_pyfunc(path: str) -> Policy:
    """The model in a folder; MLflow calls this. CannotPredict if it is not what was certified, or cannot run here."""
    files = Path(path)
    try:
        described = Description.model_validate_json((files / FILE).read_bytes())
    except (OSError, ValidationError) as broken:
        reason = str(broken).partition("\n")[0]
        remedy = "load it with the Nightshift that wrote it"
        raise CannotPredict(f"{files / FILE} cannot be read ({reason}): {remedy}") from broken
    return Policy(files, described)


class Policy:
    """A policy of a control environment: a row of observations in, an action out. Its program runs on a private copy of
    the model's files that is laid out as a trial's directory.
    """

    def __init__(self, files: Path, described: Description) -> None:
        self._described = described
        self._judge = Control.model_validate(described.settings)
        self._seen = [leaf.leaf for leaf in described.observation]
        self._taken = [leaf.leaf for leaf in described.action]
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
        """The actions for observations, one a row. `params`: `deterministic` (the judge's mode unless stated) and
        `seed` of the policy's own draws.
        """
        asked = {"deterministic": self._judge.deterministic, "seed": 0} | (params or {})
        try:
            seen = observed(self._seen, np.asarray(model_input))
        except ValueError as wrong:
            raise CannotPredict(str(wrong)) from wrong
        lanes = min(len(seen[0]), LANES)
        hello = {
            "lanes": lanes,
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._taken],
            "protocol": PROTOCOL,
            "deterministic": [bool(asked["deterministic"])] * lanes,
            "seed": int(asked["seed"]) % 2**31,
        }
        answers = []
        with self._started() as candidate:
            talk = Conversation(candidate, self._judge.answer_seconds, self._judge.total_seconds)
            talk.greet(json.dumps(hello).encode() + b"\n", self._judge.start_seconds)
            for first in range(0, len(seen[0]), lanes):
                part = [column[first : first + lanes] for column in seen]
                answer = talk.ask(_frame(part, lanes), frame_bytes(self._taken, lanes))
                taken = [column[: len(part[0])] for column in columns(self._taken, lanes, answer)]
                answers.append(acted(self._taken, taken))
            talk.expect_silence()
        return np.concatenate(answers)

    def _config(self) -> dict[str, Any]:
        """The program's configuration, which its digest leaves out."""
        found: object = None
        if file := open_below(self.place.workspace, self.place.config.name):
            with file, suppress(ValueError, RecursionError):
                found = json.load(file)
        if isinstance(found, dict):
            return found
        raise CannotPredict("workspace/config.json of the model is missing or no JSON object: download it again")

    @contextmanager
    def _started(self) -> Iterator[PipedCandidate]:
        """Its program, started for one prediction. CannotPredict if it answers wrongly, late or not at all."""
        place, described = self.place, self._described
        command = workspace.fill(self._judge.command(), {"out": str(place.out), "device": described.device})
        own = interpreter_of(described.python)
        readable = (place.workspace, place.out, *self._readable, *confinement.visible(own))
        view = VisiblePaths(readable, (), network=False, gpu=described.device != "cpu", python=own.executable)
        with Program(
            command, cwd=place.workspace, log=place.judge_log,
            marker=f"model-{os.getpid()}-{time.monotonic_ns()}", level=self._level, view=view, limits=described.limits,
            pipes=True,
        ) as program:  # fmt: skip
            try:
                yield PipedCandidate(program, place.result)
            except (Misbehaved, ValueError) as wrong:
                program.kill()
                raise CannotPredict(f"{wrong}\n{program.tail()}".rstrip()) from wrong


def _frame(part: list[Any], lanes: int) -> bytes:
    """A frame in which each row begins an episode; lanes without a row are inactive."""
    active = np.arange(lanes) < len(part[0])
    missing = lanes - len(part[0])
    padded = (np.pad(column, [(0, missing), *[(0, 0)] * (column.ndim - 1)]) for column in part)
    return active.tobytes() + active.tobytes() + b"".join(column.tobytes() for column in padded)
