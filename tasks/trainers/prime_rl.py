"""prime-rl on two GPUs: its `rl` launched, watched and ended as one training, from train.toml to out/model.

prime-rl (github.com/PrimeIntellect-ai/prime-rl) trains a language model on one GPU while vLLM answers on another, in
an environment of its own, `<prime_rl>/.venv`; this program starts `rl` from there and imports none of it. Its parts lie
in the folder prime_rl_parts beside it.

    python train.py        trains as ./config.json and ./train.toml say: out/progress.jsonl on the way, then out/model
    python train.py check  says whether prime-rl's own `rl --dry-run` takes them; without a GPU

train.toml is in prime-rl's own keys, and is handed to it as it is. Laid over it is out/prime_rl/engine.toml: the
parameters, and what the engine sets, such as paths, ports, questions and the budget. `Settings` lists the fixed
parameters.

Training ends after `budget_steps`, or on SIGTERM: `rl` then gets `quit_deadline` seconds, what is left of it is killed,
and the last complete weights that vLLM was handed make out/model. The environment's grace_seconds has to allow for
that: 150 with the default, for a small model. A file `cancel` ends it without a model, with status 42. Where there is
no model the last line of out/progress.jsonl says why: {"failed": reason, "retry": whether it is the machine's fault},
with "unsure": true where the settings may be at fault.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import tomlkit

from prime_rl_parts import Cancelled, Failed
from prime_rl_parts.keys import as_tables
from prime_rl_parts.model import assemble, check_adapter, tidy
from prime_rl_parts.reasons import complaint, decisive, read
from prime_rl_parts.run import Run, Settings
from prime_rl_parts.watch import Watch

CANCELLED = 42
"""The exit status of a training that was cancelled."""
DENIED = "prime-rl needs sockets and shared memory in its sandbox: install bubblewrap, and leave network = false"


def train(config: dict[str, Any], progress: TextIO) -> None:
    """Train as config.json says, and leave out/model."""
    run = configured(config)
    check_sandbox()
    begin(run)
    try:
        prepare(run)
        watch = Watch(run, progress)
        try:
            watch.follow()
        finally:
            watch.end()
        assemble(run, watch.steps.step)
    finally:
        tidy(run)


def check(config: dict[str, Any]) -> None:
    """Refuse what prime-rl would refuse; leaves no files."""
    with tempfile.TemporaryDirectory() as aside:
        run = configured({**config, "out": aside})
        run.gpus, run.port = ("0", "1"), 8000  # nothing is opened there
        if not (run.bin / "rl").is_file():
            return  # the first trial says so
        begin(run)
        ask_rl(run)


def configured(config: dict[str, Any]) -> Run:
    """A run of train.toml and the parameters, which leaves no trace yet."""
    settings, params = Settings.split(config["params"])
    run = Run(config, settings, Path("train.toml").read_text(errors="replace"), as_tables(params))
    check_adapter(run)
    return run


def begin(run: Run) -> None:
    """Make the run's folder, and let SIGTERM tell it to end."""
    signal.signal(signal.SIGTERM, run.tell)
    run.home.mkdir(parents=True, exist_ok=True)


def prepare(run: Run) -> None:
    """Check what training needs, and let `rl` validate the files that it is to read."""
    checkout, wanted = run.settings.prime_rl, run.settings.prime_rl_commit
    if not (run.bin / "rl").is_file():
        raise Failed(f"did not start: there is no {run.bin / 'rl'}: set prime_rl, and let `readable` list it")
    if not (commit := commit_of(Path(checkout))).startswith(wanted):
        raise Failed(f"refused: {checkout} is at commit {commit or 'unknown'}, and prime_rl_commit is {wanted}")
    for path in (run.base / "config.json", run.data / "train.jsonl"):
        if not path.is_file():
            raise Failed(f"refused: there is no {path}: it is made by `nightshift env prepare`")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run.gpus = choose_gpus(list_gpus(run), os.environ.get("CUDA_VISIBLE_DEVICES"))
    run.port = find_port()
    questions = (run.data / "train.jsonl").read_text().rstrip("\n").split("\n")
    # prime-rl takes them in their order, and has no seed of its own.
    random.Random(run.config["seed"]).shuffle(questions)
    run.questions.write_text("\n".join(questions) + "\n")
    run.note(commit=commit, gpus=run.gpus, ports=[run.port, run.port + 5])
    ask_rl(run)


def ask_rl(run: Run) -> None:
    """Write the files of prime-rl, and have it validate both with `rl --dry-run`."""
    run.train_file.write_text(run.train)
    run.engine_file.write_text(tomlkit.dumps(run.overlay()))
    process, began = run.start("--dry-run", log="dry-run.log"), time.monotonic()
    while process.poll() is None:
        if time.monotonic() - began > run.settings.start_deadline:
            raise Failed(f"did not start: rl --dry-run took more than {run.settings.start_deadline:g} s")
        run.wait(0.05)
    if process.returncode:
        said = complaint(read(run.home / "dry-run.log"))
        raise Failed(f"refused: rl --dry-run of train.toml with the parameters: {said}")


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, whoever owns it; empty where git does not tell."""
    words = ["git", "-c", "safe.directory=*", "-C", str(checkout), "rev-parse", "HEAD"]
    with suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return ""


def check_sandbox() -> None:
    """Refuse to begin where the sandbox denies the sockets or shared memory that prime-rl needs."""
    try:
        for family in (socket.AF_INET, socket.AF_UNIX):
            socket.socket(family).close()
        tempfile.TemporaryFile(dir="/dev/shm").close()
    except OSError as denied:
        raise Failed(f"refused: {DENIED} ({denied.filename or 'socket'}: {denied.strerror})") from denied


def list_gpus(run: Run) -> list[tuple[str, str]]:
    """Number and UUID of the GPUs that nvidia-smi lists; empty where it is not installed."""
    if (command := shutil.which("nvidia-smi", path=run.variables()["PATH"])) is None:
        return []
    words = [command, "--query-gpu=index,uuid", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired as late:
        raise Failed("did not start: nvidia-smi does not answer: is a GPU dead?", retry=True) from late
    if listed.returncode:
        raise Failed(f"did not start: nvidia-smi: {decisive(listed.stdout + listed.stderr)}", retry=True)
    return re.findall(r"^(\d+), *(\S+)", listed.stdout, re.MULTILINE)  # between warnings


def choose_gpus(listed: Sequence[tuple[str, str]], stated: str | None) -> tuple[str, ...]:
    """The numbers of the two GPUs to use, since `rl` accepts no UUIDs. `stated`: CUDA_VISIBLE_DEVICES; None: all."""
    numbers = {name: number for number, uuid in listed for name in (number, uuid)}
    words = [number for number, _ in listed] if stated is None else re.findall(r"[^,\s]+", stated)
    if len(words) < 2:
        whose = "nvidia-smi lists" if stated is None else f"CUDA_VISIBLE_DEVICES={stated!r} names"
        raise Failed(f"refused: prime-rl needs two GPUs, one for vLLM and one to train; {whose} {len(words)}")
    for word in words[:2]:
        if word not in numbers and (listed or not word.isdigit()):
            raise Failed(f"did not start: of GPU {word} nvidia-smi knows no number", retry=True)
    return tuple(numbers.get(word, word) for word in words[:2])


def find_port() -> int:
    """The first port of a free block, drawn at random: two trainings that begin at once rarely choose the same."""
    for port in random.sample(range(8000, 11_200, 16), 200):
        # vLLM's router uses it and the one 21,000 above; next come vLLM, two for rollouts, two for questions.
        if all(is_free(port + offset) for offset in (0, 1, 2, 3, 4, 5, 21_000)):
            return port
    raise Failed("port in use: no block of six ports is free from 8000 to 11200", retry=True)


def is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("0.0.0.0", port))
        return True
    return False


def main(arguments: list[str]) -> int:
    config = json.loads(Path("config.json").read_text())
    out = Path(config["out"])
    out.mkdir(parents=True, exist_ok=True)
    with (out / "progress.jsonl").open("a", buffering=1) as progress:
        try:
            if arguments == ["check"]:
                check(config)
            elif arguments:
                raise Failed(f"refused: arguments must be none or 'check', got {arguments}")
            else:
                train(config, progress)
        except Failed as failed:
            said = {"failed": str(failed), "retry": failed.retry} | ({"unsure": True} if failed.unsure else {})
            progress.write(json.dumps(said) + "\n")
            sys.stderr.write(f"{sys.argv[0]}: {failed}\n")
            return 2 if str(failed).startswith("refused:") and arguments != ["check"] else 1
        except Cancelled:
            return CANCELLED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
