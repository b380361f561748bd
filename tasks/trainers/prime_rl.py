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

import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomlkit

from _program import Budget, Cancelled, Config, Failed, ProgressFile, main
from prime_rl_parts.keys import as_tables
from prime_rl_parts.model import assemble, check_adapter, tidy
from prime_rl_parts.reasons import complaint, decisive, read
from prime_rl_parts.run import Run, Settings
from prime_rl_parts.watch import follow


def train(config: Config, progress: ProgressFile) -> None:
    """Train as config.json says, and leave out/model."""
    run = configured(config)
    check_sandbox()
    try:
        prepare(run, progress.budget)
        follow(run, progress)
        assemble(run, reached=progress.budget.step)
    finally:
        tidy(run)


def check(config: Config, progress: ProgressFile) -> None:
    """Refuse what prime-rl would refuse; leaves no files."""
    with tempfile.TemporaryDirectory() as aside:
        run = configured({**config, "out": aside})
        if (run.bin / "rl").is_file():  # else the first trial says so
            ask_rl(run, progress.budget)


def configured(config: Config) -> Run:
    """A run of train.toml and the parameters; its folder is empty yet."""
    settings, params = Settings.split(config["params"])
    run = Run(config, settings, Path("train.toml").read_text(errors="replace"), as_tables(params))
    check_adapter(run)
    run.home.mkdir(parents=True, exist_ok=True)
    return run


def check_sandbox() -> None:
    """Refuse to begin where the sandbox denies the sockets or shared memory that prime-rl needs."""
    try:
        for family in (socket.AF_INET, socket.AF_UNIX):
            socket.socket(family).close()
        tempfile.TemporaryFile(dir="/dev/shm").close()
    except OSError as denied:
        what = f"({denied.filename or 'socket'}: {denied.strerror})"
        remedy = f"install bubblewrap, and leave network = false {what}"
        raise Failed(f"refused: prime-rl needs sockets and shared memory in its sandbox: {remedy}") from denied


def prepare(run: Run, budget: Budget) -> None:
    """Check what training needs, and let `rl` validate the files that it is to read."""
    if not (run.bin / "rl").is_file():
        raise Failed(f"did not start: there is no {run.bin / 'rl'}: set prime_rl, and let `readable` list it")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run.gpus = choose_gpus(os.environ.get("CUDA_VISIBLE_DEVICES", "0,1"), run.variables()["PATH"])
    run.port += 16 * int(run.gpus[0])  # another pair of GPUs may train beside it
    questions = (run.data / "train.jsonl").read_text().rstrip("\n").split("\n")
    # prime-rl takes them in their order, and has no seed of its own.
    random.Random(run.config["seed"]).shuffle(questions)
    run.questions.write_text("\n".join(questions) + "\n")
    run.note(gpus=run.gpus)
    ask_rl(run, budget)


def ask_rl(run: Run, budget: Budget) -> None:
    """Write the files of prime-rl, and have it validate both with `rl --dry-run`."""
    run.train_file.write_text(run.train)
    run.engine_file.write_text(tomlkit.dumps(run.overlay()))
    process, began = run.start("--dry-run", log="dry-run.log"), time.monotonic()
    while process.poll() is None:
        if time.monotonic() - began > run.settings.start_deadline:
            raise Failed(f"did not start: rl --dry-run took more than {run.settings.start_deadline:g} s")
        if Path("cancel").exists():
            raise Cancelled
        if budget.stopped:
            raise Failed("left nothing to score: it was told to stop before training began")
        time.sleep(0.05)
    if process.returncode:
        said = complaint(read(run.home / "dry-run.log"))
        raise Failed(f"refused: rl --dry-run of train.toml with the parameters: {said}")


def choose_gpus(stated: str, path: str) -> tuple[str, ...]:
    """The numbers of the first two GPUs of `stated`, since `rl` accepts no UUIDs; `path` leads to nvidia-smi."""
    names = re.findall(r"[^,\s]+", stated)[:2]
    if len(names) < 2:
        raise Failed(f"refused: prime-rl needs two GPUs, for vLLM and to train: CUDA_VISIBLE_DEVICES={stated!r}")
    if all(map(str.isdigit, names)):
        return tuple(names)
    words = [shutil.which("nvidia-smi", path=path) or "nvidia-smi", "--query-gpu=uuid,index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Failed(f"did not start: nvidia-smi does not answer: {fault}", retry=True) from fault
    numbers = dict(re.findall(r"^(GPU\S+), *(\d+)", listed, re.MULTILINE))
    if gone := [name for name in names if name not in numbers]:
        raise Failed(f"did not start: of GPU {gone[0]} nvidia-smi knows no number: {decisive(listed)}", retry=True)
    return tuple(numbers[name] for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, check=check))
