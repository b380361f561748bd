"""Runs the commands of an imported configuration, as they are, in a trial. `target.json` beside this file has them.

    python train.py               trains: prepare_cmd, then train_cmd, in a copy of `repository/` that they may write to
    python train.py OUT RESULT    evaluates for the judge: eval_cmd, in a copy of the frozen `repository/`

The commands find their parameters in `AR_PARAMS_JSON` and `AR_PARAM_<NAME>`, and AR_SEED, AR_RUN_DIR, AR_MODEL_DIR,
AR_PROGRESS_FILE and AR_CONTROL_FILE. Reports of `emit_progress` are handed on, and so is a cancellation.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
HOW: dict[str, Any] = json.loads((HERE / "target.json").read_text())
POLL_SECONDS = 0.1
PARAMS = "params.json"


class Reports:
    """The lines that `emit_progress` appends to a file, handed on in the form that the engine reads."""

    def __init__(self, theirs: Path, ours: TextIO, steps: int) -> None:
        self._theirs, self._ours, self._steps, self._rest, self._read = theirs, ours, steps, "", 0

    def hand_on(self) -> None:
        if not self._theirs.is_file():
            return
        with self._theirs.open() as file:
            file.seek(self._read)
            self._rest += file.read()
            self._read = file.tell()
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # a line of another form is no report
                self._ours.write(json.dumps(report(json.loads(line), self._steps)) + "\n")


def report(theirs: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A report in the engine's form; its step is the share of its own target, in `steps` parts."""
    metrics = {name: float(value) for name, value in theirs["metrics"].items() if math.isfinite(float(value))}
    step, target = int(theirs["step"]), int(theirs["step_target"])
    share = min(max(step / target, 0.0), 1.0) if target > 0 else 0.0
    counted = {"step": int(share * steps), "step_target": steps} if steps else {"step": max(step, 0)}
    return {"elapsed": max(float(theirs["elapsed_s"]), 0.0), **counted, "metrics": metrics}


def variables(params: Mapping[str, Any], seed: int, out: Path) -> dict[str, str]:
    """The environment of a command; `emit_progress` is found in the package of that name, or else in `sdk/`."""
    run, model = out / "run", out / "model"
    for folder in (run, model):
        folder.mkdir(parents=True, exist_ok=True)
    sdk = [] if importlib.util.find_spec("autoresearch_rl") else [str(HERE / "sdk")]
    path = os.pathsep.join([*sdk, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        **{f"AR_PARAM_{name.upper()}": str(value) for name, value in params.items()},
        "AR_PARAMS_JSON": json.dumps(params),
        "AR_SEED": str(seed),
        "PYTHONHASHSEED": str(seed % 2**32),
        "AR_RUN_DIR": str(run),
        "AR_MODEL_DIR": str(model),
        "AR_PROGRESS_FILE": str(run / "progress.jsonl"),
        "AR_CONTROL_FILE": str(run / "control.json"),
        "PYTHONPATH": path,
    }


def train() -> int:
    config = json.loads((HERE / "config.json").read_text())
    out, params = Path(config["out"]), config["params"]
    (out / PARAMS).write_text(json.dumps(params))
    env, place = variables(params, config["seed"], out), copied(Path(tempfile.gettempdir()))
    if HOW["prepare_cmd"] and (status := subprocess.run(HOW["prepare_cmd"], cwd=place, env=env).returncode):
        return status
    with (out / "progress.jsonl").open("a", buffering=1) as progress, (out / "run.log").open("w", buffering=1) as log:
        progress.write('{"ready": true}\n')
        reports = Reports(Path(env["AR_PROGRESS_FILE"]), progress, config["budget_steps"])
        process = subprocess.Popen(
            HOW["train_cmd"], cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace",
        )  # fmt: skip
        status, stopped = followed(process, log, reports, Path(env["AR_CONTROL_FILE"]))
        if stopped:  # its numbers are those of a part, as if it had failed
            progress.write('{"failed": "train_cmd had not ended when its time was over"}\n')
            return 1
        return status


def copied(folder: Path) -> Path:
    """A copy of the files in which a command can write; the workspace itself is read-only."""
    return shutil.copytree(HERE / "repository", folder / "repository", copy_function=shutil.copyfile)


def followed(process: subprocess.Popen[str], log: TextIO, reports: Reports, control: Path) -> tuple[int, bool]:
    """The status with which a command ends, and whether SIGTERM ended it. The file `cancel` asks it to end."""
    terminated = Event()

    def terminate(*_: object) -> None:
        terminated.set()
        process.terminate()

    signal.signal(signal.SIGTERM, terminate)
    assert process.stdout is not None
    reader = Thread(target=copy_lines, args=(process.stdout, log))
    reader.start()
    while process.poll() is None:
        reports.hand_on()
        if (HERE / "cancel").exists() and not control.exists():
            control.write_text(json.dumps({"action": "cancel", "reason": (HERE / "cancel").read_text()}))
        time.sleep(POLL_SECONDS)
    reader.join()
    reports.hand_on()
    status = 128 - process.returncode if process.returncode < 0 else process.returncode
    return status, terminated.is_set()


def copy_lines(lines: TextIO, log: TextIO) -> None:
    for line in lines:
        log.write(line)
        sys.stdout.write(line)
    sys.stdout.flush()


def evaluate(out: Path, result: Path) -> int:
    """Run eval_cmd where training has never been; its last numbers become the result by `judge.py`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        params = json.loads((out / PARAMS).read_text())
        env = variables(params, 0, place) | {"AR_RUN_DIR": str(out / "run"), "AR_MODEL_DIR": str(out / "model")}
        done = subprocess.run(
            HOW["eval_cmd"], cwd=copied(place), env=env, capture_output=True, text=True, errors="replace"
        )
        (place / "run.log").write_text(f"{done.stdout}\n{done.stderr}")
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        sys.stdout.flush()
        judge = [sys.executable, str(HERE / "judge.py"), str(place), str(result), HOW["metric"]]
        return done.returncode or subprocess.run(judge).returncode


if __name__ == "__main__":
    sys.exit(evaluate(*map(Path, sys.argv[1:])) if sys.argv[1:] else train())
