"""Does prime-rl accept the configurations that our trainer writes? Its own parser is asked; nothing is trained.

    python -m benchmarks.prime_rl_configs CHECKOUT [--draws 20] [--seed 0] [--python PYTHON] [--json]

For each environment with trainer `prime_rl`: the baseline, the starting points beside it, the baseline with an adapter
and with filters of questions, and random draws of its space. For each of these the trainer writes train.toml and
engine.toml as it does before a run, and the parser of `rl` reads them in that order, from the prime-rl in CHECKOUT (a
clone; its submodules are not needed). What it has then understood must be what was asked, parameter by parameter. The
exit status is 1 when one is not accepted.

PYTHON has to have verifiers, renderers, prime-pydantic-config and tomli-w; neither torch nor vLLM nor a GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tomlkit
from rich.console import Console
from rich.table import Table

import environments
from environments import FILE, Environment, plugins
from environments.space import Value
from tasks.store.workspace import TRAINERS

sys.path.append(str(plugins.folder(TRAINERS)))  # as in a workspace, where the parts are beside the program
from prime_rl_parts.keys import DOTTED, flat, tuned
from prime_rl_parts.run import HARNESSES, Run, Settings

TRAINER = "prime_rl"
PACKAGE = "packages/prime-rl-configs/src"
ELSEWHERE: dict[str, Value] = {
    "text.backend": "openai",
    "text.endpoint.base_url": "http://127.0.0.1:1/v1",
    "readable": [],  # type: ignore[dict-item] # a list, as in a file
}
"""What an environment says of its machine, and this one need not have."""
CURRICULUM = "orchestrator.train.source.curriculum"
MORE: dict[str, dict[str, Value]] = {
    "adapter": {
        "lora_rank": 24, "lora_alpha": 48.0, "lora_dropout": 0.05, "lora_targets": "q_proj,v_proj",
        "trainer.model.ac": "None", "trainer.model.ac_offloading": "None",
    },
    "filters": {
        f"{CURRICULUM}.sampler.type": "difficulty_pool",
        f"{CURRICULUM}.sampler.pools.normal.threshold": 0.99, f"{CURRICULUM}.sampler.pools.normal.weight": 1.0,
        f"{CURRICULUM}.sampler.pools.easy.threshold": 1.0, f"{CURRICULUM}.sampler.pools.easy.weight": 0.0,
        f"{CURRICULUM}.gates.advantage.type": "advantage_range",
    },
}  # fmt: skip
"""What is laid over the baseline, by the name of the configuration."""
PARSE = """\
import contextlib, functools, io, json, sys
from prime_rl.configs.rl import RLConfig
from prime_rl.utils.config import cli

def below(value, name):
    if isinstance(value, list):
        [value] = value  # the one source
    return value[name] if isinstance(value, dict) else getattr(value, name)

for line in sys.stdin:
    asked, said = json.loads(line), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            config = cli(RLConfig, args=[*asked["arguments"], "--plain"])
        read = {key: functools.reduce(below, key.split("."), config) for key in asked["keys"]}
        print(json.dumps({"read": read}), flush=True)
    except (SystemExit, Exception) as refused:
        print(json.dumps({"refused": said.getvalue().strip() or str(refused)}), flush=True)
"""
"""The parser as a program of the other Python: files in, what it made of some keys out, a line each."""


@dataclass(frozen=True)
class Answer:
    """What prime-rl said to one configuration."""

    environment: str
    what: str
    """baseline, the name of a starting point, or draw 1 and so on."""
    params: dict[str, Value]
    refused: str | None
    """Why; None when it was accepted."""


def asked(environment: Environment, draws: int, seed: int) -> Iterator[tuple[str, dict[str, Value]]]:
    """The configurations of one environment that are tried, each with a name."""
    yield "baseline", environment.defaults
    for file in sorted((environment.folder / "starting_points").glob("*.json")):
        yield file.stem, environment.complete(json.loads(file.read_text()))
    for name, params in MORE.items():
        yield name, environment.complete({}) | params
    rng = np.random.default_rng(seed)
    for number in range(1, draws + 1):
        drawn = {name: parameter.sample(rng) for name, parameter in environment.space.items()}
        yield f"draw {number}", environment.complete(drawn)


def lay_out(environment: Environment, params: dict[str, Value], out: Path) -> tuple[list[str], dict[str, object]]:
    """Write the two files as the trainer does.

    Returns:
        The arguments of `rl`, and what it has to understand, by its own keys.
    """
    settings, tuning = Settings.split(dict(params))
    config = {"params": params, "seed": 1, "budget_steps": environment.budget_steps, "out": str(out), "data": str(out)}
    run = Run(config, settings, port=8000)
    run.home.mkdir(parents=True)
    (out / "curve.jsonl").touch()  # as the recipes make it: questions that are asked on the way
    text = tuned((environment.folder / "train.toml").read_text(), tuning)
    for name, content in (("train", text), ("engine", tomlkit.dumps(run.overlay(text)))):
        (run.home / f"{name}.toml").write_text(content)
    files = [word for name in ("train", "engine") for word in ("@", str(run.home / f"{name}.toml"))]
    read = {key: None if value == "None" else value for key, value in flat(tomllib.loads(text))}
    wanted = {key: read[key] for key in map(_dotted, tuning)}
    if rank := wanted.get("trainer.model.lora.rank"):  # prime-rl passes it on to vLLM, which loads what is handed on
        wanted |= {"orchestrator.model.lora.rank": rank, "inference.vllm.max_lora_rank": rank}
        wanted |= {"inference.vllm.enable_lora": True, "weight_broadcast.type": "filesystem"}
    wanted |= {"trainer.model.attn": "flash_attention_2", "orchestrator.eval.interval": settings.curve_interval}
    wanted |= {"orchestrator.eval.sampling.temperature": settings.curve_temperature}
    return files, wanted


def _dotted(name: str) -> str:
    return DOTTED.get(name, name)


def answers(environment: Environment, checkout: Path, python: str, draws: int, seed: int) -> Iterator[Answer]:
    """Ask prime-rl about each configuration of one environment."""
    paths = (checkout / PACKAGE, environment.folder, HARNESSES)  # plug-ins are imported where they are named
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, "-c", PARSE], cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        ) as parser,
    ):  # fmt: skip
        assert parser.stdin is not None and parser.stdout is not None
        for number, (what, params) in enumerate(asked(environment, draws, seed)):
            files, wanted = lay_out(environment, params, Path(folder) / str(number))
            print(json.dumps({"arguments": files, "keys": list(wanted)}), file=parser.stdin, flush=True)
            said = json.loads(parser.stdout.readline() or '{"refused": "the parser ended: see its error above"}')
            yield Answer(environment.name, what, params, said.get("refused") or _misread(wanted, said["read"]))
        parser.stdin.close()


def _misread(wanted: dict[str, object], read: dict[str, object]) -> str | None:
    """Which keys were understood as something else; None when none was."""
    other = [f"{key} is {read[key]!r}, not {value!r}" for key, value in wanted.items() if read[key] != value]
    return "; ".join(other) or None


def commit(checkout: Path) -> str:
    """The checkout's commit, and whether its files are as it has them."""
    said = [
        subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout
        for words in (["log", "-1", "--format=%H of %cs"], ["status", "--porcelain", PACKAGE])
    ]
    return said[0].strip() + (", changed" if said[1] else "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    if not (args.checkout / PACKAGE).is_dir():
        parser.error(f"{args.checkout} has no {PACKAGE}: give a clone of github.com/PrimeIntellect-ai/prime-rl")
    found: list[Answer] = []
    for name in environments.bundled():
        folder = environments.find(name)
        if tomlkit.parse((folder / FILE).read_text())["trainer"] == TRAINER:
            environment = environments.named(name, ELSEWHERE)
            found += answers(environment, args.checkout.absolute(), args.python, args.draws, args.seed)
    show(found, commit(args.checkout), args.json)
    return int(any(answer.refused for answer in found))


def show(found: list[Answer], which: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"prime_rl": which, "answers": [asdict(answer) for answer in found]}, indent=2))
        return
    table = Table("environment", "configurations", "accepted", title=f"prime-rl {which}")
    for name in dict.fromkeys(answer.environment for answer in found):
        own = [answer for answer in found if answer.environment == name]
        accepted = sum(answer.refused is None for answer in own)
        points = [answer.what for answer in own if not answer.what.startswith("draw")]
        table.add_row(name, f"{', '.join(points)}, {len(own) - len(points)} draws", f"{accepted} of {len(own)}")
    console = Console(highlight=False)
    console.print(table)
    for answer in found:
        if answer.refused:
            console.print(f"{answer.environment}, {answer.what}: {answer.refused}\n{answer.params}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
