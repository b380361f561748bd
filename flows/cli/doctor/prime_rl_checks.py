"""Checks of a machine for prime-rl: its checkout, two free GPUs, CUDA in its own Python, and its `rl --dry-run`.

They ask the same files and commands as a trial does, in the trainer's own words.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import Environment, plugins
from flows.cli.doctor.machine import Check
from tasks.store.workspace import TRAINERS, baseline_files
from tasks.system.commands import Unanswered, ask
from tasks.system.slot import VISIBLE

if TYPE_CHECKING:
    from prime_rl_parts.run import Run

SECONDS = 50.0
"""For torch to be imported, or for `rl --dry-run`."""
PROBE = """\
import importlib.util
try:
    import torch
    for number in range(2):
        torch.zeros(1, device=f"cuda:{number}")
except Exception as fault:
    raise SystemExit(f"{type(fault).__name__}: {fault}")
if lacking := [name for name in ("prime_rl", "vllm", "verifiers") if importlib.util.find_spec(name) is None]:
    raise SystemExit(f"no module named {lacking[0]}")
print(torch.__version__, "with CUDA", torch.version.cuda)
"""
"""Of prime-rl's Python: torch itself says where the driver is too old, or has no kernels for a GPU."""
PAGE = "docs/two-gpus.md, step {}"


def checks(environment: Environment, home: Path) -> Mapping[str, Callable[[], Check]]:
    """The checks by name, in the order of the report, with what to do where one cannot even be made."""
    each: dict[str, tuple[Callable[[Environment, Run], Check], str]] = {
        "prime_rl": (checkout, PAGE.format(2)),
        "two_gpus": (two_gpus, f"`nvidia-smi` shows who uses them; {PAGE.format(1)}"),
        "cuda": (cuda, f"a newer driver, {PAGE.format(1)}, or `uv sync`, {PAGE.format(2)}"),
        "dry_run": (dry_run, "correct train.toml or the parameters: the keys are prime-rl's own"),
    }
    return {name: partial(_held, name, check, remedy, environment) for name, (check, remedy) in each.items()}


def _held(name: str, check: Callable[[Environment, Run], Check], remedy: str, environment: Environment) -> Check:
    """The check's result; what ends a training of the same settings is a thing to fix."""
    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:  # as in a workspace, where the parts are beside it
        sys.path.append(folder)
    from prime_rl_parts import Failed
    from prime_rl_parts.run import Run, Settings

    try:
        with tempfile.TemporaryDirectory(prefix="nightshift-doctor-") as aside:
            return check(environment, Run(_config(environment, aside), Settings.split(environment.defaults)[0]))
    except (Failed, Unanswered) as failed:
        return Check(name, "bad", str(failed).removeprefix("refused: "), remedy)


def _config(environment: Environment, out: str) -> dict[str, Any]:
    """A trial's config.json."""
    common = {"seed": 1, "out": out, "data": "", "resume": None, "init": None}
    return {**common, "params": dict(environment.defaults), "budget_steps": environment.budget_steps}


def checkout(environment: Environment, run: Run) -> Check:
    """prime-rl's checkout: its commit, its programs, and the Python that they are started with."""
    from prime_rl_parts.machine import commit_of

    home, wanted = Path(run.settings.prime_rl), run.settings.prime_rl_commit
    commit = commit_of(home)
    details = {"path": str(home), "commit": commit or None}
    for name in ("rl", "torchrun"):
        if not (run.bin / name).is_file():
            fact = f"there is no {run.bin / name}"
            return Check("prime_rl", "bad", fact, f"`uv sync`, or set fixed.prime_rl: {PAGE.format(2)}", details)
    fact = f"{home} is at commit {commit[:12] or 'unknown'}"
    if not commit.startswith(wanted):
        remedy = f"`git -C {home} checkout --detach {wanted}` and `uv sync`, or --set fixed.prime_rl_commit=''"
        return Check("prime_rl", "bad", f"{fact}, and prime_rl_commit is {wanted}", remedy, details)
    python = (run.bin / "python").resolve()
    visible = (Path("/usr"), *map(Path.resolve, map(Path, environment.readable)))
    if python.exists() and not any(python.is_relative_to(folder) for folder in visible):
        fact = f"{fact}; its Python is {python}, which a trial cannot see"
        return Check("prime_rl", "bad", fact, f"list {python.parents[1]} in readable: {PAGE.format(2)}", details)
    return Check("prime_rl", "ok", fact, details=details)


def two_gpus(environment: Environment, run: Run) -> Check:
    """Whether the two GPUs of a trial are there, and their memory is free."""
    from prime_rl_parts.machine import taken

    _choose(run)
    details = {"gpus": list(run.gpus)}
    if held := taken(run):
        remedy = "end the programs that use them, or choose others with CUDA_VISIBLE_DEVICES"
        return Check("two_gpus", "bad", "; ".join(held.values()), remedy, details)
    first, second = run.gpus
    return Check("two_gpus", "ok", f"GPU {first} serves, GPU {second} trains, and both are free", details=details)


def _choose(run: Run) -> None:
    """Choose the GPUs as a trial does. Raises Failed where there are fewer, or nvidia-smi does not answer."""
    from prime_rl_parts import Failed
    from prime_rl_parts.machine import ask as ask_gpus
    from prime_rl_parts.machine import choose_gpus

    gpus = [(int(number), uuid) for number, uuid in ask_gpus(run, "gpu=index,uuid")]
    if not gpus:
        raise Failed("nvidia-smi is not installed, or lists no GPU")
    run.gpus = choose_gpus(gpus, os.environ.get(VISIBLE))


def cuda(environment: Environment, run: Run) -> Check:
    """Whether prime-rl's own Python computes on both GPUs, and has its packages."""
    _choose(run)
    python = run.bin / "python"
    if not python.exists():
        return Check("cuda", "bad", f"there is no {python}", PAGE.format(2))
    return Check("cuda", "ok", f"prime-rl's torch {ask([str(python), '-c', PROBE], SECONDS, run.variables()).strip()}")


def dry_run(environment: Environment, run: Run) -> Check:
    """Whether prime-rl takes the baseline's files, as an edit of them is checked."""
    from prime_rl_parts import Failed

    if not (run.bin / "rl").is_file():
        return Check("dry_run", "note", f"there is no {run.bin / 'rl'} to ask", "fix prime_rl first")
    out = Path(run.config["out"])
    for source, name in baseline_files(environment):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(source.read_bytes())
    (out / "config.json").write_text(json.dumps(run.config))
    command = ["env", "-C", str(out), sys.executable, "train.py", "check"]
    try:
        ask(command, SECONDS)
    except Unanswered as unanswered:
        lines = (out / "progress.jsonl").read_text().splitlines() if (out / "progress.jsonl").exists() else []
        raise Failed(json.loads(lines[-1])["failed"] if lines else str(unanswered)) from unanswered
    return Check("dry_run", "ok", "prime-rl's `rl --dry-run` takes train.toml and the baseline's parameters")
