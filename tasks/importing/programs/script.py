"""Runs an imported training script, as it is, in a trial. `script.json` beside this file says which, and how.

    python train.py        trains: `repository/<script>` runs as it would by itself, in a copy that it may write to
    python train.py act    plays the agent that it left, for the control judge

Parameters of a trial become constants of the script: `LEARNING_RATE = 2.5e-4` at its top gets the proposed value. A
parameter that has the value of the import leaves the file's own, so an edit of the constant counts. What the script
prints is also written to `run.log` in `out`.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
HOW: dict[str, Any] = json.loads((HERE / "script.json").read_text())
AGENT = "agent.pkl"
NO_TIME = 1e-9
"""A training time in seconds that is over; not 0, because schedules divide by it."""


class Tee:
    """Standard output, copied into a file."""

    def __init__(self, terminal: TextIO, file: TextIO) -> None:
        self._terminal, self._file = terminal, file

    def write(self, text: str) -> int:
        self._file.write(text)
        return self._terminal.write(text)

    def flush(self) -> None:
        self._file.flush()
        self._terminal.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)


def main() -> None:
    config = json.loads((HERE / "config.json").read_text())
    out = Path(config["out"])
    if sys.argv[1:] == ["act"]:
        act(out / AGENT)
    else:
        train(config, out)


def train(config: dict[str, Any], out: Path) -> None:
    program = types.ModuleType("__main__")
    copy = shutil.copytree(
        HERE / "repository", Path(tempfile.gettempdir()) / "repository", copy_function=shutil.copyfile
    )
    os.chdir(copy)
    sys.path[0] = str(copy)
    script = Path(HOW["script"])
    tree = with_constants(ast.parse(script.read_bytes(), str(script)), changed(config))
    if HOW["hub"]:
        os.environ |= {"HF_HUB_CACHE": HOW["hub"], "HF_HUB_OFFLINE": "1"}
    harness = imported_at(HOW["home"], HOW["harness"])
    if HOW["budget"]:
        setattr(harness, HOW["budget"], config["budget_seconds"])
        signal.signal(signal.SIGTERM, lambda *_: shorten(harness, program))
    if HOW["agent_of"]:
        keep_agents(harness, HOW["agent_of"], out / AGENT)
    for name in imported(tree):  # before the budget begins
        with suppress(ImportError):
            importlib.import_module(name)
    with (out / "progress.jsonl").open("a") as progress:
        progress.write('{"ready": true}\n')
    with (out / "run.log").open("w", buffering=1) as log:
        terminal = sys.stdout
        sys.stdout = Tee(terminal, log)
        program.__dict__["__file__"] = str(script)
        sys.modules["__main__"], sys.argv = program, [str(script)]
        try:
            exec(compile(tree, str(script), "exec", dont_inherit=True), program.__dict__)
        finally:
            sys.stdout = terminal


def shorten(*modules: types.ModuleType) -> None:
    """Let the script find its time to be over where it next looks; what follows its training is still done."""
    for module in modules:
        if HOW["budget"] in module.__dict__:
            setattr(module, HOW["budget"], NO_TIME)


def imported_at(home: str, name: str) -> types.ModuleType:
    """Import a module that finds its data below a home directory: a trial has another one."""
    own = os.environ["HOME"]
    os.environ["HOME"] = home
    try:
        return importlib.import_module(name)
    finally:
        os.environ["HOME"] = own


def changed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The constants that a trial sets: parameters with another value than at the import, and the seed."""
    params, known = config["params"], HOW["constants"]
    values = {name: value for name, value in params.items() if name not in known or known[name] != value}
    return {**values, **dict.fromkeys(HOW["seeds"], config["seed"])}


def with_constants(tree: ast.Module, values: dict[str, Any]) -> ast.Module:
    """The program with other values for constants that it assigns at its top level."""
    missing = set(values)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id in values:
                node.value = ast.copy_location(ast.Constant(values[target.id]), node.value)
                missing.discard(target.id)
    missing -= set(HOW["seeds"])
    if missing:
        raise SystemExit(f"{HOW['script']} assigns no {', '.join(sorted(missing))} at its top level any more")
    return tree


def imported(tree: ast.Module) -> list[str]:
    """The modules that the program imports at its top level."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names


def keep_agents(harness: types.ModuleType, name: str, path: Path) -> None:
    """Leave each agent that the program has evaluated in a file; the last one stays. It is evaluated as ever."""
    import cloudpickle  # type: ignore[import-untyped]

    evaluate = getattr(harness, name)

    def kept(agent: Any, device: Any = "cpu", *args: Any, **options: Any) -> Any:
        half_made = path.with_suffix(".half")
        half_made.write_bytes(cloudpickle.dumps((agent, str(device))))
        half_made.replace(path)
        return evaluate(agent, device, *args, **options)

    setattr(harness, name, kept)


def act(path: Path) -> None:
    """Answer the judge's observations: the same calls as in the repository's own evaluation, one lane at a time."""
    import cloudpickle
    import numpy as np
    import torch

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print is log and cannot garble an answer
    hello = json.loads(sys.stdin.buffer.readline())
    [seen], [taken], lanes = hello["observation"], hello["action"], hello["lanes"]
    torch.manual_seed(hello["seed"])
    agent, device = cloudpickle.loads(path.read_bytes())
    size = math.prod(seen["shape"]) * np.dtype(seen["dtype"]).itemsize
    actions = np.zeros((lanes, *taken["shape"]), taken["dtype"])
    send(answers, b'{"ready": true}\n')
    while frame := sys.stdin.buffer.read(lanes * (2 + size)):
        active = np.frombuffer(frame, "?", lanes)
        observations = np.frombuffer(frame, seen["dtype"], offset=2 * lanes).reshape(lanes, *seen["shape"])
        for lane in np.flatnonzero(active):
            one = torch.tensor(observations[lane], dtype=torch.float32, device=device).unsqueeze(0)
            with torch.no_grad():
                actions[lane] = agent.get_action(one)
        send(answers, actions.tobytes())


def send(answers: Any, data: bytes) -> None:
    answers.write(data)
    answers.flush()


if __name__ == "__main__":
    main()
