"""A reference endpoint: trains what it is sent, on this machine, for the trainer `http` (docs/other-machines.md).

    ENDPOINT_TOKEN=... python endpoint.py --port 8400 --folder jobs --machines 2

It runs the program that comes with a trial, as you and without a sandbox: start it where that may be. It needs nothing
but Python. With --faults it fails on purpose, to test who asks it: that share of the questions is answered late, with
500, not to the end, or done twice.
"""

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit


class Trial:
    """One training: a folder and a thread, under the key that the engine has chosen."""

    def __init__(self, folder: Path, request: dict, machines: threading.Semaphore) -> None:
        self.folder, self.request, self.machines = folder, request, machines
        self.out, self.program, self.log = folder / "out", folder / "program", folder / "log.txt"
        self.state, self.seconds, self.error, self.asked = "queued", 0.0, "", time.monotonic()
        self.stop, self.kill, self.retry = threading.Event(), threading.Event(), False
        self.out.mkdir(parents=True)
        for name, text in request["program"].items():
            file = self.program / name
            if not file.resolve().is_relative_to(self.program.resolve()):
                raise ValueError(f"{name!r} of the program leads out of its folder")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.program.mkdir(exist_ok=True)
        config = {**request, "out": str(self.out), "data": None}
        (self.program / "config.json").write_text(json.dumps(config))
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        with self.machines:  # as many trainings at once as there are machines; the others are queued
            if not self.kill.is_set():
                try:
                    self.train()
                except Exception as fault:  # noqa: BLE001 (whatever it was, the engine is told)
                    self.state, self.error = "failed", str(fault)

    def train(self) -> None:
        asked, command = self.request, [part.replace("{out}", str(self.out)) for part in self.request["command"]]
        with (self.folder.parent / "starts.txt").open("a") as starts:
            starts.write(f"{self.folder.name}\n")
        self.state = "running"
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.program, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        began, ready, stopped = time.monotonic(), None, None
        while process.poll() is None:
            now, report = time.monotonic(), self.out / "progress.jsonl"
            if ready is None and (
                now - began > asked["startup_seconds"] or (report.exists() and report.stat().st_size)
            ):
                ready = now  # the budget begins
            if stopped is None:
                self.seconds = now - ready if ready else 0.0
                if self.stop.is_set() or self.seconds >= asked["budget_seconds"]:
                    stopped = now
                    os.killpg(process.pid, signal.SIGTERM)  # it may save now, and so may what it has started
            late = stopped is not None and now - stopped > asked["grace_seconds"]
            forgotten = now - self.asked > asked["lease_seconds"]
            if self.kill.is_set() or late or forgotten:
                self.retry = forgotten and stopped is None  # not the program's doing
                break
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever it has started, too
        code = process.wait()
        self.seconds = self.seconds if ready else time.monotonic() - began  # nobody knows what was preparation
        ended = code == 0 or (stopped is not None and code in (-signal.SIGTERM, 143))
        self.error = "" if ended else f"exited with status {code}"
        self.state = "finished" if ended else "failed"

    def status(self) -> dict:
        return {"state": self.state, "seconds": self.seconds, "error": self.error, "retry": self.retry}

    def files(self) -> list:
        found = [path for path in sorted(self.out.rglob("*")) if path.is_file() and not path.is_symlink()]
        sums = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
        return [
            {"path": str(path.relative_to(self.out)), "bytes": path.stat().st_size, "sha256": sums[path]}
            for path in found
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    trials: dict = {}  # noqa: RUF012
    gone: set = set()  # noqa: RUF012 (keys that were removed: a late copy of their start must start nothing)
    lock = threading.Lock()
    folder, machines, token, faults, chance = Path("jobs"), threading.Semaphore(1), "", 0.0, random.Random(0)

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.chance.choice(("late", "500", "cut", "twice")) if self.chance.random() < self.faults else ""
        if fault == "500":
            return self.answer(500, {"error": "a fault on purpose"})
        code, content = self.handle_one(body)
        if fault == "twice":
            code, content = self.handle_one(body)
        if fault == "late":
            time.sleep(3)
        return self.answer(code, content, cut=fault == "cut")

    do_POST = do_DELETE = do_GET

    def answer(self, code: int, content: object, cut: bool = False) -> None:
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut

    def handle_one(self, body: bytes) -> tuple:
        login = self.headers.get("Authorization", "").encode()
        if self.token and not hmac.compare_digest(login, f"Bearer {self.token}".encode()):
            return 401, {"error": "another token"}
        parts, asked = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        _, *words = map(unquote, parts.path.split("/", 4))
        if words == [""]:
            running = sum(trial.state == "running" for trial in self.trials.values())
            return 200, {"protocol": 1, "kept": len(self.trials), "running": running}
        if (self.command, words) == ("POST", ["trials"]):
            return self.start(self.headers["Idempotency-Key"], json.loads(body))
        trial = self.trials.get(words[1]) if len(words) > 1 and words[0] == "trials" else None
        if self.command == "DELETE" and len(words) == 2:
            return self.remove(words[1])
        if trial is None:
            return 404, {"error": "there is no such trial"}
        trial.asked = time.monotonic()
        if (self.command, words[2:]) == ("POST", ["stop"]):
            trial.stop.set()
        if words[2:] == ["progress"]:
            report = trial.out / "progress.jsonl"
            return 200, report.read_bytes()[int(asked["from"][0]) :] if report.exists() else b""
        if words[2:] == ["log"]:
            return 200, trial.log.read_bytes()[-65536:] if trial.log.exists() else b""
        if words[2:] == ["files"]:
            return 200, trial.files()
        if words[2:3] == ["files"]:
            return 200, (trial.out / words[3]).read_bytes()
        return 200, trial.status()

    def start(self, key: str, request: dict) -> tuple:
        with self.lock:
            if key in self.gone:
                return 410, {"error": "this trial was removed"}
            if key not in self.trials:
                name = hashlib.sha256(key.encode()).hexdigest()[:32]
                self.trials[key] = Trial(self.folder / name, request, self.machines)
                self.trials[key].thread.start()
            return 201, {"state": self.trials[key].state, "seconds": self.trials[key].seconds}

    def remove(self, key: str) -> tuple:
        with self.lock:
            self.gone.add(key)
            trial = self.trials.pop(key, None)
        if trial is not None:
            trial.kill.set()
            if trial.state == "running":
                trial.thread.join()
            shutil.rmtree(trial.folder, ignore_errors=True)
        return 200, {}

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=8400)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--folder", type=Path, default=Path("jobs"))
    options.add_argument("--machines", type=int, default=1)
    options.add_argument("--faults", type=float, default=0.0)
    chosen = options.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    Handler.folder, Handler.faults, Handler.token = (
        chosen.folder.resolve(),
        chosen.faults,
        os.getenv("ENDPOINT_TOKEN", ""),
    )
    Handler.machines = threading.Semaphore(chosen.machines)
    ThreadingHTTPServer.handle_error = lambda *_: None  # a client that went away is no error
    server = ThreadingHTTPServer((chosen.host, chosen.port), Handler)
    print(f"trains at http://{chosen.host}:{server.server_port}", flush=True)
    server.serve_forever()
