"""Serves a model with `vllm serve` for as long as its standard input is open. A program: it imports nothing of ours.

    python -I _serve.py MODEL NAME START_SECONDS VLLM [ARGUMENT ...]

It writes a line of JSON when the server can be asked, `{"port": 41234, "stop_token_ids": [2]}`, and one when all of it
is gone, `{"ended": true}`; `{"failed": reason}` in place of either. Standard input at its end means: end the server. So
it also ends when whoever started this is killed.

The server's processes are found by a mark in their environment. Killed alone, vLLM's front leaves the engine
behind, and with it the memory of the GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path
from typing import IO

MARK = "NIGHTSHIFT_SERVER"
"""The environment variable by which the server's processes are found."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled by nvcc at the start, and only top-k and top-p need it
    "SPT_NOENV": "1",  # otherwise its processes overwrite their environment, and the mark, with their title
}  # fmt: skip
LOOK_SECONDS, HEALTH_SECONDS, TOKEN_SECONDS = 0.25, 5.0, 60.0
STOP_SECONDS, KILL_SECONDS, MEMORY_SECONDS = 20.0, 10.0, 60.0
MEMORY_MIB = 1024
"""Additional GPU memory that may be in use after the server has ended: other processes come and go."""
CAUSE = re.compile(r"\b[A-Z]\w*(Error|Exception): ")
CONSEQUENCE = "Engine core initialization failed"


class CannotServe(Exception):
    """The server cannot be started or ended; the message is the reason."""


def main() -> int:
    model, name, seconds, vllm, *arguments = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server is ended on the way out
    before = gpu_memory()
    try:
        port, mark = free_port(), secrets.token_hex(16)
        server = start(vllm, model, name, port, mark, arguments)
        last: deque[str] = deque(maxlen=1000)
        assert server.stdout is not None, "started with a pipe"
        listener = threading.Thread(target=_listen, args=(server.stdout, last), daemon=True)
        listener.start()
        try:
            wait_until_ready(server, port, name, float(seconds), last)
            _say({"port": port, "stop_token_ids": ends(Path(model))})
            sys.stdin.read()
        finally:
            end(server, mark)
            listener.join(STOP_SECONDS)
            wait_for_memory(before)
        _say({"ended": True})
    except CannotServe as why:
        _say({"failed": str(why)})
        return 1
    return 0


def _say(told: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def free_port() -> int:
    """A free port of the loopback interface."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port
    except PermissionError as denied:
        raise CannotServe(
            "refused: there is no loopback in this sandbox to serve a model on: it takes --isolation bwrap"
        ) from denied


def ends(model: Path) -> list[int]:
    """The tokens that end a completion by the model's settings, the only ones that vLLM reads."""
    found: set[int] = set()
    for path in (model / "generation_config.json", model / "config.json"):
        told = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        found |= set(told if isinstance(told, list) else [] if told is None else [told])
    return sorted(found)


def start(vllm: str, model: str, name: str, port: int, mark: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start the server; its output comes through the pipe."""
    path = os.pathsep.join([str(Path(vllm).parent), os.environ.get("PATH", os.defpath)])
    command = [
        vllm, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", name,
        "--load-format", "safetensors", "--generation-config", "vllm", *arguments,
    ]  # fmt: skip
    try:
        return subprocess.Popen(
            command, env=os.environ | QUIET | cards() | {MARK: mark, "PATH": path}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as fault:
        raise CannotServe(f"did not start: {vllm}: {fault.strerror}") from fault


def cards() -> dict[str, str]:
    """The usable GPUs by number, as environment variables: several versions of vLLM fail at a UUID.

    A GPU that nvidia-smi does not list, such as a part of one, is passed unchanged.
    """
    words = [word.strip() for word in os.environ.get(VISIBLE, "").split(",")]
    if all(word.isdigit() or not word for word in words):
        return {}
    query = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as fault:
        which = ", ".join(words)
        raise CannotServe(f"did not start: nvidia-smi tells no number of GPU {which}: {fault}") from fault
    pairs = [line.split(", ") for line in told.splitlines() if ", GPU-" in line]
    for at, word in enumerate(words):
        words[at] = next((number for number, uuid in pairs if word and uuid.startswith(word)), word)
    return {VISIBLE: ",".join(words), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the order in which nvidia-smi counts


def _listen(pipe: IO[bytes], last: deque[str]) -> None:
    """Pass on the server's output, and keep its end."""
    for line in pipe:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        last.append(line.decode(errors="replace").strip()[-500:])


def wait_until_ready(server: subprocess.Popen[bytes], port: int, name: str, seconds: float, last: deque[str]) -> None:
    """Wait until the server is healthy and has made a token: its health says nothing of its engine.

    Raises:
        CannotServe: it has ended, is late, or nobody waits for it any more.
    """
    body = {"model": name, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
    ends, why = time.monotonic() + seconds, "it was never asked"
    while (left := ends - time.monotonic()) > 0:
        if (status := server.poll()) is not None:
            time.sleep(LOOK_SECONDS)  # its last output is on the way
            raise CannotServe(f"did not start: `vllm serve` ended with status {status}{_cause(last)}")
        try:
            _ask(f"http://127.0.0.1:{port}/health", None, min(HEALTH_SECONDS, left))
            _ask(f"http://127.0.0.1:{port}/v1/chat/completions", body, min(TOKEN_SECONDS, left))
            return
        except urllib.error.HTTPError as refused:
            why = f"HTTP {refused.code}: {refused.read(300).decode(errors='replace')}"
            if 400 <= refused.code < 500:
                raise CannotServe(f"did not start: `vllm serve` answers no question: {why}") from refused
        except (OSError, ValueError) as not_yet:
            why = str(not_yet)
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            raise CannotServe("did not start: it was ended before")
    raise CannotServe(f"did not start: `vllm serve` was not ready within {seconds:g} s: {why}{_cause(last)}")


def _ask(url: str, body: object, seconds: float) -> None:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignore proxies
    with direct.open(asked, timeout=seconds) as answer:
        answer.read()


def _cause(last: deque[str]) -> str:
    """The server's last error; that its engine failed is reported by other lines after it."""
    found = [line for line in last if CAUSE.search(line)]
    first = [line for line in found if CONSEQUENCE not in line]
    return f" ({(first or found)[-1][:300]})" if found else ""


def end(server: subprocess.Popen[bytes], mark: str) -> None:
    """Ask the server to end, then kill what is left of it.

    Raises:
        CannotServe: something survives being killed.
    """
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
    ends = time.monotonic() + KILL_SECONDS
    while (left := marked(mark)) or server.poll() is None:
        for process in (*left, server.pid) if server.poll() is None else left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > ends:
            raise CannotServe(f"GPU memory is taken: processes {left} of `vllm serve` survive being killed")
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """The processes with this mark in their environment."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            if entry in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def gpu_memory() -> int | None:
    """MiB in use on the usable GPUs, by nvidia-smi; None without it."""
    ours = os.environ.get(VISIBLE, "")
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    command += ["-i", ours] if ours else []
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        return sum(map(int, told.split()))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def wait_for_memory(before: int | None) -> None:
    """Wait until the GPUs' memory is as free as before; report if somebody else has taken it."""
    ends = time.monotonic() + MEMORY_SECONDS
    while before is not None and (now := gpu_memory()) is not None and now > before + MEMORY_MIB:
        if time.monotonic() > ends:
            sys.stderr.write(
                f"GPU memory is taken: {now} MiB are in use although `vllm serve` has ended, {before} before it began\n"
            )
            return
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
