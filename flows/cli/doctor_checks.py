"""The checks of `nightshift doctor` on any machine, a function each. They change nothing.

Only the names of keys are shown, of other people's processes only the program, and of an address no password.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from environments.plugins import Refused
from flows.server import server_process
from flows.server.api import Api
from tasks.machine.gpus import Gpu, GpuError, find, processes_on
from tasks.machine.slots import Slots, describe, holder
from tasks.system.commands import Unanswered, ask
from tasks.system.daemon import page_of
from tasks.system.home import REMEDY, home, install_extra
from tasks.system.redact import without_passwords
from tasks.tracking.connection import Store, api_with_blocks, locate, own_database, without_credentials

GIB = 2**30
LITTLE_DISK, NO_DISK = 10 * GIB, GIB
"""Free bytes below which a campaign may fill the disk, and below which it will."""
SECONDS = 10.0
"""For all checks together; those that ask a command or a server give up earlier."""
ASK_SECONDS = 3.0
KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY", "GROQ_API_KEY", "AZURE_API_KEY",
)  # fmt: skip
TRAINING = ("torch", "gymnasium")
LANGUAGE = ("litellm", "transformers", "trl", "vllm", "verifiers", "prime-rl")
SHARED_FILES = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "lustre", "ceph", "gpfs", "beegfs")
"""Beginnings of the types of file systems that several machines share."""
BLOCK = "/block_types/slug/nightshift-tracking/block_documents/name/nightshift"
"""Path of the saved block of blocks/tracking.py in Prefect's API. The answer holds no secrets."""
REMEDIES = {
    "git": "install it: `apt install git`",
    "prefect": "start it, or unset PREFECT_API_URL: campaigns start their own; `nightshift up` restarts ours",
    "mlflow": "start it, make it writable, or change MLFLOW_TRACKING_URI or the saved block nightshift",
}
"""What to do where a check raises."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    state: Literal["ok", "note", "bad"]
    """`bad` must be fixed; a `note` is good to know."""
    fact: str
    remedy: str
    """What to do; empty where the state is ok."""
    details: Mapping[str, object]
    """The same as JSON."""

    def document(self, name: str) -> dict[str, object]:
        """The check as JSON."""
        return {"name": name, "state": self.state, "fact": self.fact, "remedy": self.remedy, **self.details}


def ok(fact: str, **details: object) -> Check:
    return Check("ok", fact, "", details)


def note(fact: str, remedy: str, **details: object) -> Check:
    return Check("note", fact, remedy, details)


def bad(fact: str, remedy: str, **details: object) -> Check:
    return Check("bad", fact, remedy, details)


def check_machine() -> dict[str, Check]:
    """Every check by its name, in the order of the report. Without a home, those that need one are left out."""
    checks: dict[str, Callable[[], Check]] = {
        "isolation": isolation, "limits": limits, "gpus": gpus, "machine": machine, "python": python, "git": git,
        "training": partial(packages, TRAINING, f"bundled trainers need them: `{install_extra('ppo')}`"),
        "language": partial(packages, LANGUAGE, "only needed by proposers and trainers that ask for one"), "keys": keys,
    }  # fmt: skip
    try:
        runs = home()
    except Refused as fault:
        return at_once(checks, REMEDIES) | {"home": bad(str(fault).removesuffix(f": {REMEDY}"), REMEDY)}
    of_home = {
        "home": home_folder, "disk": disk, "slots": slots, "prefect": prefect, "mlflow": mlflow, "remote": remote,
    }  # fmt: skip
    return at_once(checks | {name: partial(check, runs) for name, check in of_home.items()}, REMEDIES)


def at_once(
    checks: Mapping[str, Callable[[], Check]], remedies: Mapping[str, str], seconds: float = SECONDS
) -> dict[str, Check]:
    """The results in the given order, each check in a thread of its own: a dead driver or mount holds nothing up.

    Args:
        remedies: What to do where a check raises, by its name.
    """
    results = {name: bad(f"no result within {seconds:g} s", "try again; if it remains, fix that") for name in checks}

    def work(name: str, check: Callable[[], Check]) -> None:
        try:
            results[name] = check()
        except (OSError, ValueError, Refused, Unanswered, httpx.HTTPError) as fault:  # a bug prints its traceback
            results[name] = bad(without_passwords(str(fault)), remedies.get(name, "correct that, and try again"))

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in checks.items()]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    return dict(results)


def isolation() -> Check:
    """The sandbox level of trials on this machine, and why no stronger one works."""
    from tasks.sandbox.isolation import findings

    best, *_ = probed = findings()
    level = next((each.level for each in probed if each.works), "none")
    details = {"level": level, "levels": [asdict(each) for each in probed]}
    if best.works:
        return ok(f"trials run at isolation {level}", **details)
    if not shutil.which("bwrap"):
        remedy = "install bubblewrap: `apt install bubblewrap`"
    elif "failed to execute" in best.why:
        remedy = f"make the interpreter readable for every user: `chmod -R o+rX {sys.prefix} {sys.base_prefix}`"
    else:
        remedy = "allow bwrap to create user namespaces, which a container or AppArmor may forbid"
    why = "; ".join(f"{each.level} does not work: {each.why}" for each in probed if not each.works)
    if level == "none":
        fact = f"trials run without a sandbox and could reach your files, so code edits are refused: {why}"
        return bad(fact, remedy, **details)
    return note(f"trials run at isolation {level}; {why}", remedy, **details)


def limits() -> Check:
    """How the memory and the number of processes of a trial are limited."""
    from tasks.sandbox import cgroup

    if group := cgroup.find():
        fact = f"a cgroup (version {group.version}) limits the memory and the processes of a whole trial"
        return ok(fact, cgroup=group.version)
    remedy = "run nightshift as root, or in a systemd scope: `systemd-run --user --scope nightshift ...`"
    if os.geteuid() == 0:
        remedy = "root may lack them in a container: limit the whole container, such as by `docker run --memory`"
    fact = "no cgroup can be created: rlimits limit the memory of each process of a trial alone"
    return note(fact, remedy, cgroup=None)


def gpus() -> Check:
    """Each GPU with its memory and the processes that use it; another program would slow training down."""
    found, faults = find()
    if not found and not faults:
        remedy = "if the machine has a GPU, install NVIDIA's driver"
        return note("no GPU with NVIDIA's driver: programs train on the CPU", remedy, gpus=[])
    users: dict[str, list[int]] = {}
    for gpu in found:
        try:
            users[gpu.uuid] = processes_on(gpu.uuid)
        except GpuError as fault:
            faults.append(f"GPU {gpu.index}: {fault}")
    details = [
        {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory, "used_bytes": gpu.used,
         "used_by": users.get(gpu.uuid, [])}
        for gpu in found
    ]  # fmt: skip
    fact = "; ".join([*(_describe_gpu(gpu, users.get(gpu.uuid, [])) for gpu in found), *faults])
    if faults:
        return (note if found else bad)(fact, "run `nvidia-smi`", gpus=details)
    if any(users.values()):
        return note(fact, "wait for the programs, or choose a free GPU with CUDA_VISIBLE_DEVICES", gpus=details)
    return ok(fact, gpus=details)


def _describe_gpu(gpu: Gpu, users: Sequence[int]) -> str:
    size = gib(gpu.memory) if gpu.memory is not None else "memory unknown"
    used = f"used by {', '.join(map(describe, users))}" if users else "free"
    return f"{gpu.index}: {gpu.name}, {size}, {used}"


def machine() -> Check:
    """Memory and cores."""
    memory, cores = psutil.virtual_memory(), len(os.sched_getaffinity(0))
    fact = f"{gib(memory.total)} of memory, {gib(memory.available)} of it free; {cores} core{'s' * (cores > 1)}"
    return ok(fact, memory_bytes=memory.total, memory_free_bytes=memory.available, cores=cores)


def python() -> Check:
    """The interpreter, which every `python` of a train_cmd is too. pip refuses to install us under another version."""
    version = platform.python_version()
    return ok(f"Python {version} at {sys.executable}", version=version)


def git() -> Check:
    """Git stores the lineage of a campaign, one commit per trial."""
    version = ask(["git", "--version"]).removeprefix("git version ").strip()
    return ok(f"git {version}", version=version)


def packages(names: Sequence[str], remedy: str) -> Check:
    """The versions of these distributions; nothing is imported."""
    versions: dict[str, str | None] = dict.fromkeys(names)
    for distribution in importlib.metadata.distributions():
        if distribution.name.lower() in versions:
            versions[distribution.name.lower()] = distribution.version
    fact = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing := [name for name, version in versions.items() if not version]:
        return note(f"not installed: {', '.join(missing)}; installed: {fact or 'none'}", remedy, parts=versions)
    return ok(fact, parts=versions)


def keys() -> Check:
    """The keys of LLM services that are set, by name."""
    if stated := [name for name in KEYS if os.environ.get(name, "").strip()]:
        return ok(f"set: {', '.join(stated)}", keys=stated)
    remedy = f"proposers that ask an LLM need one: `export {KEYS[0]}=...`, or another's"
    return note("no key for an LLM service is set", remedy, keys=[])


def home_folder(runs: Path) -> Check:
    """Whether the home is writable, private, and on a disk of this machine."""
    mode, kind = runs.stat().st_mode & 0o777, _file_system(runs)
    details = {"path": str(runs), "mode": f"{mode:04o}", "file_system": kind}
    try:
        with tempfile.TemporaryFile(dir=runs) as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        remedy = "make it writable, or set NIGHTSHIFT_HOME to another folder"
        return bad(f"{runs} is not writable: {fault.strerror}", remedy, **details)
    if mode & 0o066:  # others may pass through (x), as the user of a database below it must
        return note(f"{runs} is readable by others (mode {mode:04o})", f"`chmod 700 {runs}`", **details)
    if kind.startswith(SHARED_FILES):
        fact = f"{runs} is on {kind}, where locks may be missing and the databases of our servers may break"
        return note(fact, "set NIGHTSHIFT_HOME to a folder on a disk of this machine", **details)
    return ok(f"{runs} is writable and private (mode {mode:04o})", **details)


def _file_system(folder: Path) -> str:
    """The type of the file system that holds a folder; empty where the system does not say."""
    types = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    real = folder.resolve()
    return next((types[above] for above in (real, *real.parents) if above in types), "")


def disk(runs: Path) -> Check:
    """Free disk space for campaigns."""
    usage = shutil.disk_usage(runs)
    fact = f"{gib(usage.free)} of {gib(usage.total)} free at {runs}"
    if usage.free >= LITTLE_DISK:
        return ok(fact, free_bytes=usage.free, total_bytes=usage.total)
    remedy = "`nightshift prune`, or set NIGHTSHIFT_HOME to a folder on a larger disk"
    return (bad if usage.free < NO_DISK else note)(fact, remedy, free_bytes=usage.free, total_bytes=usage.total)


def slots(runs: Path) -> Check:
    """Slots that are held: GPUs of this machine, and the cores of this home."""
    every = {**Slots.of_gpus(find()[0]).locks, **Slots.of_cores(runs).locks}
    held = {name: pid for name, (lock,) in every.items() if (pid := holder(lock))}
    fact = "; ".join(f"{name} is held by {describe(pid)}" for name, pid in held.items())
    return ok(fact or "none is held", slots=[{"name": name, "held_by": pid} for name, pid in held.items()])


def prefect(runs: Path) -> Check:
    """The Prefect server that a campaign would use: whether it answers and takes the login, and its version."""
    url = server_process.stated_server(None, runs) or page_of(runs, "server")
    if url is None:
        return ok("none runs: a campaign starts its own server and stops it at its end", url=None, version=None)
    version, shown = _ask_prefect(url, runs, "/admin/version"), without_passwords(url)
    return ok(f"{shown} answers, {version}", url=shown, version=version)


def _ask_prefect(url: str, runs: Path, path: str) -> Any:
    """An answer of a Prefect server. Raises httpx.HTTPError or ValueError without one."""
    with Api(url, server_process.credentials(url, runs), patience=0) as api:
        api.timeout = httpx.Timeout(ASK_SECONDS)
        return api.ask("GET", path)


def mlflow(runs: Path) -> Check:
    """Where a campaign that states no tracking is recorded in MLflow, and whether it can be.

    It is found as tracking does, but without importing Prefect: the saved block, the variable, the home's database.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or own_database(runs)
    if api := api_with_blocks(runs):
        try:
            uri = str(_ask_prefect(api.rstrip("/"), runs, BLOCK)["data"]["uri"])
        except httpx.HTTPError as fault:
            if not (isinstance(fault, httpx.HTTPStatusError) and fault.response.status_code == httpx.codes.NOT_FOUND):
                fact = f"where trials are recorded, the Prefect server may say: {without_passwords(str(fault))}"
                return note(fact, "correct prefect first", uri=None)
    if (store := locate(uri, runs)) is None:
        return ok("trials are not recorded in MLflow", uri="off")
    where = without_credentials(store.uri).partition("?")[0]
    if why := _unwritable(store):
        return bad(f"trials are recorded in {where}; {why}", REMEDIES["mlflow"], uri=where)
    return ok(f"trials are recorded in {where}", uri=where)


def _unwritable(store: Store) -> str:
    """Why nothing can be recorded there; empty when nothing is known against it."""
    if store.is_served:
        try:
            answer = httpx.get(f"{without_credentials(store.uri)}/health", timeout=ASK_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as silent:
            return f"no MLflow server answers there: {silent}"
        return f"it answers {answer.status_code}" if answer.status_code >= 500 else ""  # a proxy may want a login
    if not store.uri.startswith("sqlite"):
        return ""
    path = Path(store.uri.removeprefix("sqlite:///"))
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    return "" if os.access(above, os.W_OK) else f"{above} is not writable"


def remote(runs: Path) -> Check:
    """Trials on other machines that no process follows, for which somebody may pay."""
    from tasks.remote import jobs

    keys = [job.key for job in jobs.unfollowed()]
    if not keys:
        return ok("no trial on another machine is left alone", keys=keys)
    fact = f"{len(keys)} trial{'s' * (len(keys) > 1)} on other machines that nobody follows: {', '.join(keys[:3])}"
    return note(fact, "`nightshift resume` goes on with its campaign's, `nightshift prune` removes all", keys=keys)


def gib(size: float) -> str:
    """A number of bytes, for people."""
    return f"{size / GIB:.1f} GiB"
