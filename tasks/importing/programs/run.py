"""Runs an imported program, as it is, in a trial. `run.json` beside this file says which, and how (see `HOW`).

    python train.py               trains, in a copy of `repository/` that the program may write to
    python train.py OUT RESULT    evaluates for the judge, in a fresh copy
    python train.py act           plays the agent that training left, for the control judge

The program finds its parameters in its command line, in constants of its files, or in the variables AR_PARAMS_JSON and
AR_PARAM_<NAME>. What it prints or reports becomes progress, and out/result.json. These numbers come from the program
that is scored, which can print any.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
HOW: dict[str, Any] = {
    "command": [],  # words; macros such as ${args} are those of W&B
    "prepare": [],  # a command before it
    "evaluate": [],  # the command of the judge
    "metric": "", "name": "",  # what it prints or reports, and how that is called here; empty: another judge measures
    "window": 1,  # values of the metric whose mean is the score
    "printed": False,  # whether numbers of its output count, or its reports alone
    "at_end": "count",  # of its time: `count` what it has reported, `fail`, or let it `finish`, as it has a clock
    "emits": False,  # whether it calls emit_progress, which hears of a cancellation
    "says_ready": False,  # whether it reports that it is ready
    "constants": {},  # file -> names that it assigns and a trial sets
    "budget": [],  # file and constant of the training time in seconds
    "steps": "",  # parameter of the steps to train for
    "seeds": [],  # parameters that get the seed of the run
    "defaults": {},  # values at the import: with them the program's own stay, so an edit of them counts
    "fixed": {},  # lists and tables that never vary
    "as_json": [],  # parameters whose values are written as JSON
    "paths": {},  # parameter -> the names of nested tables
    "home": "", "links": [],  # the home directory of the import, and folders below it that the program reads
    "variables": {},
    "keeps_files": False,  # whether it runs in out/, so that what it writes beside itself is kept
}  # fmt: skip
HOW |= json.loads((HERE / "run.json").read_text())
POLL_SECONDS = 0.1
NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?)))"
LINE = re.compile(rf"^\s*([A-Za-z][\w./-]{{0,60}})\s*[:=]\s*{NUMBER}\s*$")
MENTION = re.compile(rf"(?<![\w./-]){re.escape(HOW['metric'])}\s*[:=]\s*{NUMBER}(?![\w.])")
FIGURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-. :/@]{0,99}")
"""Names that figures beside a score may have."""
MOST_FIGURES, SAME = 40, 1e-4


class Numbers:
    """What the program has printed and reported so far."""

    def __init__(self) -> None:
        self.printed: dict[str, float] = {}
        self.mentioned: float | None = None
        self.reported: dict[str, float] = {}
        self.step = 0
        self.recent: deque[float] = deque(maxlen=HOW["window"])

    def read(self, line: str) -> None:
        """Take the numbers of a line that it has printed."""
        if alone := LINE.match(line):
            self.printed[alone[1]] = float(alone[2])
        for number in MENTION.findall(line):
            self.mentioned = float(number)

    def take(self, report: Mapping[str, Any], steps: int) -> dict[str, Any]:
        """Take a report; returns it in the engine's form. A step is the share of its own target, in `steps` parts."""
        metrics = {name: float(value) for name, value in report["metrics"].items()}
        if HOW["metric"] in metrics:
            self.recent.append(metrics[HOW["metric"]])
            metrics[HOW["metric"]] = sum(self.recent) / len(self.recent)
        self.reported |= metrics
        self.step, target = max(int(report["step"]), self.step), int(report.get("step_target") or 0)
        counted = {"step": self.step}
        if steps and HOW["emits"]:
            counted = {"step": int(min(self.step / target, 1.0) * steps) if target > 0 else 0, "step_target": steps}
        told = metrics if HOW["window"] == 1 else self.reported
        shown = {HOW["name"] if name == HOW["metric"] else name: value for name, value in told.items()}
        finite = {name: value for name, value in shown.items() if math.isfinite(value)}
        return {"elapsed": max(float(report["elapsed_s"]), 0.0), **counted, "metrics": finite}

    def result(self) -> dict[str, Any] | str:
        """The score with other figures, or why there is none."""
        found = self.printed if HOW["printed"] else {}
        score = found.get(HOW["metric"], self.mentioned) if HOW["printed"] else None
        reported = self.reported.get(HOW["metric"])
        if score is None or (reported is not None and math.isclose(score, reported, rel_tol=SAME, abs_tol=SAME)):
            score = reported  # the printed number is the reported one, rounded
        figures = {**self.reported, **found}
        if score is None:
            what = f"line {HOW['metric']}: NUMBER" if HOW["printed"] else repr(HOW["metric"])
            return f"the program gave no {what}; it gave {', '.join(figures) or 'no number'}"[:400]
        if not math.isfinite(score):  # what it was before the training diverged is no score
            return f"the program ended with {HOW['metric']} = {score}"
        also = {name: value for name, value in figures.items() if FIGURE.fullmatch(name) and math.isfinite(value)}
        also.pop(HOW["metric"], None)
        return {"score": score, "also": dict(list(also.items())[-MOST_FIGURES:])}


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a trial as the program knows them: with the run's seed, nested where they are nested there."""
    values, defaults = config["params"], HOW["defaults"]
    changed = {name: value for name, value in values.items() if name not in defaults or defaults[name] != value}
    read = {name: json.loads(value) if name in HOW["as_json"] else value for name, value in changed.items()}
    steps = {HOW["steps"]: config["budget_steps"]} if HOW["steps"] and config["budget_steps"] else {}
    seeds = dict.fromkeys(HOW["seeds"], config["seed"] % 2**31)
    tables: dict[str, Any] = {}
    for name, value in {**HOW["fixed"], **read, **steps, **seeds}.items():
        *above, last = HOW["paths"].get(name, [name])
        table = tables
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    return tables


def words(command: list[str], params: Mapping[str, Any], place: Path) -> list[str]:
    """A command with its macros filled in."""

    def shown(value: Any) -> str:
        return json.dumps(value) if isinstance(value, dict | list) else str(value)

    flags = [f"--{name}={shown(value)}" for name, value in params.items()]
    switches = [f"--{name}" if value is True else f"--{name}={shown(value)}" for name, value in params.items()
                if value is not False]  # fmt: skip
    macros = {
        "${env}": [], "${interpreter}": [sys.executable], "${args}": flags,
        "${args_no_hyphens}": [flag.removeprefix("--") for flag in flags], "${args_no_boolean_flags}": switches,
        "${args_json}": [json.dumps(params)], "${args_json_file}": ["args.json"],
    }  # fmt: skip
    if "${args_json_file}" in command:
        (place / "args.json").write_text(json.dumps(params))
    return [word.replace("${here}", str(HERE)) for given in command for word in macros.get(given, [given])]


def variables(params: Mapping[str, Any], seed: int, out: Path, place: Path) -> dict[str, str]:
    """The environment of a command. `standin/` has a package of the original's where that is not installed here."""
    for folder in (out / "run", out / "model"):
        folder.mkdir(parents=True, exist_ok=True)
    standin = [] if HOW["emits"] and find_spec("autoresearch_rl") else [str(HERE / "standin")]
    search = [*standin, str(place), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **HOW["variables"],
        **{f"AR_PARAM_{name.upper()}": str(value) for name, value in params.items()},
        "AR_PARAMS_JSON": json.dumps(params),
        "AR_SEED": str(seed),
        "PYTHONHASHSEED": str(seed % 2**32),
        "AR_RUN_DIR": str(out / "run"),
        "AR_MODEL_DIR": str(out / "model"),
        "AR_PROGRESS_FILE": str(out / "run/progress.jsonl"),
        "AR_CONTROL_FILE": str(out / "run/control.json"),
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
    }


def copied(folder: Path) -> Path:
    """A copy of the files in which a command can write; the workspace itself is read-only."""
    return shutil.copytree(HERE / "repository", folder / "repository", copy_function=shutil.copyfile)


def assign(file: Path, values: Mapping[str, Any]) -> set[str]:
    """Set constants at the top level of a file, and nothing else of it; returns those that it has not."""
    source, missing = file.read_bytes(), set(values)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in reversed(ast.parse(source).body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not node.value:
            continue
        target, old = node.target if isinstance(node, ast.AnnAssign) else node.targets[0], node.value
        if isinstance(target, ast.Name) and target.id in values and old.end_lineno and old.end_col_offset:
            begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            source = source[:begin] + repr(values[target.id]).encode() + source[end:]
            missing.discard(target.id)
    file.write_bytes(source)
    return missing


def train() -> int:
    config = json.loads((HERE / "config.json").read_text())
    out, params = Path(config["out"]), parameters(config)
    (out / "params.json").write_text(json.dumps({"params": params, "seed": config["seed"]}))
    place = copied(out if HOW["keeps_files"] else Path(tempfile.gettempdir()))
    for name, constants in HOW["constants"].items():
        missing = assign(place / name, {name: params[name] for name in constants if name in params})
        missing -= set(HOW["seeds"])
        if missing:
            raise SystemExit(f"{name} assigns no {', '.join(sorted(missing))} at its top level any more")
    if HOW["budget"]:
        assign(place / HOW["budget"][0], {HOW["budget"][1]: config["budget_seconds"]})
    for link in HOW["links"]:
        mine = Path(os.environ["HOME"]) / Path(link).relative_to(HOW["home"])
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.symlink_to(link)
    environment = variables(params, config["seed"], out, place)
    if HOW["prepare"] and (status := subprocess.run(HOW["prepare"], cwd=place, env=environment).returncode):
        return status
    with (out / "progress.jsonl").open("a", buffering=1) as progress:
        if not HOW["says_ready"]:
            progress.write('{"ready": true}\n')
        return followed(words(HOW["command"], params, place), place, environment, progress, config, out)


def followed(
    command: list[str], place: Path, environment: dict[str, str], progress: TextIO, config: Mapping[str, Any], out: Path
) -> int:
    """Run the command to its end, hand on what it reports, and leave the result; returns its status."""
    numbers, over, asked = Numbers(), Event(), False
    if HOW["at_end"] == "finish":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited
    process = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    )  # fmt: skip

    def terminate(*_: object) -> None:
        over.set()
        process.terminate()

    if HOW["at_end"] != "finish":
        signal.signal(signal.SIGTERM, terminate)
    assert process.stdout is not None
    reader = Thread(target=copy_lines, args=(process.stdout, out / "run.log", numbers))
    reader.start()
    reports = Path(environment["AR_PROGRESS_FILE"])
    offset, is_running = 0, True
    while is_running:
        is_running = process.poll() is None
        if not is_running:
            reader.join()
        offset = hand_on(reports, offset, numbers, progress, config["budget_steps"])
        if not asked and (HERE / "cancel").exists():
            asked, reason = True, (HERE / "cancel").read_text()
            Path(environment["AR_CONTROL_FILE"]).write_text(json.dumps({"action": "cancel", "reason": reason}))
            if not HOW["emits"]:
                process.kill()
        time.sleep(POLL_SECONDS * is_running)
    if over.is_set() and HOW["at_end"] == "fail":  # its numbers are those of a part
        progress.write('{"failed": "the program had not ended when its time was over"}\n')
        return 1
    if process.returncode and not over.is_set():
        return 128 - process.returncode if process.returncode < 0 else process.returncode
    return left(numbers, out / "result.json", progress) if HOW["metric"] and not HOW["evaluate"] else 0


def left(numbers: Numbers, file: Path, progress: TextIO | None = None) -> int:
    result = numbers.result()
    if isinstance(result, str):
        sys.stderr.write(f"{result}\n")
        if progress:
            progress.write(json.dumps({"failed": result}) + "\n")
        return 1
    file.write_text(json.dumps(result))
    return 0


def hand_on(file: Path, offset: int, numbers: Numbers, progress: TextIO, steps: int) -> int:
    """Hand on the new whole lines of the program's reports; of many with a mean in them the last alone."""
    if not file.is_file():
        return offset
    with file.open("rb") as opened:
        opened.seek(offset)
        new = opened.read()
    whole = new[: new.rfind(b"\n") + 1]
    lines: list[str] = []
    for line in whole.split(b"\n"):
        try:
            report = json.loads(line)
            told = {"ready": True} if "ready" in report else numbers.take(report, steps)
            lines.append(json.dumps(told) + "\n")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):  # of another form: no report
            continue
    progress.writelines(lines if HOW["window"] == 1 else lines[-1:])
    return offset + len(whole)


def copy_lines(lines: Iterable[str], file: Path, numbers: Numbers) -> None:
    with file.open("w", buffering=1) as log:
        for line in lines:
            log.write(line)
            sys.stdout.write(line)
            numbers.read(line)
    sys.stdout.flush()


def evaluate(out: Path, result: Path) -> int:
    """Run the command of the judge where training has never been; its last numbers become the result."""
    with tempfile.TemporaryDirectory() as folder:
        place = copied(Path(folder))
        params = json.loads((out / "params.json").read_text())["params"]
        here = variables(params, 0, Path(folder), place)
        here |= {"AR_RUN_DIR": str(out / "run"), "AR_MODEL_DIR": str(out / "model")}
        done = subprocess.run(HOW["evaluate"], cwd=place, env=here, capture_output=True, text=True, errors="replace")
        numbers = Numbers()
        copy_lines(f"{done.stdout}\n{done.stderr}\n".splitlines(keepends=True), Path(folder) / "log", numbers)
        return done.returncode or left(numbers, result)


if __name__ == "__main__":
    if sys.argv[1:] == ["act"]:
        runpy.run_path(str(HERE / "act.py"), run_name="__main__")
    else:
        sys.exit(evaluate(*map(Path, sys.argv[1:])) if sys.argv[1:] else train())
