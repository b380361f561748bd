"""Checks of a machine for prime-rl: driver, compiler, attention, memory, checkout, ports, compiled kernels.

They ask the same files and commands as a trial does: the trainer's own parts, `nvidia-smi` and `nvcc`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import Environment, plugins
from environments.recipe import DATA
from flows.cli.doctor.machine import Check, State, gib
from flows.cli.doctor.model_memory import answers_at_once, model_of, of_training
from flows.spec.environment import typed
from tasks.sandbox.confinement import HOME
from tasks.system.commands import Unanswered, ask
from tasks.system.slot import VISIBLE

if TYPE_CHECKING:
    from prime_rl_parts.run import Run

MIB = 2**20
CUDA = (12, 8)
"""CUDA that prime-rl's torch is built for where its files do not tell."""
DRIVERS = {12: 525, 13: 580}
"""The oldest driver that runs any program of a CUDA version: CUDA Compatibility guide, minor version compatibility."""
OWN_DRIVERS = {(12, 6): 560, (12, 8): 570, (12, 9): 575, (13, 0): 580}
"""The driver of the same CUDA, which also loads what is compiled to PTX: release notes of the toolkit, table 3."""
OF_GPUS = ("driver", "toolkit", "attention", "memory")
WITH_ATTENTION = ((8, 0), (9, 0))
"""That vLLM's own FlashAttention is compiled for: A100 and H100. For others the driver compiles version 2 from PTX."""
LEAST_CAPABILITY = (8, 0)
"""That FlashAttention 2 and bfloat16 need: Ampere."""
NEWEST, FOR_NEWEST = (12, 0), (12, 9)
"""Compute capability of an RTX 50 and PRO 6000, and the first toolkit that prime-rl's kernels for it compile with."""
IN_TRIALS = f"{HOME}/prime_rl_cache"
"""Where a trial in bubblewrap has its compiled kernels."""
PAGE = "docs/two-gpus.md, step {}"


@dataclass(frozen=True)
class Box:
    """The machine as a trial of the baseline would find it."""

    run: Run
    environment: Environment
    tuned: str
    """train.toml with the baseline's parameters."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """prime-rl's keys that it sets, dotted."""
        from prime_rl_parts.keys import flat

        return dict(flat(tomllib.loads(self.tuned)))

    def rows(self, fields: str) -> list[list[str]]:
        """A row for each GPU of the trial, of these fields; the first is its number."""
        from prime_rl_parts.machine import ask as ask_gpus

        return [row for row in ask_gpus(self.run, f"gpu=index,{fields}") if int(row[0]) in self.run.gpus]


def _make_importable() -> None:
    """Let the trainer's parts be imported by their own name, as in a workspace, where they are beside the program."""
    from tasks.store.workspace import TRAINERS

    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:
        sys.path.append(folder)


@contextmanager
def box(environment: Environment, home: Path) -> Iterator[Box]:
    """The files and settings of a trial of the baseline, in a temporary folder."""
    from prime_rl_parts.keys import tuned
    from prime_rl_parts.run import Run, Settings
    from tasks.recipes.preparing import place

    settings, params = Settings.split(environment.defaults)
    made = place(environment, home)
    with tempfile.TemporaryDirectory(prefix="nightshift-doctor-") as aside:
        config = {"out": aside, "data": str(made / DATA) if made else "", "budget_steps": 2, "seed": 1, "params": {}}
        run = Run(config, settings)
        run.home.mkdir(parents=True)
        text = tuned((environment.folder / "train.toml").read_text(), params)
        (run.home / "train.toml").write_text(text)
        yield Box(run, environment, text)


def checks(environment: Environment, home: Path) -> Mapping[str, Callable[[], Check]]:
    """The checks by name, in the order of the report, with what to do where one cannot even be made."""
    asked: dict[str, tuple[Callable[[Box], Check], str]] = {
        "prime_rl": (checkout, PAGE.format(2)),
        "driver": (driver, PAGE.format(1)),
        "toolkit": (toolkit, "repair it, or take it off PATH"),
        "attention": (attention, "leave trainer.model.attn out of train.toml, or use GPUs that have it"),
        "memory": (memory, "`nvidia-smi` shows who uses it"),
        "loopback": (loopback, "end the programs that listen there"),
        "kernels": (kernels, f"fill it once: {PAGE.format(5)}"),
    }
    return {name: partial(_held, name, check, other, environment, home) for name, (check, other) in asked.items()}


def _held(name: str, check: Callable[[Box], Check], remedy: str, environment: Environment, home: Path) -> Check:
    """The check's result; what ends a training of the same settings is a thing to fix.

    Where there are not two GPUs that answer, `driver` says so, and what is known of them alone is not looked at.
    """
    _make_importable()
    from prime_rl_parts import Failed

    try:
        with box(environment, home) as there:
            if name in OF_GPUS:
                try:
                    _choose(there)
                except Failed as none:
                    fact = str(none).removeprefix("refused: ")
                    if name == "driver":
                        return Check(name, "bad", fact, remedy)
                    return Check(name, "note", f"not looked at: {fact}", "fix driver first")
            return check(there)
    except (Failed, Unanswered) as failed:
        return Check(name, "bad", str(failed).removeprefix("refused: "), remedy)


def checkout(box: Box) -> Check:
    """prime-rl's checkout: its commit, its programs, and the Python that they are started with."""
    from prime_rl_parts.machine import installed

    settings, home = box.run.settings, Path(box.run.settings.prime_rl)
    which, wanted = installed(home), settings.prime_rl_commit
    details = {"path": str(home), "commit": which["commit"] or None, "version": which["version"] or None}
    for name in ("rl", "torchrun"):
        if not (box.run.bin / name).is_file():
            fact = f"there is no {box.run.bin / name}"
            return Check("prime_rl", "bad", fact, f"`uv sync`, or set fixed.prime_rl: {PAGE.format(2)}", details)
    at = f"{home} is at commit {which['commit'][:12] or 'unknown'}"
    if not which["commit"].startswith(wanted):
        remedy = f"`git -C {home} checkout --detach {wanted}` and `uv sync`, or --set fixed.prime_rl_commit=''"
        return Check("prime_rl", "bad", f"{at}, and the keys are those of {wanted}", remedy, details)
    python = (box.run.bin / "python").resolve()
    shown = (Path("/usr"), *map(Path.resolve, map(Path, box.environment.readable)))
    if python.exists() and not any(python.is_relative_to(folder) for folder in shown):
        fact = f"{at}; its Python is {python}, which a trial cannot see"
        return Check("prime_rl", "bad", fact, f"list {python.parents[1]} in readable: {PAGE.format(2)}", details)
    if not wanted:
        fact = f"{at}, and prime_rl_commit is empty: no key was compared with this commit"
        return Check("prime_rl", "note", fact, "python -m benchmarks.prime_rl_configs compares them", details)
    return Check("prime_rl", "ok", f"{at}, whose keys these are", details=details)


def driver(box: Box) -> Check:
    """NVIDIA's driver against the CUDA that prime-rl's torch and vLLM are built for."""
    rows = box.rows("driver_version,compute_cap")
    versions = sorted({row[1] for row in rows})
    built = {"torch": built_for(box.run.bin.parent), "vLLM": vllm_built_for(box.run.bin.parent)}
    named = {name: _dotted(version) for name, version in built.items() if version}
    cuda = max(version for version in built.values() if version)
    details = {"driver": versions, "cuda": named["torch"], "vllm_cuda": named.get("vLLM")}
    told = re.match(r"\d+", versions[0])
    fact = f"driver {', '.join(versions)}; built for CUDA: prime-rl's "
    fact += ", ".join(f"{name} {version}" for name, version in named.items())
    if told is None:
        return Check("driver", "bad", fact, f"install it anew: {PAGE.format(1)}", details)
    least = DRIVERS.get(cuda[0], max(DRIVERS.values()))
    own = max((number for version, number in OWN_DRIVERS.items() if version <= cuda), default=least)
    if int(told[0]) < least:
        return Check("driver", "bad", fact, f"install driver {max(own, least)} or newer: {PAGE.format(1)}", details)
    if int(told[0]) < own:
        remedy = f"install driver {own} or newer: an older one does not load what is compiled on the way"
        if all(_capability(row[2]) in WITH_ATTENTION for row in rows):
            return Check("driver", "note", fact, remedy, details)
        return Check("driver", "bad", fact, f"{remedy}, as vLLM's attention is on these GPUs", details)
    return Check("driver", "ok", fact, details=details)


def built_for(venv: Path) -> tuple[int, int]:
    """The CUDA that torch in a virtual environment is built for, by its file."""
    for file in venv.glob("lib/python*/site-packages/torch/version.py"):
        if found := re.search(r"^cuda\b[^=]*=\s*['\"](\d+)\.(\d+)", file.read_text(errors="replace"), re.MULTILINE):
            return int(found[1]), int(found[2])
    return CUDA


def vllm_built_for(venv: Path) -> tuple[int, int] | None:
    """The CUDA that vLLM there is built for, by its version, such as 0.26.0+cu129; None where that does not say."""
    for folder in venv.glob("lib/python*/site-packages/vllm-*.dist-info"):
        if found := re.search(r"\+cu(\d+)(\d)\.dist-info$", folder.name):
            return int(found[1]), int(found[2])
    return None


def toolkit(box: Box) -> Check:
    """CUDA's compiler: none is needed, and one that is found must work for these GPUs."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin")
    newest = max((_capability(row[1]) for row in box.rows("compute_cap")), default=(0, 0))
    if nvcc is None:
        fact = "no nvcc, and none is needed: what vLLM would compile with it is switched off"
        if newest < NEWEST:
            return Check("toolkit", "ok", fact, details={"nvcc": None})
        fact = f"no nvcc; on compute capability {_dotted(newest)} some of vLLM's kernels are compiled at the start"
        remedy = f"install CUDA's toolkit {_dotted(FOR_NEWEST)} or newer if a start says `there is no CUDA compiler`"
        return Check("toolkit", "note", fact, remedy, {"nvcc": None})
    release = re.search(r"release (\d+)\.(\d+)", ask([nvcc, "--version"]))
    version = (int(release[1]), int(release[2])) if release else (0, 0)
    details = {"nvcc": nvcc, "version": _dotted(version)}
    if newest >= NEWEST and version < FOR_NEWEST:
        fact = f"{nvcc} is of CUDA {_dotted(version)}, and compiles nothing for compute capability {_dotted(newest)}"
        return Check("toolkit", "bad", fact, f"install CUDA's toolkit {_dotted(FOR_NEWEST)} or newer", details)
    return Check("toolkit", "ok", f"{nvcc} of CUDA {_dotted(version)}", details=details)


def attention(box: Box) -> Check:
    """The generation of the GPUs against the attention that the model would get."""
    from prime_rl_parts.machine import check_attention

    rows = box.rows("compute_cap,name")
    overlaid = box.run.overlay(box.tuned)["trainer"]["model"].get("attn")
    stated = box.keys.get("trainer.model.attn", "auto")
    check_attention(box.run)
    cards = ", ".join(f"GPU {number} {name} ({capability})" for number, capability, name, *_ in rows)
    fact = f"{overlaid or stated} on {cards}"
    details = {"attention": overlaid or stated, "capability": [row[1] for row in rows]}
    if any(_capability(row[1]) < LEAST_CAPABILITY for row in rows):
        least = _dotted(LEAST_CAPABILITY)
        remedy = f"use GPUs of compute capability {least} or newer: FlashAttention 2 has no kernels for older ones"
        return Check("attention", "bad", fact, remedy, details)
    if len({row[1] for row in rows}) > 1:
        return Check("attention", "note", fact, "use two alike: kept kernels are compiled for one of them", details)
    return Check("attention", "ok", fact, details=details)


def memory(box: Box) -> Check:
    """Free memory of the two GPUs against the estimate of model_memory.py."""
    by_number = {int(row[0]): row for row in box.rows("memory.total,memory.used")}
    first, second = (by_number[number] for number in box.run.gpus)
    try:
        sizes = {row[0]: (int(row[1]) * MIB, int(row[2]) * MIB) for row in (first, second)}
    except ValueError:
        fact = "nvidia-smi does not tell the memory of these GPUs"
        return Check("memory", "note", fact, "compare the estimate in flows/cli/doctor/model_memory.py by hand")
    facts = [f"GPU {number}: {gib(total - used)} of {gib(total)} free" for number, (total, used) in sizes.items()]
    taken = [number for number, (_, used) in sizes.items() if used > box.run.settings.gpu_used_mb * MIB]
    (vllm_total, vllm_used), (total, used) = sizes[first[0]], sizes[second[0]]
    others = "end the programs that use them, or choose others with CUDA_VISIBLE_DEVICES"
    try:
        model = model_of(box.run.base)
    except (ValueError, OSError) as unknown:
        there = (box.run.base / "config.json").is_file()
        facts.append(str(unknown) if there else "there is no model yet to compare with")
        remedy = (
            "compare with the model's sizes by hand" if there else f"`nightshift env prepare {typed(box.environment)}`"
        )
        return Check("memory", "bad" if taken else "note", "; ".join(facts), others if taken else remedy)
    need, at_once = of_training(model, box.keys), answers_at_once(model, box.keys, vllm_total)
    share = float(box.keys.get("inference.vllm.gpu_memory_utilization", 0.9))
    facts.append(f"training {model.weights:,} weights takes about {gib(need)} of GPU {second[0]}")
    facts.append(f"vLLM takes {gib(share * vllm_total)} of GPU {first[0]} and holds {max(at_once, 0):,.0f} answers")
    details = {"weights": model.weights, "training_bytes": round(need), "answers_at_once": round(at_once, 1)}
    remedies: list[str] = []
    if taken:
        remedies.append(others)
    if need > total - (used if taken else 0):
        remedies.append("trainer.model.optim_cpu_offload = true, a shorter seq_len, or a smaller model")
    if at_once < 1 or share * vllm_total > vllm_total - (vllm_used if taken else 0):
        remedies.append("a lower inference.vllm.gpu_memory_utilization or max_model_len, or a smaller model")
    state: State = "bad" if remedies else "ok"
    return Check("memory", state, "; ".join(facts), "; ".join(remedies), details)


def loopback(box: Box) -> Check:
    """The ports of a run: its own in bubblewrap, the machine's elsewhere."""
    from prime_rl_parts.machine import find_port
    from tasks.sandbox.isolation import choose

    if choose("auto") == "bwrap":
        return Check("loopback", "ok", "each trial has a loopback of its own, where all ports are free")
    port = find_port(0)
    return Check("loopback", "ok", f"ports {port} to {port + 5} and {port + 21_000} are free", details={"port": port})


def kernels(box: Box) -> Check:
    """The folder of compiled kernels that a trial begins with, and room for its copy."""
    settings = box.run.settings
    folder = Path(settings.cache or f"{settings.prime_rl}/.cache")
    if not folder.is_dir():
        remedy = f"fill it once: {PAGE.format(5)}"
        state: State = "bad" if settings.cache else "note"
        fact = f"there is no {folder}: every trial compiles vLLM's kernels anew"
        return Check("kernels", state, fact, remedy, {"folder": str(folder), "bytes": 0})
    from prime_rl_parts.run import MADE_AT

    made_at = (folder / MADE_AT).read_text().strip() if (folder / MADE_AT).is_file() else "an unknown place"
    if made_at != IN_TRIALS:
        fact = f"{folder} was compiled at {made_at}, and a trial in bubblewrap looks for its parts at {IN_TRIALS}"
        remedy = f"delete it and fill it anew: {PAGE.format(5)}"
        return Check("kernels", "bad" if settings.cache else "note", fact, remedy, {"folder": str(folder)})
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    fact = f"{gib(size)} of compiled kernels in {folder}"
    details = {"folder": str(folder), "bytes": size}
    if size > box.environment.limits.out_gb * 2**30 / 2:
        remedy = "delete it and fill it anew, or raise [limits] out_gb: each trial has a copy"
        return Check("kernels", "note", fact, remedy, details)
    return Check("kernels", "ok", fact, details=details)


def _choose(box: Box) -> None:
    """Choose the two GPUs as a trial does. Raises Failed where there are fewer, or nvidia-smi does not answer."""
    from prime_rl_parts import Failed
    from prime_rl_parts.machine import ask as ask_gpus
    from prime_rl_parts.machine import choose_gpus

    found = [(int(number), uuid) for number, uuid in ask_gpus(box.run, "gpu=index,uuid")]
    if not found:
        raise Failed("nvidia-smi is not installed, or lists no GPU")
    box.run.gpus = choose_gpus(found, os.environ.get(VISIBLE))


def _capability(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
