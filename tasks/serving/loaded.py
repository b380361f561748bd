"""A champion as a loaded MLflow model: each prediction starts its program in the sandbox, as under judgement.

`mlflow.pyfunc.load_model` imports this module and calls `_load_pyfunc` with the folder of the model. The folder is
copied, and its files are compared with the digests that were judged. Nothing of it is imported or unpickled here: the
program answers over pipes, in a process without network that can write nothing. Where no sandbox works, it is not
loaded.

A prediction takes as long as the program takes to start, so give many rows at once. Every row is the first step of an
episode of its own: a recurrent policy remembers nothing from row to row.
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
from environments.judges._talk import Talk
from environments.judges.control import PROTOCOL, Control
from environments.judges.text import Text
from environments.plugins import Refused
from tasks.evaluate import PipedCandidate
from tasks.sandbox import confinement, isolation, outputs
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.interpreter import interpreter_of
from tasks.sandbox.program import Program
from tasks.serving import rows
from tasks.serving.description import COMPLETION, FILE, PROMPT, TOKENIZER, Description
from tasks.serving.rows import Rows
from tasks.store import workspace
from tasks.store.safe_read import open_below
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

LANES = 1000
"""Most rows of one frame."""
Settings = dict[str, Any]


class CannotPredict(Exception):
    """The model cannot be loaded, or its program gave no valid answer; the message says why."""


def _load_pyfunc(path: str) -> ControlPolicy | LanguageModel:
    """The model in a folder; MLflow calls this.

    Raises:
        CannotPredict: it is not what was certified, or this machine may not run it.
    """
    files = Path(path)
    try:
        described = Description.model_validate_json((files / FILE).read_bytes())
    except (OSError, ValidationError) as broken:
        reason = str(broken).partition("\n")[0]
        remedy = "load it with the Nightshift that wrote it"
        raise CannotPredict(f"{files / FILE} cannot be read ({reason}): {remedy}") from broken
    copy = Copy(files, described)
    return ControlPolicy(copy) if described.judge == "control" else LanguageModel(copy)


class Copy:
    """A private copy of a model's files, laid out as a trial's directory, and its program in the sandbox."""

    def __init__(self, files: Path, described: Description) -> None:
        self.described = described
        folder = Path(tempfile.mkdtemp(prefix="nightshift-model-")).resolve()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.place = TrialDir(folder / "trial")
        for name in (self.place.workspace.name, self.place.out.name, TOKENIZER):
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

    def _config(self) -> Settings:
        """The program's configuration, which its digest leaves out."""
        found: object = None
        if file := open_below(self.place.workspace, self.place.config.name):
            with file, suppress(ValueError, RecursionError):
                found = json.load(file)
        if isinstance(found, dict):
            return found
        raise CannotPredict("workspace/config.json of the model is missing or no JSON object: download it again")

    def filled(self, command: str) -> list[str]:
        return workspace.fill(command, {"out": str(self.place.out), "device": self.described.device})

    @contextmanager
    def started(self, command: list[str], more: tuple[Path, ...] = ()) -> Iterator[PipedCandidate]:
        """Its program, started for one prediction.

        Raises:
            CannotPredict: it did not start, or answered wrongly, late or not at all.
        """
        place, described = self.place, self.described
        own = interpreter_of(described.python)
        readable = (place.workspace, place.out, *self._readable, *confinement.visible(own), *more)
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


class ControlPolicy:
    """A policy of a control environment: a row of observations in, an action out."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._judge = Control.model_validate(copy.described.settings)
        self._seen = [leaf.leaf for leaf in copy.described.observation]
        self._taken = [leaf.leaf for leaf in copy.described.action]

    def get_raw_model(self) -> Copy:
        return self._copy

    def predict(self, model_input: pd.DataFrame | Rows, params: Settings | None = None) -> Rows:
        """The actions for observations, one a row: of shape (rows,) where an action is a number, else (rows, width).

        `params`: `deterministic` (the judge's mode unless stated) and `seed` of the policy's own draws.
        """
        asked = {"deterministic": self._judge.deterministic, "seed": 0} | (params or {})
        try:
            seen = rows.observed(self._seen, np.asarray(model_input))
        except ValueError as wrong:
            raise CannotPredict(str(wrong)) from wrong
        many = len(seen[0])
        lanes = min(many, LANES)
        hello = {
            "lanes": lanes,
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._taken],
            "protocol": PROTOCOL,
            "deterministic": [bool(asked["deterministic"])] * lanes,
            "seed": int(asked["seed"]) % 2**31,
        }
        answers = []
        with self._copy.started(self._copy.filled(self._judge.command())) as candidate:
            talk = Conversation(candidate, self._judge.answer_seconds, self._judge.total_seconds)
            talk.greet(json.dumps(hello).encode() + b"\n", self._judge.start_seconds)
            for first in range(0, many, lanes):
                part = [column[first : first + lanes] for column in seen]
                active = len(part[0])
                answer = talk.ask(_frame(part, lanes), frame_bytes(self._taken, lanes))
                taken = [column[:active] for column in columns(self._taken, lanes, answer)]
                answers.append(rows.acted(self._taken, taken))
            talk.expect_silence()
        return np.concatenate(answers)


def _frame(part: list[Any], lanes: int) -> bytes:
    """A frame in which each row begins an episode; lanes without a row are inactive."""
    active = np.arange(lanes) < len(part[0])
    missing = lanes - len(part[0])
    padded = (np.pad(column, [(0, missing), *[(0, 0)] * (column.ndim - 1)]) for column in part)
    return active.tobytes() + active.tobytes() + b"".join(column.tobytes() for column in padded)


class LanguageModel:
    """A language model: a prompt in, its completion out."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        judge = Text.model_validate(copy.described.settings)
        self._judge = judge.model_copy(update={"backend": "transformers"})

    def get_raw_model(self) -> Copy:
        return self._copy

    def predict(self, model_input: pd.DataFrame, params: Settings | None = None) -> pd.DataFrame:
        """The completion of each prompt, said as one message of a user, in a column `completion`.

        `params`: `temperature` and `max_tokens` (the judge's unless stated), and `seed`.
        """
        import pandas as pd

        judge, words = self._judge, self._copy.place.path / TOKENIZER
        asked = {"temperature": judge.temperature, "max_tokens": judge.max_tokens, "seed": 0} | (params or {})
        prompts = [[{"role": "user", "content": str(prompt)}] for prompt in model_input[PROMPT]]
        reads = (words,) if words.is_dir() else ()
        given = tuple(Path(path) for path in judge.reads if Path(path).is_absolute())
        with self._copy.started(self._copy.filled(judge.command()), (*reads, *given)) as candidate:
            talk = Talk(candidate, judge.answer_seconds, time.monotonic() + judge.total_seconds)
            talk.start(self._how(words))
            talk.wait_until_ready(judge.start_seconds)
            seed = int(asked["seed"]) % 2**31
            made = talk.ask(prompts, 1, float(asked["temperature"]), int(asked["max_tokens"]), seed)
            talk.end()
        for number, one in enumerate(made):
            if one.error:
                raise CannotPredict(f"prompt {number} was not completed: {one.error}")
        return pd.DataFrame({COMPLETION: [one.texts[0] for one in made]})

    def _how(self, words: Path) -> Settings:
        """The generator's settings (environments/judges/_generate.py); those of endpoints are not used."""
        return {"batch": self._judge.batch, "tokenizer": str(words) if words.is_dir() else ""}
