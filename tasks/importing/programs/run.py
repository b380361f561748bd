"""Runs somebody's own program in a trial, unchanged. `run.json` beside this file says how (see `HOW`).

    python train.py [repository/PROGRAM]    trains, in a copy of `repository/` that the program may write to
    python train.py judge OUT RESULT        evaluates for the judge, in a fresh copy
    python train.py act                     plays the agent that training left, for the control judge

Behind `--` there may be the command in place of that in `run.json`. The program's own Python runs this, which may be
an old one.

The program finds its parameters in its command line, in constants of its files, or in the variables AR_PARAMS_JSON and
AR_PARAM_<NAME>. What it prints, or reports by a package of `standin/`, becomes progress, and out/result.json. These
numbers come from the program that is scored, which can print any.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HOW: dict[str, Any] = {
    "command": [],  # words; macros such as ${args} are those of W&B
    "prepare": [],  # a command before it
    "evaluate": [],  # the command of the judge
    "metric": "", "name": "",  # what it prints or reports, and how that is called here; empty: not what training says
    "window": 1,  # values of the metric whose mean is the score
    "printed": False,  # whether numbers of its output count, or its reports alone
    "at_end": "count",  # of its time: `count` what it has reported, `fail`, or let it `finish`, as it has a clock
    "says_ready": False,  # whether it reports that it is ready
    "own": {},  # parameter -> what of the run it gets: `seed`, `budget_steps` or `budget_seconds`
    "constants": {},  # file -> names that it assigns and a trial sets
    "defaults": {},  # values at the import: with them the program's own stay, so an edit of them counts
    "links": {},  # what stays in its place: where the program looks for it, in its home or its copy, and where it is
    "variables": {},
    "keeps_files": False,  # whether it runs in out/, so that what it writes beside itself is kept
    **json.loads((HERE / "run.json").read_text()),
}  # fmt: skip
POLL_SECONDS = 0.1
FIGURE = r"[-+]?(?:(?:(?:\d{1,3}(?:,\d{3})+(?!,?\d)|\d+)\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)(?!\w|\.\w)"
NUMBER = re.compile(rf"(?<![\w./-])([a-z][\w./-]*)\s*[:=]\s*({FIGURE})", re.I)
"""A number that is printed: `val_loss: 0.5`, `loss=9.0 val_loss=0.5`."""
SPREAD = re.compile(rf"(?:\+/-|\+-|±)\s*{FIGURE}%?|device='[^']*'", re.I)
"""What stands behind a mean as its error, and where torch has it."""
BARE = re.compile(rf"(?<![\w.]){FIGURE}", re.I)
RESULTS = {"score", "units", "sources"}


class Numbers:
    """What the program has printed and reported so far."""

    def __init__(self) -> None:
        self.printed: dict[str, float] = {}
        self.reported: dict[str, float] = {}
        self.step = 0
        self.recent: deque[float] = deque(maxlen=HOW["window"])

    def read(self, lines: Iterable[str]) -> None:
        """Take the numbers of lines that it has printed, and print them for the log."""
        for line in lines:
            sys.stdout.write(f"{line}\n")
            self.printed.update({name: float(number.replace(",", "")) for name, number in NUMBER.findall(line)})

    def hand_on(self, lines: Iterable[str], steps: int) -> list[str]:
        """The reports among these lines, in the engine's form; of many with a mean in them the last alone."""
        taken = []
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # of another form: no report
                taken.append(json.dumps(self._take(json.loads(line), steps)) + "\n")
        return taken if HOW["window"] == 1 else taken[-1:]

    def _take(self, report: Mapping[str, Any], steps: int) -> dict[str, Any]:
        """A step towards a target counts in `steps` parts of it."""
        if "ready" in report:
            return {"ready": True}
        metrics = {name: float(value) for name, value in report["metrics"].items()}
        if HOW["metric"] in metrics:
            self.recent.append(metrics[HOW["metric"]])
            metrics[HOW["metric"]] = sum(self.recent) / len(self.recent)
        self.reported.update(metrics)
        self.step, target = max(int(report["step"]), self.step), int(report.get("step_target") or 0)
        counted = {"step": self.step}
        if steps and target > 0:
            counted = {"step": int(min(self.step / target, 1.0) * steps), "step_target": steps}
        current = metrics if HOW["window"] == 1 else self.reported
        shown = {HOW["name"] if name == HOW["metric"] else name: value for name, value in current.items()}
        return {"elapsed": float(report["elapsed_s"]), **counted, "metrics": shown}

    def leave(self, file: Path) -> None:
        """Leave the score with other figures for the judge, or end with the reason why there is none."""
        figures = {**self.reported, **(self.printed if HOW["printed"] else {})}
        score = figures.pop(HOW["metric"], None)
        if score is None:
            sys.exit(f"the program gave no {HOW['metric']!r}; it gave {', '.join(figures) or 'no number'}"[:400])
        if not math.isfinite(score):  # what it was before the training diverged is no score
            sys.exit(f"the program ended with {HOW['metric']} = {score}")
        file.write_text(json.dumps({"score": score, "also": figures}))


class Tail:
    """A file that grows."""

    def __init__(self, file: Path) -> None:
        file.touch()
        self.opened, self.rest = file.open(encoding="utf-8", errors="replace"), ""

    def lines(self, is_last: bool) -> list[str]:
        """Its new lines, also those that a bar of progress ends; one that has no end yet only with `is_last`."""
        *whole, self.rest = (self.rest + self.opened.read()).split("\n")
        return whole + [self.rest] * is_last


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a trial as the program knows them, with the run's seed."""
    defaults, of_run = HOW["defaults"], {**config, "seed": config["seed"] % 2**31}
    given = {name: value for name, value in config["params"].items() if defaults.get(name) != value}
    values = {name: decoded(value) for name, value in given.items()}
    return {**values, **{name: of_run[key] for name, key in HOW["own"].items() if key == "seed" or of_run[key]}}


def decoded(value: Any) -> Any:
    """A list or null, which environment.toml holds as a text of JSON; any other value as it is."""
    with suppress(ValueError):
        return json.loads(value) if isinstance(value, str) and (value == "null" or value[:1] in "[{") else value
    return value


def words(program: str, params: Mapping[str, Any]) -> list[str]:
    """The command with its macros filled in."""
    texts = {name: json.dumps(one) if isinstance(one, (dict, list)) else str(one) for name, one in params.items()}
    flags = {name: f"--{name}={text}" for name, text in texts.items()}
    switches = {name: f"--{name}" if value else "" for name, value in params.items() if isinstance(value, bool)}
    macros = {
        "${env}": [], "${interpreter}": [sys.executable], "${program}": [program], "${args}": [*flags.values()],
        "${args_no_hyphens}": [f"{name}={text}" for name, text in texts.items()],
        "${args_no_boolean_flags}": [*filter(None, {**flags, **switches}.values())],
    }  # fmt: skip
    return [word for given in HOW["command"] for word in macros.get(given, [given])]


def variables(params: Mapping[str, Any], seed: int, out: Path, copy: Path) -> dict[str, str]:
    """The environment of a command: those of epappas/autoresearch-rl, which its programs and the stand-ins read."""
    for folder in (out / "run", out / "model"):
        folder.mkdir(parents=True, exist_ok=True)
    search = [str(HERE / "standin"), str(copy), os.environ.get("PYTHONPATH", "")]
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
    """A copy that a command can write to; the workspace itself is read-only."""
    copy = shutil.copytree(HERE / "repository", folder / "repository")
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
    for place, original in HOW["links"].items():
        mine = copy / Path(place).expanduser()
        mine.parent.mkdir(parents=True, exist_ok=True)
        if not Path(original).is_dir():
            mine.symlink_to(original)
            continue
        mine.mkdir()  # of its own, so that the program may write beside what is linked
        for path in Path(original).iterdir():
            (mine / path.name).symlink_to(path)
    return copy


def assign(file: Path, values: Mapping[str, Any]) -> None:
    """Set constants at the top level of a file, and nothing else of it."""
    lines, missing = file.read_bytes().splitlines(keepends=True), {*values} - {*HOW["own"]}
    for node in reversed(ast.parse(b"".join(lines)).body):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not node.value:
            continue
        target, old = node.target if isinstance(node, ast.AnnAssign) else node.targets[0], node.value
        if isinstance(target, ast.Name) and target.id in values and old.lineno == old.end_lineno:
            line, new = lines[old.lineno - 1], repr(values[target.id]).encode()
            lines[old.lineno - 1] = line[: old.col_offset] + new + line[old.end_col_offset :]
            missing.discard(target.id)
    if missing:
        raise SystemExit(f"{file.name} assigns no {', '.join(sorted(missing))} at its top level any more")
    file.write_bytes(b"".join(lines))


def train(program: str) -> None:
    config = json.loads((HERE / "config.json").read_text())
    out, params = Path(config["out"]), parameters(config)
    (out / "params.json").write_text(json.dumps(params))
    copy = copied(out if HOW["keeps_files"] else Path(tempfile.gettempdir()))
    for name, constants in HOW["constants"].items():
        assign(copy / name, {constant: params[constant] for constant in constants if constant in params})
    environment = variables(params, config["seed"], out, copy)
    if HOW["prepare"] and (status := subprocess.run(HOW["prepare"], cwd=copy, env=environment).returncode):
        sys.exit(status)
    follow(words(program, params), copy, environment, config["budget_steps"], out)
    if not any((out / "model").iterdir()):
        (out / "model").rmdir()  # a library may have added a suffix: model.zip is found under the name model then


def follow(command: list[str], copy: Path, environment: dict[str, str], steps: int, out: Path) -> None:
    """Run the program to its end, hand on what it reports, and leave the result, or end as it did."""
    printed, reported = Tail(out / "run.log"), Tail(out / "run/progress.jsonl")
    numbers, ended, cancel = Numbers(), [], HERE / "cancel"
    # The program gets the signal too, and once is enough: it is to save then. To ignore it is inherited.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if HOW["at_end"] == "finish" else lambda *one: ended.append(one))
    with (out / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=subprocess.STDOUT)
    with (out / "progress.jsonl").open("a", buffering=1) as progress:
        progress.write("" if HOW["says_ready"] else '{"ready": true}\n')
        has_ended = False
        while not has_ended:
            has_ended = process.poll() is not None
            numbers.read(printed.lines(has_ended))
            progress.writelines(numbers.hand_on(reported.lines(has_ended), steps))
            if cancel.exists():
                action = {"action": "cancel", "reason": cancel.read_text()}
                (out / "run/control.json").write_text(json.dumps(action))
            time.sleep(0 if has_ended else POLL_SECONDS)
    if process.returncode and not ended:
        sys.exit(128 - process.returncode if process.returncode < 0 else process.returncode)
    if ended and HOW["at_end"] == "fail":  # its numbers are those of a part
        sys.exit("the program had not ended when its time was over")
    if HOW["metric"] and not HOW["evaluate"]:
        numbers.leave(out / "result.json")


def evaluate(out: Path, result: Path) -> None:
    """Run the command of the judge where training has never been; its last numbers become the result."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        here = variables(json.loads((out / "params.json").read_text()), 0, Path(folder), copy)
        here.update({"AR_RUN_DIR": str(out / "run"), "AR_MODEL_DIR": str(out / "model")})
        done = subprocess.run(HOW["evaluate"], cwd=copy, env=here, capture_output=True)
    # Warnings come first: one at its exit, which may have a number in it, is not the last word of the evaluation.
    numbers, lines = Numbers(), b"\n".join((done.stderr, done.stdout)).decode("utf-8", "replace").splitlines()
    numbers.read(lines)
    if done.returncode:
        sys.exit(done.returncode)
    if HOW["metric"]:
        numbers.leave(result)
    else:
        result.write_text(json.dumps(last_result(lines)))


def last_result(lines: Iterable[str]) -> dict[str, Any]:
    """The last number that was printed, or a result as the engine takes it, as a line of JSON."""
    for line in reversed([*lines]):
        with suppress(ValueError):
            result = json.loads(line)
            if isinstance(result, dict) and RESULTS & {*result}:
                return result
        if numbers := BARE.findall(SPREAD.sub("", line)):
            return {"score": float(numbers[-1].replace(",", ""))}
    sys.exit('the evaluation printed no number: its last one is the score, or {"score": number}')


if __name__ == "__main__":
    if "--" in sys.argv:
        own, given = sys.argv[: sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
        if re.match(r"python[\d.]*$", Path(given[0]).name):  # whichever was named, it runs this already
            given[0] = sys.executable
        sys.argv, HOW["command"], HOW["evaluate"] = own, given, given
    if sys.argv[1:] == ["act"]:
        runpy.run_path(str(HERE / "act.py"), run_name="__main__")
    elif sys.argv[1:2] == ["judge"]:
        evaluate(*map(Path, sys.argv[2:]))
    else:
        train(Path(*sys.argv[1:]).relative_to("repository").as_posix() if sys.argv[1:] else "")
