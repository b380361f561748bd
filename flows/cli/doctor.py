"""The checks of `nightshift doctor` on any machine, a function each. They change nothing and show no secret."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import httpx
import psutil
from rich.filesize import decimal

from environments.plugins import Refused
from flows.server import server_process
from flows.server.api import Api
from tasks.machine.gpus import GpuError, find, processes_on
from tasks.machine.slots import describe
from tasks.remote import jobs
from tasks.sandbox import cgroup, isolation
from tasks.system.commands import Unanswered, ask
from tasks.system.daemon import page_of
from tasks.system.home import REMEDY, home
from tasks.system.redact import without_passwords
from tasks.tracking.connection import locate, without_credentials

LITTLE_DISK, NO_DISK = 10 * 2**30, 2**30
"""Free bytes below which a campaign may fill the disk, and below which it will."""
ASK_SECONDS = 3.0


class Check(NamedTuple):
    """The result of one check."""

    state: Literal["ok", "note", "bad"]
    """`bad` must be fixed; a `note` is good to know."""
    fact: str
    remedy: str = ""
    """What to do; empty where the state is ok."""


def check_machine() -> dict[str, Check]:
    """Every check by its name, in the order of the report. Without a home, those that need one are left out."""
    checks = {"isolation": isolation_level, "gpus": gpus, "machine": machine}
    try:
        runs = home()
    except Refused as fault:
        return results(checks) | {"home": Check("bad", str(fault).removesuffix(f": {REMEDY}"), REMEDY)}
    of_home = {"home": home_folder, "disk": disk, "prefect": prefect, "mlflow": mlflow}
    return results(checks | {name: partial(check, runs) for name, check in of_home.items()} | {"remote": remote})


def results(checks: Mapping[str, Callable[[], Check]]) -> dict[str, Check]:
    """What each check finds; one that cannot be made is bad."""
    found = {}
    for name, check in checks.items():
        try:
            found[name] = check()
        except (OSError, ValueError, Refused, Unanswered, httpx.HTTPError) as fault:  # a bug prints its traceback
            found[name] = Check("bad", without_passwords(str(fault)), "correct that, and try again")
    return found


def isolation_level() -> Check:
    """The sandbox level of trials on this machine, and why no stronger one works."""
    best, *_ = probed = isolation.findings()
    level = next((each.level for each in probed if each.works), "none")
    if best.works:
        limits = (
            "a cgroup limits" if cgroup.find() else "rlimits limit each process, since no cgroup can be made, and not"
        )
        return Check("ok", f"trials run at isolation {level}; {limits} the memory of a whole trial")
    remedy = "allow bwrap to create user namespaces, which a container or AppArmor may forbid"
    if not shutil.which("bwrap"):
        remedy = "install bubblewrap: `apt install bubblewrap`"
    elif "failed to execute" in best.why:
        remedy = f"make the interpreter readable for every user: `chmod -R o+rX {sys.prefix} {sys.base_prefix}`"
    why = "; ".join(f"{each.level} does not work: {each.why}" for each in probed if not each.works)
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
        size = decimal(gpu.memory) if gpu.memory is not None else "memory unknown"
        try:
            users = ", ".join(map(describe, processes_on(gpu.uuid)))
        except GpuError as fault:
            faults.append(f"GPU {gpu.index}: {fault}")
            continue
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
    return Check("ok", f"{ask(['git', '--version']).strip()}; {fact}")


def home_folder(runs: Path) -> Check:
    """Whether the home is writable and private."""
    mode = runs.stat().st_mode & 0o777
    if not os.access(runs, os.W_OK):
        return Check("bad", f"{runs} is not writable", "make it writable, or set NIGHTSHIFT_HOME to another folder")
    if mode & 0o066:  # others may pass through (x), as the user of a database below it must
        return Check("note", f"{runs} is readable by others (mode {mode:04o})", f"`chmod 700 {runs}`")
    return Check("ok", f"{runs} is writable and private (mode {mode:04o})")


def disk(runs: Path) -> Check:
    """Free disk space for campaigns."""
    usage = shutil.disk_usage(runs)
    fact = f"{decimal(usage.free)} of {decimal(usage.total)} free at {runs}"
    if usage.free >= LITTLE_DISK:
        return Check("ok", fact)
    remedy = "`nightshift prune`, or set NIGHTSHIFT_HOME to a folder on a larger disk"
    return Check("bad" if usage.free < NO_DISK else "note", fact, remedy)


def prefect(runs: Path) -> Check:
    """The Prefect server that a campaign would use: whether it answers and takes the login, and its version."""
    url = server_process.stated_server(None, runs) or page_of(runs, "server")
    if url is None:
        return Check("ok", "none runs: a campaign starts its own server and stops it at its end")
    with Api(url, server_process.credentials(url, runs), patience=0) as api:
        api.timeout = httpx.Timeout(ASK_SECONDS)
        version = api.ask("GET", "/admin/version")
    return Check("ok", f"{without_passwords(url)} answers, {version}")


def mlflow(runs: Path) -> Check:
    """Where a campaign that states no tracking is recorded in MLflow, and whether it can be."""
    if (store := locate(None, runs)) is None:
        return Check("ok", "trials are not recorded in MLflow")
    where = without_credentials(store.uri)
    if store.is_served and (status := httpx.get(f"{where}/health", timeout=ASK_SECONDS).status_code) >= 500:
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
