"""A fault of Prefect, met on its own server and worker: a worker that ends when its run is resumed at once.

    python -m benchmarks.prefect_faults [--kills 3] [--database postgresql+asyncpg://...]

The process of a run is killed, and an automation resumes the run, at once or after 30 s. A worker with --limit ends
when it is given a run whose process it still holds ("this borrower is already holding").
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.campaigns import free_port
from benchmarks.lives import Server, until

FLOW = """\
import os, time
from prefect import flow

@flow
def sleeper():
    with open(os.environ["PIDS"], "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    time.sleep(600)
"""
DELAYS = {"at-once": 0, "later": 30}
"""Seconds after a crash at which a run is resumed, by its tag."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Ended workers of Prefect.")
    parser.add_argument("--kills", type=int, default=3, help="processes killed under a worker, each way (3)")
    parser.add_argument("--database", help="a PostgreSQL database for the server; default: SQLite")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing that was started is left
    if options.database:
        os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = options.database
    os.environ |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as name:
        folder = Path(name)
        server = Server.start(folder / "server", free_port())
        try:
            server.wait()
            os.environ |= {"PREFECT_API_URL": server.url, "PREFECT_HOME": name}
            login = tuple(os.environ["PREFECT_API_AUTH_STRING"].split(":"))
            with httpx.Client(base_url=server.url, timeout=90, auth=login) as api:  # type: ignore[arg-type]
                measure(api, options, folder)
        finally:
            server.kill()


def measure(api: httpx.Client, options: argparse.Namespace, folder: Path) -> None:
    for tag, seconds in DELAYS.items():
        post(api, "/automations/", resuming(tag, seconds))
    time.sleep(5)  # the server reads its automations every few seconds
    for tag in DELAYS:
        print(f"worker, resumed {tag}: {worker(api, tag, options.kills, folder)}", flush=True)
    errors = (folder / "server/server.log").read_text(errors="replace").count("database is locked")
    print(f"server: `database is locked` {errors} times in its log")


def resuming(tag: str, seconds: int) -> dict[str, Any]:
    """The automation that resumes Crashed runs with a tag, so many seconds after the crash."""
    trigger: dict[str, Any] = {
        "type": "event", "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "match_related": {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{tag}"},
        "for_each": ["prefect.resource.id"], "threshold": 1,
    }  # fmt: skip
    if seconds:
        trigger |= {"posture": "Proactive", "after": ["prefect.flow-run.Crashed"], "expect": ["prefect.flow-run.*"]}
    else:
        trigger |= {"posture": "Reactive", "expect": ["prefect.flow-run.Crashed"]}
    action = {"type": "change-flow-run-state", "state": "SCHEDULED", "name": "AwaitingRetry"}
    return {"name": f"resume-{tag}", "trigger": trigger | {"within": seconds}, "actions": [action]}


def worker(api: httpx.Client, tag: str, kills: int, folder: Path) -> str:
    """What became of a worker whose run was killed so often."""
    (folder / "sleeper.py").write_text(FLOW)
    (pids := folder / f"pids-{tag}").touch()
    flow = post(api, "/flows/", {"name": "sleeper"})["id"]
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    post(api, "/work_pools/", {"name": tag, "type": "process", "base_job_template": template})
    made = {
        "name": tag, "flow_id": flow, "entrypoint": f"{folder}/sleeper.py:sleeper", "pull_steps": [],
        "work_pool_name": tag, "tags": [tag],
    }  # fmt: skip
    deployment = post(api, "/deployments/", made)["id"]
    run = post(api, f"/deployments/{deployment}/create_flow_run", {"job_variables": {"env": {"PIDS": str(pids)}}})["id"]
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", tag, "--limit", "1"]
    with (folder / f"worker-{tag}.log").open("wb") as log:
        often = os.environ | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
        process = subprocess.Popen(command, env=often, stdout=log, stderr=log)
    try:
        for kill in range(1, kills + 1):
            until(lambda kill=kill: len(pids.read_text().split()) >= kill or process.poll() is not None, 180)  # type: ignore[misc]
            lives = pids.read_text().split()
            if process.poll() is not None:
                said = "already holding" in (folder / f"worker-{tag}.log").read_text()
                return f"ended after {kill - 1} kills" + (", this borrower is already holding" if said else "")
            if len(lives) < kill:
                return f"lives, and the run was not resumed after {kill - 1} kills: {state(api, run)}"
            os.kill(int(lives[-1]), signal.SIGKILL)
        until(lambda: len(pids.read_text().split()) > kills or process.poll() is not None, 180)
        lives = pids.read_text().split()
        return f"{'lives' if process.poll() is None else 'ended'} after {kills} kills, {len(lives)} lives of the run"
    finally:
        for pid in pids.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()


def post(api: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    return api.post(path, json=body).raise_for_status().json()


def state(api: httpx.Client, run: str) -> str:
    return str(api.get(f"/flow_runs/{run}").json()["state_name"])


if __name__ == "__main__":
    main()
