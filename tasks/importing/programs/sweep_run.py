"""Runs the program of an imported W&B sweep as its agent would: `python sweep_run.py`.

sweep.json has the command with W&B's macros, config.json the parameters. The program runs in a copy of its files in
`out`, where it may write, and finds a stand-in for wandb.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OWN = ("config.json", "sweep.json", "sweep_run.py", "standin")


def arguments(params: dict[str, Any]) -> dict[str, list[str]]:
    """W&B's macros for the parameters, each as words of the command."""
    flags = [f"--{name}={shown(value)}" for name, value in params.items()]
    switches = [
        f"--{name}" if value is True else f"--{name}={shown(value)}"
        for name, value in params.items()
        if value is not False
    ]
    return {
        "${args}": flags,
        "${args_no_hyphens}": [flag.removeprefix("--") for flag in flags],
        "${args_no_boolean_flags}": switches,
        "${args_json}": [json.dumps(params)],
    }


def shown(value: Any) -> str:
    """A value on a command line: tables and lists as JSON, everything else as Python writes it."""
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def main() -> None:
    config, how = (json.loads((HERE / name).read_text()) for name in ("config.json", "sweep.json"))
    named = {name: json.loads(value) if name in how["as_json"] else value for name, value in config["params"].items()}
    params: dict[str, Any] = {}
    for name, value in {**how["constants"], **named}.items():
        *above, last = how["paths"].get(name, [name])
        table = params
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    out = Path(config["out"])
    work = out / "run"
    work.mkdir(parents=True, exist_ok=True)
    # Two runs may well log the same value, such as a share of right answers.
    (out / "run.json").write_text(json.dumps({"params": config["params"], "seed": config["seed"]}))
    for path in HERE.iterdir():
        if path.name not in OWN and path.resolve() != out.resolve():
            copy = shutil.copytree if path.is_dir() else shutil.copyfile
            copy(path, work / path.name)
    macros = {**arguments(params), "${env}": [], "${interpreter}": [sys.executable], "${program}": [how["program"]]}
    if "${args_json_file}" in how["command"]:
        (work / "args.json").write_text(json.dumps(params))
        macros["${args_json_file}"] = ["args.json"]
    words = [word for given in how["command"] for word in macros.get(given, [given])]
    search = os.pathsep.join(filter(None, [str(HERE / "standin"), str(work), os.environ.get("PYTHONPATH", "")]))
    os.environ.update(
        PYTHONPATH=search, NIGHTSHIFT_SWEEP=str(HERE), WANDB_MODE="offline", PYTHONHASHSEED=str(config["seed"] % 2**32)
    )
    os.chdir(work)
    sys.stdout.flush()
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
