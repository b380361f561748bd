"""`nightshift doctor --for`: what a campaign of one environment would be refused for, or fail of, on this machine.

Nothing is trained; those of prime-rl ask the files and commands that a trial asks, in the trainer's own words.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import environments
from environments import Environment
from environments.plugins import Refused
from flows.cli.doctor import Check, results
from flows.cli.validation import lacking
from tasks import evaluate, train
from tasks.machine.slots import slots_of
from tasks.recipes import output, preparing
from tasks.sandbox.isolation import choose
from tasks.store import workspace
from tasks.system.commands import Unanswered, ask
from tasks.system.slot import VISIBLE
from tasks.system.variables import variables

PRIME_RL_SECONDS = 50.0
"""For torch to be imported, or for `rl --dry-run`."""
BIN = ".venv/bin"
"""Of prime-rl's checkout."""
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


def files(environment: Environment, runs: Path) -> Check:
    """What `env validate` refuses: files, command lines, the judge's packages and settings."""
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    return Check("ok", f"{environment.folder}: files, command lines and judge are in order")


def sandbox(environment: Environment, runs: Path) -> Check:
    """Whether its trials have the sandbox that they need, may read what it lists, and find what they import."""
    level = choose("auto")
    if environment.trainer == "prime_rl" and (level != "bwrap" or environment.network):
        fact = f"prime-rl needs level bwrap without network, and this is {level}, network = {environment.network}"
        return Check("bad", fact, "let bubblewrap make namespaces (docs/gpus.md), and leave network = false")
    if facts := lacking(environment):
        return Check("bad", "; ".join(facts), "install that here, or correct readable and program in environment.toml")
    return Check("ok", f"its trials run at level {level}, and find what they read and import")


def room(environment: Environment, runs: Path) -> Check:
    """The slots for its runs: the GPUs that it needs, or cores."""
    if environment.trainer == "prime_rl" and environment.gpus < 2:
        return Check("bad", f"gpus = {environment.gpus}, and prime-rl needs two", "state gpus = 2 in environment.toml")
    preparing.check_gpus(environment, runs)
    slots = slots_of(environment, runs)
    names = ", ".join(part.name for part in slots.parts)
    return Check("ok", f"runs at the same time: {len(slots.parts)}, on {names}")


def data(environment: Environment, runs: Path) -> Check:
    """Whether what its recipe makes, such as questions and a base model, is there or can be made."""
    folder = preparing.place(environment, runs)
    if folder is None:
        return Check("ok", "it needs no prepared data")
    if made := output.read(folder):
        return Check("ok", f"prepared in {folder}, content {made.content}")
    preparing.check_disk(environment, runs)
    is_bundled = environments.is_bundled(environment.folder)
    typed = environment.name if is_bundled else shlex.quote(str(environment.folder))
    remedy = f"`nightshift env prepare {typed}`, which may need the network and minutes"
    return Check("note", "its data is not prepared yet", remedy)


def checkout(environment: Environment, runs: Path) -> Check:
    """prime-rl's checkout: its programs, and the Python that they are started with."""
    folder = _prime_rl(environment)
    for name in ("rl", "torchrun", "python"):
        if not (folder / BIN / name).is_file():
            raise Refused(f"there is no {folder / BIN / name}")
    python = (folder / BIN / "python").resolve()
    if not any(python.is_relative_to(Path(above).resolve()) for above in ("/usr", *environment.readable)):
        remedy = f"list {python.parents[1]} in readable: docs/gpus.md"
        return Check("bad", f"prime-rl's Python is {python}, which a trial cannot see", remedy)
    return Check("ok", f"prime-rl at {folder}")


def cuda(environment: Environment, runs: Path) -> Check:
    """Whether prime-rl's own Python computes on two GPUs, and has vLLM."""
    two = {VISIBLE: os.environ.get(VISIBLE, "0,1")}
    python = str(_prime_rl(environment) / BIN / "python")
    version = ask([python, "-c", PROBE], PRIME_RL_SECONDS, {**variables(), **two}).strip()
    return Check("ok", f"prime-rl's torch computes on both GPUs: {version}")


def dry_run(environment: Environment, runs: Path) -> Check:
    """Whether prime-rl takes the baseline's files, as an edit of them is checked."""
    with tempfile.TemporaryDirectory(prefix="nightshift-doctor-") as folder:
        out = Path(folder)
        for source, name in workspace.baseline_files(environment):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(source.read_bytes())
        config = {
            "seed": 1, "out": folder, "data": "", "resume": None, "init": None,
            "params": dict(environment.defaults), "budget_steps": environment.budget_steps,
        }  # fmt: skip
        (out / "config.json").write_text(json.dumps(config))
        try:
            ask(["env", "-C", folder, sys.executable, "train.py", "check"], PRIME_RL_SECONDS)
        except Unanswered as unanswered:
            progress = out / "progress.jsonl"
            lines = progress.read_text().splitlines() if progress.exists() else []
            raise Refused(json.loads(lines[-1])["failed"] if lines else str(unanswered)) from unanswered
    return Check("ok", "prime-rl's `rl --dry-run` takes train.toml and the baseline's parameters")


def _prime_rl(environment: Environment) -> Path:
    """The folder of prime-rl's checkout."""
    return Path(str(environment.defaults.get("prime_rl", "")))


OF_ANY = {"environment": files, "sandbox": sandbox, "room": room, "data": data}
OF_PRIME_RL = {"prime_rl": checkout, "cuda": cuda, "dry_run": dry_run}


def check_environment(environment: Environment, runs: Path) -> dict[str, Check]:
    """The checks by name, in the order of the report."""
    checks = OF_ANY | (OF_PRIME_RL if environment.trainer == "prime_rl" else {})
    return results({name: functools.partial(check, environment, runs) for name, check in checks.items()})
