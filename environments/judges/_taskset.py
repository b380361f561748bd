"""The taskset of a text judge, in a process of its own (`_scoring.py`).

A reward that never ends, or takes all memory, is the end of that process, and no score. All judgements of this process
share one, since verifiers takes seconds to import.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("_scoring.py")


class Taskset:
    """The questions of one pool, and what their completions are worth."""

    def __init__(self, file: Path, pool: Path, ids: Sequence[str], seconds: float) -> None:
        """
        Args:
            file: a module that exports one taskset, whose config has a `path`.
            pool: the file of questions that it is given as `path`.
            ids: of the questions in that file, in its order.
            seconds: how long one reward may take.
        """
        self._about = {"taskset": str(file), "pool": str(pool), "ids": list(ids)}
        self._ids, self._seconds = ids, seconds
        self._known: dict[tuple[int, str], float] = {}

    def prompts(self, places: Sequence[int]) -> list[list[dict[str, str]]]:
        """What is asked in the lines of those numbers, each as the messages of a chat.

        Raises:
            ValueError: the file has no taskset of these questions, or one of them is not made of text.
        """
        (told,) = _talk({**self._about, "places": list(places)}, ["loading it"])
        prompts: list[list[dict[str, str]]] = told["prompts"]
        return prompts

    def rewards(self, answered: Iterable[tuple[int, str]]) -> list[float]:
        """The reward of each completion of the question in that line, in their order; equal ones are scored once.

        Raises:
            ValueError: a reward cannot be computed, takes too long, or is not finite.
        """
        pairs = list(answered)
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            what = [f"the reward of question {self._ids[place]}" for place, _ in new]
            told = _talk({**self._about, "answered": new, "seconds": self._seconds}, what)
            self._known |= {pair: float(one["reward"]) for pair, one in zip(new, told, strict=True)}
        return [self._known[pair] for pair in pairs]


_one_at_a_time = threading.Lock()
_running: list[subprocess.Popen[str]] = []
"""The process, once there is one. It ends when its standard input does: with this one, however that ends."""


def _talk(request: dict[str, Any], what: Sequence[str]) -> list[dict[str, Any]]:
    """A reply for each of `what`, of which there is one at least.

    Raises:
        ValueError: one of these went wrong, or was the end of the process.
    """
    with _one_at_a_time:
        process, replies = _process(), list[dict[str, Any]]()
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it is seen below that it has ended
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            for each in what:
                if not (line := process.stdout.readline()):
                    ended = f"the process ended with status {process.wait()}"
                    raise ValueError(f"{each} took too long ([text] reward_seconds), or all memory: {ended}")
                replies.append(json.loads(line))
                if "wrong" in replies[-1]:
                    break
        except BaseException:
            _end()  # or what it has yet to say would be taken for the reply to the next request
            raise
    if replies and "wrong" in replies[-1]:
        raise ValueError(replies[-1]["wrong"])
    return replies


def _process() -> subprocess.Popen[str]:
    if _running and _running[0].poll() is not None:
        _end()
    if not _running:
        command = [sys.executable, "-P", "-B", str(PROGRAM)]
        _running.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                start_new_session=True,  # a terminal's Ctrl-C is for the engine, which ends when it is done
            )
        )  # fmt: skip
    return _running[0]


def _end() -> None:
    process = _running.pop()
    process.kill()
    with contextlib.suppress(BrokenPipeError), process:  # closes the pipes
        pass
