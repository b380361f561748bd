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
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import tomlkit

from prime_rl_parts import Cancelled, Failed
from prime_rl_parts.keys import as_tables
from prime_rl_parts.machine import check_sandbox, choose_gpus, commit_of, find_port, list_gpus
from prime_rl_parts.model import assemble, check_adapter, tidy
from prime_rl_parts.reasons import complaint, read
from prime_rl_parts.run import Run, Settings
from prime_rl_parts.watch import Watch

CANCELLED = 42
"""The exit status of a training that was cancelled."""
ANY_GPUS, ANY_PORT = ("0", "1"), 8000
"""Placeholders that a check writes; nothing is opened there."""


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
        run.gpus, run.port = ANY_GPUS, ANY_PORT
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
