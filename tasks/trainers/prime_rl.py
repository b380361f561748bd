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
no model the last line of out/progress.jsonl says why: {"failed": reason, "retry": whether it is the machine's fault}.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from pathlib import Path

import tomlkit

from _program import Config, Failed, ProgressFile, main
from prime_rl_parts.model import assemble, check_adapter, tidy
from prime_rl_parts.run import Run, Settings, as_tables
from prime_rl_parts.watch import complaint, follow, read


def train(config: Config, progress: ProgressFile) -> None:
    """Train as config.json says, and leave out/model."""
    run = configured(config)
    try:
        prepare(run)
        follow(run, progress)
        assemble(run, reached=progress.budget.step)
    finally:
        tidy(run)


def check(config: Config, progress: ProgressFile) -> None:
    """Refuse what prime-rl would refuse; leaves no files."""
    with tempfile.TemporaryDirectory() as aside:
        run = configured({**config, "out": aside})
        if (run.bin / "rl").is_file():  # else the first trial says so
            ask_rl(run)


def configured(config: Config) -> Run:
    """A run of train.toml and the parameters; its folder is empty yet."""
    settings, params = Settings.split(config["params"])
    run = Run(config, settings, Path("train.toml").read_text(errors="replace"), as_tables(params))
    check_adapter(run)
    run.home.mkdir(parents=True, exist_ok=True)
    return run


def prepare(run: Run) -> None:
    """Check what training needs, and let `rl` validate the files that it is to read."""
    if not (run.bin / "rl").is_file():
        raise Failed(f"did not start: there is no {run.bin / 'rl'}: set prime_rl, and let `readable` list it")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    questions = (run.data / "train.jsonl").read_text().rstrip("\n").split("\n")
    # prime-rl takes them in their order, and has no seed of its own.
    random.Random(run.config["seed"]).shuffle(questions)
    run.questions.write_text("\n".join(questions) + "\n")
    ask_rl(run)


def ask_rl(run: Run) -> None:
    """Write the files of prime-rl, and have it validate both with `rl --dry-run`."""
    run.train_file.write_text(run.train)
    run.engine_file.write_text(tomlkit.dumps(run.overlay()))
    if run.start("--dry-run", log="dry-run.log").wait():
        said = complaint(read(run.home / "dry-run.log"))
        raise Failed(f"refused: rl --dry-run of train.toml with the parameters: {said}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, check=check))
