"""A certified champion as a folder that MLflow loads: its program (workspace/), checkpoint (out/) and champion.json.

`mlflow.pyfunc.load_model` imports this module and calls `_load_pyfunc` with the folder of the model. Nothing of that is
imported or unpickled here: each prediction starts the program in the sandbox, as under judgement. Every row is the
first step of an episode of its own: a recurrent policy remembers nothing from row to row.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, PrivateAttr

from environments import Environment, plugins
from environments.judges import Candidate, Exam, Misbehaved
from environments.judges._playing import Leaf, frame_bytes, read_actions
from environments.judges.control import Control, Conversation
from environments.limits import Limits
from environments.plugins import Refused
from environments.score import Score
from tasks.sandbox import isolation, outputs
from tasks.store import safe_read, workspace
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.trial import Run, Trial

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

FILE = "champion.json"
Rows = NDArray[Any]
"""The leaves of a space one after the other, each flattened."""


class Description(BaseModel, frozen=True, extra="ignore", ser_json_inf_nan="constants"):
    """champion.json: how the program is run, for a reader without its campaign."""

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


def pack(environment: Environment, place: TrialDir, trial: Trial, to: Path) -> str:
    """Copy a trial's program and checkpoint into a folder; why they cannot be loaded from there, empty if they can."""
    for folder in (place.workspace, place.out):
        safe_read.pack_folder(folder, to)
    judge, run, packed = environment.judge, trial.runs[0], TrialDir(to)
    if run.program is None or run.checkpoint is None:
        return "it left no checkpoint"
    if not isinstance(judge, Control):
        return f"the judge {plugins.name_of(judge)} gives it no observations"
    if workspace.program_digest(packed) != run.program or outputs.checkpoint(packed.out) != run.checkpoint:
        return "its files could not all be sent, or are not those that were judged"
    try:
        seen, taken = judge.spaces(environment.folder)
    except Misbehaved as wrong:
        return f"its environment cannot be made here: {wrong}"
    described = Description(
        environment=environment.name, settings=judge.model_dump(mode="json"), limits=environment.limits,
        device=environment.device, python=environment.python, program=run.program, checkpoint=run.checkpoint,
        readable=tuple(path for path in environment.readable if Path(path).is_absolute()),
        observation=tuple(leaf.describe() for leaf in seen), action=tuple(map(_bounded, taken)),
    )  # fmt: skip
    write_atomic(to / FILE, described.model_dump_json(indent=2) + "\n")
    return ""


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
    """The model in a folder; MLflow calls this. Refused if it is not what was certified, or cannot run here."""
    return Policy(Path(path), Description.model_validate_json(Path(path, FILE).read_bytes()))


class Policy:
    """A policy of a control environment: a row of observations in, an action out. Its program runs on a private copy of
    the model's files that is laid out as a trial's directory.
    """

    def __init__(self, files: Path, described: Description) -> None:
        from tasks.evaluate import changed_since  # it brings Prefect

        folder = Path(tempfile.mkdtemp(prefix="nightshift-model-")).resolve()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.place = TrialDir(folder / "trial")
        for name in (self.place.workspace.name, self.place.out.name):
            if (files / name).is_dir():
                shutil.copytree(files / name, self.place.path / name, symlinks=True)
        self._run = Run("", 0, 0.0, "finished", program=described.program, checkpoint=described.checkpoint)
        if changed_since(self.place, self._run):
            raise Refused(f"{files} has changed since it was judged: download it again")
        file_trees.open_to_all(self.place.path)
        self._judge = _Answers.model_validate(described.settings)
        self._judge._seen = [_leaf(**facts) for facts in described.observation]
        self._judge._taken = [_leaf(**facts) for facts in described.action]
        self._environment = Environment(
            name=described.environment, folder=files, metric="none", direction="maximize", budget_seconds=1,
            trainer="command", judge=self._judge, limits=described.limits, device=described.device,
            python=described.python, readable=described.readable,
        )  # fmt: skip
        level = isolation.choose("auto")
        isolation.check_given(level, self.place.path, map(Path, described.readable))
        if level == "none":  # whoever can write to a registry can have put another program there
            raise Refused("no sandbox works on this machine: `nightshift doctor` says why")
        self._isolation = isolation.Isolation(level)
        self._turn = threading.Lock()  # a server calls it in several threads

    def predict(self, model_input: pd.DataFrame | Rows, params: dict[str, Any] | None = None) -> Rows:
        """The actions for observations, one a row, in the judge's mode; `params` has no effect. Refused if they have
        another width, or the program gives no valid answer.
        """
        from tasks.evaluate import judge_run

        rows, judge = np.asarray(model_input), self._judge
        if rows.ndim != 2 or rows.shape[1] != sum(judge.widths) or not len(rows):
            raise Refused(f"an observation is a row of {sum(judge.widths)} numbers, got shape {rows.shape}")
        marker = f"model-{os.getpid()}-{time.monotonic_ns()}"
        seed = secrets.randbelow(2**31)
        with self._turn:
            judge._rows = rows
            score = judge_run(marker, self._environment, self._isolation, self.place, self._run, seed)
            if score.error:
                raise Refused(score.error)
            taken = judge._answer
        if len(taken) == 1 and taken[0].ndim == 1:
            return taken[0]
        return np.concatenate([column.reshape(len(rows), -1) for column in taken], axis=1)


class _Answers(Control):
    """The control judge that plays nothing: it keeps what the program answers to the observations that it was given."""

    _seen: list[Leaf] = PrivateAttr()
    _taken: list[Leaf] = PrivateAttr()
    _rows: Rows = PrivateAttr()
    _answer: list[Rows] = PrivateAttr()
    """The columns of the actions, leaf by leaf."""

    @property
    def widths(self) -> list[int]:
        """Numbers of each leaf in a row of observations."""
        return [int(np.prod(leaf.shape)) for leaf in self._seen]

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        rows = self._rows
        parts = np.split(rows, np.cumsum(self.widths)[:-1], axis=1)
        sent = [part.astype(leaf.dtype).tobytes() for leaf, part in zip(self._seen, parts, strict=True)]
        talk = Conversation(candidate, self.answer_seconds)
        talk.greet((self._seen, self._taken), [self.deterministic] * len(rows), exam.seed, self.start_seconds)
        # Each row is active, and begins an episode.
        answer = talk.ask(b"\1" * len(rows) * 2 + b"".join(sent), frame_bytes(self._taken, len(rows)))
        talk.expect_silence()
        self._answer = read_actions(self._taken, answer, np.ones(len(rows), np.bool_))
        return Score.of([0.0])
