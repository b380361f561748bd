"""`inference`: a router, and the engine that it starts and waits for. Both answer /health."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.fake_prime_rl.common import (
    CHECKOUT,
    Below,
    at,
    failed,
    for_ever,
    leave_alone,
    listen,
    log,
    mode_of,
    read,
    vllm,
)

SCRIPT = "import sys; sys.path.insert(0, {source!r}); from tests.support.fake_prime_rl import serving; serving.engine(sys.argv[1:])"
HOLDER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
TAKEN = (
    "ValueError: Free memory on device (3.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 "
    "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


def main(arguments: list[str]) -> int:
    config, below = read(arguments[1]), Below()
    mode, port = mode_of(config["run_dir"]), int(at(config, "server.port", 8000))
    try:
        if mode == "port taken":
            raise OSError
        held = listen(port + 21_000)
    except OSError:
        failed(
            f"OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', {port}): address already in use"
        )
        return 1
    source = str(Path(__file__).parents[3])
    command = [sys.executable, "-SBc", SCRIPT.format(source=source), mode, str(at(config, "backend_port", 8100))]
    engine = below.start(*command)
    if mode == "orphan":
        leave()
    while not is_healthy(int(command[-1])):
        if engine.poll() is not None:
            failed(
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
                f"{{'EngineCore_DP0': {engine.returncode}}}",
                vllm("APIServer"),
            )
            return 1
        time.sleep(0.05)
    log(f"vLLM API server is ready on port {port}")
    with held:
        return serve(port)


def engine(arguments: list[str]) -> None:
    """The engine: what answers on GPU 0."""
    mode, port, parent = arguments
    leave_alone(parent)
    words = TAKEN if mode == "memory taken" else ""
    if os.environ.get("VLLM_USE_FLASHINFER_SAMPLER") != "0":  # which is compiled at the start
        words = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
    if words:
        failed(words, vllm("EngineCore_DP0"))
        raise SystemExit(1)
    if mode == "hangs at start":
        for_ever()
    raise SystemExit(serve(int(port)))


def leave() -> None:
    """Start a process that nobody above waits for."""
    if os.fork() == 0:
        subprocess.Popen([sys.executable, "-SBc", HOLDER, str(CHECKOUT)], env={}, start_new_session=True)
        os._exit(0)
    os.wait()


def is_healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def serve(port: int) -> int:
    try:
        ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()
    except OSError as taken:
        failed(f"OSError: {taken}")
    return 1


class Answers(BaseHTTPRequestHandler):
    """The little of vLLM's server that is asked for: /health."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed for a request."""
