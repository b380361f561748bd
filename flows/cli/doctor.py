"""`nightshift doctor`: whether this machine is ready, and with `--for` whether it is for one environment.

A function is a check. They change nothing, train nothing and show no secret.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import httpx
import psutil
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from environments import Environment
from environments.plugins import Refused
from flows.cli.arguments import overrides_only
from flows.cli.options import Json, Settings, Trust
from flows.server import server_process
from flows.spec import permissions
from flows.views import terminal
from tasks import preparing
from tasks.imports import lacking
from tasks.machine.gpus import GpuError, find, processes_on
from tasks.machine.slots import VISIBLE, Slots, describe, slots_of
from tasks.remote import jobs
from tasks.sandbox import cgroup, isolation
from tasks.sandbox.confinement import LEVELS
from tasks.store import workspace
from tasks.store.ledger import freeze
from tasks.system.daemon import Daemon
from tasks.system.home import home
from tasks.system.redact import one_line, without_passwords
from tasks.tracking.connection import locate, without_credentials
from tasks.trial import Proposal

LITTLE_DISK, NO_DISK = 10 * 2**30, 2**30
"""Free bytes below which a campaign may fill the disk, and below which it will."""
CUDA_SECONDS = 50.0
"""For prime-rl's torch to be imported, and to compute."""
PROBE = """\
import importlib.util, torch
for number in range(2):
    torch.zeros(1, device=f"cuda:{number}")
for name in ("prime_rl", "vllm", "verifiers"):
    assert importlib.util.find_spec(name), f"no module named {name}"
"""
"""For prime-rl's Python: torch itself says where the driver is too old, or has no kernels for a GPU."""
MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


class Check(NamedTuple):
    """The result of one check: `bad` must be fixed, a `note` is good to know."""

    state: Literal["ok", "note", "bad"]
    fact: str
    remedy: str = ""


def doctor(*, for_: str | None = None, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Check whether this machine is ready, for one environment too. Changes nothing.

    Example: nightshift doctor --for gsm8k

    Args:
        for_: Also check whether a campaign of this environment can run here.
    """
    if for_ is None and (set_ or trust):
        raise Refused("--set and --trust are about an environment: name it with --for ENVIRONMENT")
    checks = results(OF_MACHINE)
    if for_ is not None and checks["home"].state != "bad":  # else nothing can run, and the report says why
        overrides = overrides_only(set_ or [])
        checks |= check_environment(permissions.require_named(for_, overrides, trust))
    bad = sum(check.state == "bad" for check in checks.values())
    if json:
        documents = [{"name": name, **check._asdict()} for name, check in checks.items()]
        terminal.print_json({"healthy": not bad, "checks": documents})
        return 1 if bad else 0
    table = Table.grid(padding=(0, 2))
    for name, check in checks.items():
        remedy = f" → {terminal.clean(check.remedy)}" if check.remedy else ""
        table.add_row(Text(*MARKS[check.state]), name, Text(f"{terminal.clean(check.fact)}{remedy}"))
    terminal.put(terminal.console(), table)
    print(f"{bad} thing{'s' * (bad > 1)} to fix" if bad else "healthy")
    return 1 if bad else 0


def results(checks: Mapping[str, Callable[..., Check]], *about: Environment) -> dict[str, Check]:
    """What each check says; one that cannot be made is bad."""
    results = {}
    for name, check in checks.items():
        try:
            results[name] = check(*about)
        # A bug prints its traceback.
        except (OSError, ValueError, Refused, subprocess.SubprocessError, httpx.HTTPError, httpx.InvalidURL) as fault:
            results[name] = Check("bad", without_passwords(str(fault)), "correct that, and try again")
    return results


def isolation_level() -> Check:
    """The sandbox level of trials on this machine, and why no stronger one works."""
    level, *_ = isolation.working()
    if level == LEVELS[0]:
        limit = "a cgroup for a whole trial" if cgroup.find() else "rlimits for each process: no cgroup can be made"
        return Check("ok", f"trials run at isolation {level}; limits of memory: {limit}")
    faults = {each: isolation.why_not(each) for each in LEVELS}
    why = "; ".join(f"{each} does not work: {fault}" for each, fault in faults.items() if fault)
    remedy = (
        "install bubblewrap, let it create user namespaces, which a container or AppArmor may forbid, and make "
        f"{sys.prefix} and {sys.base_prefix} readable for every user (`chmod -R o+rX`)"
    )
    if level == "none":
        return Check("bad", f"trials run without a sandbox, and code edits are refused: {why}", remedy)
    return Check("note", f"trials run at isolation {level}; {why}", remedy)


def gpus() -> Check:
    """Each GPU with its memory and the processes that use it; another program would slow training down."""
    visible, faults = find()
    if not visible and not faults:
        remedy = "if the machine has a GPU, install NVIDIA's driver"
        return Check("note", "no GPU with NVIDIA's driver: programs train on the CPU", remedy)
    facts, remedy = [], ""
    for gpu in visible:
        try:
            users = ", ".join(map(describe, processes_on(gpu.uuid)))
        except GpuError as fault:
            faults.append(f"GPU {gpu.index}: {fault}")
            continue
        size = decimal(gpu.memory) if gpu.memory is not None else "memory unknown"
        facts.append(f"{gpu.index}: {gpu.name}, {size}, {f'used by {users}' if users else 'free'}")
        if users:
            remedy = "wait for the programs, or choose a free GPU with CUDA_VISIBLE_DEVICES"
    if faults:
        return Check("note" if visible else "bad", "; ".join([*facts, *faults]), "run `nvidia-smi`")
    return Check("note" if remedy else "ok", "; ".join(facts), remedy)


def machine() -> Check:
    """The interpreter, which every `python` of a train_cmd is too; git, which stores the lineage; cores and memory."""
    memory, cores = decimal(psutil.virtual_memory().total), len(os.sched_getaffinity(0))
    fact = f"Python {platform.python_version()} at {sys.executable}; cores: {cores}; memory: {memory}"
    if shutil.which("git") is None:
        return Check("bad", f"git is not installed; {fact}", "install it: `apt install git`")
    return Check("ok", f"{subprocess.check_output(['git', '--version'], text=True).strip()}; {fact}")


def home_folder() -> Check:
    """Whether the home is writable and private, and its disk has room for campaigns."""
    runs = home()
    mode, free = runs.stat().st_mode & 0o777, shutil.disk_usage(runs).free
    fact = f"{runs}, mode {mode:04o}, {decimal(free)} free"
    if not os.access(runs, os.W_OK):
        return Check("bad", f"{fact}: not writable", "make it writable, or set NIGHTSHIFT_HOME to another folder")
    if free < LITTLE_DISK:
        remedy = "`nightshift prune`, or set NIGHTSHIFT_HOME to a folder on a larger disk"
        return Check("bad" if free < NO_DISK else "note", fact, remedy)
    if mode & 0o066:  # others may pass through (x), as the user of a database below it must
        return Check("note", f"{fact}: readable by others", f"`chmod 700 {runs}`")
    return Check("ok", fact)


def prefect() -> Check:
    """The Prefect server that a campaign would use: whether it answers and takes the login, and its version."""
    note = Daemon(home() / ".prefect", "server").living()
    if not (url := server_process.stated_server(None, home()) or (note and note.url)):
        return Check("ok", "none runs: a campaign starts its own server and stops it at its end")
    return Check("ok", f"{without_passwords(url)} answers, {server_process.version(url, home())}")


def mlflow() -> Check:
    """Where a campaign that states no tracking is recorded in MLflow, and whether it can be."""
    if (store := locate(None, home())) is None:
        return Check("ok", "trials are not recorded in MLflow")
    where = without_credentials(store.uri)
    if where.startswith("http") and (status := httpx.get(f"{where}/health").status_code) >= 500:
        # below, a proxy may want a login
        return Check("bad", f"the MLflow server at {where} answers {status}", "see its log")
    return Check("ok", f"trials are recorded in {where.partition('?')[0]}")


def remote() -> Check:
    """Trials on other machines that no process follows, for which somebody may pay."""
    keys = [job.key for job in jobs.unfollowed()]
    if not keys:
        return Check("ok", "no trial on another machine is left alone")
    fact = f"{len(keys)} on other machines that nobody follows: {', '.join(keys[:3])}"
    return Check("note", fact, "`nightshift resume` goes on with its campaign's, `nightshift prune` removes all")


OF_MACHINE = {
    "isolation": isolation_level, "gpus": gpus, "machine": machine, "home": home_folder,
    "prefect": prefect, "mlflow": mlflow, "remote": remote,
}  # fmt: skip


def files(environment: Environment) -> Check:
    """What `env validate` refuses, and whether trials have their sandbox, and find there what they read and import."""
    from flows.spec.campaign_spec import check_environment

    check_environment(environment, here=False)
    level = isolation.choose("auto")
    if environment.trainer == "prime_rl" and (level != "bwrap" or environment.network):
        fact = f"prime-rl needs level bwrap without network, and this is {level}, network = {environment.network}"
        return Check("bad", fact, "let bubblewrap make namespaces (docs/gpus.md), and leave network = false")
    if facts := lacking(environment):
        return Check("bad", "; ".join(facts), "install that here, or correct readable and program in environment.toml")
    return Check("ok", f"{environment.folder} is in order; its trials run at level {level}")


def room(environment: Environment) -> Check:
    """The slots for its runs: the GPUs that it needs, or cores."""
    if environment.trainer == "prime_rl" and environment.gpus < 2:
        return Check("bad", f"gpus = {environment.gpus}, and prime-rl needs two", "state gpus = 2 in environment.toml")
    slots = slots_of(environment)
    names = ", ".join(part.name for part in slots.parts)
    return Check("ok", f"runs at the same time: {len(slots.parts)}, on {names}")


def data(environment: Environment) -> Check:
    """Whether what its recipe makes, such as questions and a base model, is there or can be made."""
    folder = preparing.place(environment, home())
    if folder is None:
        return Check("ok", "it needs no prepared data")
    if made := preparing.read(folder):
        return Check("ok", f"prepared in {folder}, content {made.content}")
    remedy = f"`nightshift env prepare {shlex.quote(str(environment.folder))}`, which may need the network and minutes"
    return Check("note", "its data is not prepared yet", remedy)


def dry_run(environment: Environment) -> Check:
    """Whether prime-rl takes the baseline's files, in the sandbox of a trial, as an edit of them is checked."""
    from tasks.proposing.validation import ProposalChecks

    if not (program := _programs(environment) / "rl").is_file():
        raise Refused(f"there is no {program}")
    with tempfile.TemporaryDirectory(prefix="nightshift-doctor-") as folder:
        place, sandbox = Path(folder), isolation.Isolation(isolation.choose("auto"))
        place.chmod(0o755)
        freeze(environment, place)
        aside = workspace.TrialDir(place / "trials/doctor")
        checked = environment.model_copy(update={"check_cmd": "python train.py check"})  # prime-rl's trainer has it
        checks = ProposalChecks(checked, sandbox, place / "program", aside, f"doctor-{os.getpid()}", Slots.of_cores(0))
        if fault := checks.smoke(Proposal(environment.defaults), seed=1):
            return Check("bad", fault, "docs/gpus.md: prime-rl and its Python lie in what `readable` lists, or /usr")
    return Check("ok", "prime-rl's `rl --dry-run` takes train.toml and the baseline's parameters")


def cuda(environment: Environment) -> Check:
    """Whether prime-rl's own Python computes on two GPUs, and has vLLM."""
    two = {VISIBLE: os.environ.get(VISIBLE, "0,1")}
    done = subprocess.run(
        [str(_programs(environment) / "python"), "-c", PROBE], env={**os.environ, **two}, timeout=CUDA_SECONDS,
        capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        why = one_line(done.stderr[-300:], 300) or f"status {done.returncode}"
        return Check("bad", why, "correct that, and try again")
    return Check("ok", "prime-rl's torch computes on both GPUs")


def _programs(environment: Environment) -> Path:
    """The folder of the programs in prime-rl's checkout."""
    return Path(str(environment.defaults.get("prime_rl", "")), ".venv/bin")


OF_ANY = {"environment": files, "room": room, "data": data}
OF_PRIME_RL = {"dry_run": dry_run, "cuda": cuda}


def check_environment(environment: Environment) -> dict[str, Check]:
    """The checks by name, in the order of the report."""
    return results(OF_ANY | (OF_PRIME_RL if environment.trainer == "prime_rl" else {}), environment)
