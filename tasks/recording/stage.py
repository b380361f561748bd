"""The stage: a program in a sandbox that steps and draws the environment of a recording (environments/recording.py).

The policies are programs in sandboxes of their own. The engine passes messages between them and the stage, and parses
nothing else: what comes back are numbers and a file.
"""

from __future__ import annotations

import base64
import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

import environments
from environments.judges import Misbehaved
from environments.limits import Limits
from environments.safe_open import open_file
from tasks.evaluate import PipedCandidate
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import Program
from tasks.system.clock import clock

CODE = Path(environments.__file__ or "").parent
BEGIN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("environments", f"{sys.argv[1]}/__init__.py")
sys.modules["environments"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["environments"])
from environments.recording import main
main()
"""
"""The rest of the checkout is not visible, and Python finds no package in a folder that it cannot list."""
LIMITS = Limits(memory_gb=4, processes=256, file_gb=0.1, out_gb=0.1, out_files=100, scratch_gb=0.1, output_mb=4)
LINE_BYTES = 16 * 2**20
"""Longest message: an observation or an action, in base64."""
GIF, STILL = "episode.gif", "episode.png"
FILE_BYTES = 8 * 2**20
"""Most of one file."""
STARTS = {GIF: b"GIF89a", STILL: b"\x89PNG\r\n\x1a\n"}


class PolicyCall(BaseModel):
    """A message of the stage that asks the policy: a method of its `Candidate` and the arguments."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    ask: Literal["send", "receive", "receive_line"]
    seconds: float
    data: Base64Bytes = b""
    size: int = Field(default=0, ge=0, le=LINE_BYTES)
    limit: int = Field(default=0, ge=0, le=LINE_BYTES)

    def made(self, policy: PipedCandidate, most_seconds: float) -> bytes:
        """What the policy answers."""
        seconds = min(self.seconds, most_seconds)
        if self.ask == "receive":
            return policy.receive(self.size, seconds)
        if self.ask == "receive_line":
            return policy.receive_line(self.limit, seconds)
        policy.send(self.data, seconds)
        return b""


class PlayedSide(BaseModel):
    """What the stage says of an episode that was played."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    total: float
    steps: int
    seconds: float
    cut: bool


class EpisodeStage:
    """The program that draws, while a `with` block runs. Use it in one thread.

    Its methods raise Misbehaved with the reason if it cannot draw, or not in time.
    """

    def __init__(self, folder: Path, level: Level, readable: tuple[Path, ...], marker: str, seconds: float) -> None:
        self._folder, self._level, self._marker, self._ends = folder, level, marker, clock() + seconds
        self._out = folder / "drawn"
        self._readable = (CODE, *readable)
        self._stack = ExitStack()

    def __enter__(self) -> EpisodeStage:
        self._out.mkdir()
        confinement.give(self._out, self._level)
        program = Program(
            ["python", "-P", "-c", BEGIN, str(CODE)], cwd=self._out, log=self._folder / "stage.txt",
            marker=self._marker, level=self._level, view=VisiblePaths(self._readable, (self._out,)), limits=LIMITS,
            pipes=True,
        )  # fmt: skip
        self._program = self._stack.enter_context(program)
        self._talk = PipedCandidate(self._program, Path(os.devnull))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def play(self, name: str, judge: dict[str, Any], seed: int, policy: PipedCandidate) -> PlayedSide:
        """Play one episode."""
        self._say({"play": judge, "name": name, "seed": seed})
        while True:
            message = self._hear()
            try:
                if "played" in message:
                    return PlayedSide.model_validate(message["played"])
                call = PolicyCall.model_validate(message)
            except ValidationError as wrong:
                raise Misbehaved(f"what draws it says {str(message)[:80]}") from wrong
            try:
                answer = {"told": base64.b64encode(call.made(policy, self._left())).decode()}
            except Misbehaved as wrong:
                answer = {"misbehaved": str(wrong)}
            self._say(answer)

    def draw(self) -> dict[str, bytes]:
        """The content of the picture that moves and of its end, by name."""
        self._say({"draw": str(self._out)})
        self._hear()
        return {name: self._file(name) for name in (GIF, STILL)}

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._talk.send(json.dumps(message).encode() + b"\n", self._left())
        except Misbehaved as wrong:
            raise self._blame(wrong) from wrong

    def _hear(self) -> dict[str, Any]:
        try:
            line = self._talk.receive_line(LINE_BYTES, self._left())
        except Misbehaved as wrong:
            raise self._blame(wrong) from wrong
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Misbehaved(f"what draws it says {line[:80]!s}")
        if "failed" in message:
            raise Misbehaved(str(message["failed"]))
        return message

    def _blame(self, wrong: Misbehaved) -> Misbehaved:
        """The fault of the stage, with the last lines that it printed."""
        return Misbehaved(f"what draws it {wrong}\n{self._program.tail()}".rstrip())

    def _left(self) -> float:
        if (left := self._ends - clock()) <= 0:
            raise Misbehaved("was not done in time")
        return left

    def _file(self, name: str) -> bytes:
        try:
            with open_file(self._out / name) as file:
                content = file.read(FILE_BYTES + 1)
        except OSError as wrong:
            raise Misbehaved(f"{name} was not drawn: {wrong.strerror}") from wrong
        if len(content) > FILE_BYTES:
            raise Misbehaved(f"{name} has more than {FILE_BYTES // 2**20} MiB")
        if not content.startswith(STARTS[name]):
            raise Misbehaved(f"{name} is no such picture")
        return content
