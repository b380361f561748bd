"""A stand-in for a checkout of prime-rl, laid into a folder: programs of ours with the process shape of the real ones.

    checkout = lay(tmp_path / "prime-rl", Faults(trials={3: "out of memory"}))
    subprocess.run([checkout / ".venv/bin/rl", "@", "train.toml", "@", "engine.toml"])

Nothing is learnt and no GPU is used: the weights hold a number, `quality`, that rises as fast as the learning rate is
good. The programs need nothing but the standard library; `programs.py` has them, and what may go wrong. As their real
counterparts they are found on PATH, and leave the run directory of prime-rl (its version of August 2026).
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

COMMIT = "5e7a0d1f00000000000000000000000000000000"
PROGRAMS = ("rl", "inference", "orchestrator", "trainer", "nvidia-smi")
SCRIPT = """\
#!{python} -SB
import sys
sys.path.insert(0, {source!r})
from tests.support.fake_prime_rl import programs
sys.exit(programs.{function}(sys.argv[1:]))
"""
MODES = (
    "normal", "hangs at start", "stalls", "out of memory", "port taken", "deaf", "orphan", "no signal", "nan",
    "dies in a broadcast", "refused",
)  # fmt: skip


@dataclass(frozen=True)
class Faults:
    """What happens when; stored as faults.json in the checkout, and read anew by each process."""

    mode: str = "normal"
    """What happens where nothing else is said."""
    trials: Mapping[int, str] = field(default_factory=dict)
    """What happens in a trial, by its number, which stands in the output directory (.../trials/0007/...)."""
    step_seconds: float = 0.02


NORMAL = Faults()


def lay(folder: Path, faults: Faults = NORMAL) -> Path:
    """Lay out the checkout; its folder, as an absolute path."""
    folder = folder.absolute()
    source = folder / "src"
    shutil.copytree(
        Path(__file__).parent,
        source / "tests/support/fake_prime_rl",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    for name in PROGRAMS:
        program = folder / ".venv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        function = name.replace("-", "_")
        program.write_text(SCRIPT.format(python=sys.executable, source=str(source), function=function))
        program.chmod(0o755)
    python = folder / ".venv/bin/python"
    python.write_text("#!/bin/sh\necho 2.11.0 with CUDA 12.8\n")
    python.chmod(0o755)
    for name in ("objects", "refs/heads"):  # what git takes for a repository
        (folder / ".git" / name).mkdir(parents=True, exist_ok=True)
    (folder / ".git/HEAD").write_text(COMMIT + "\n")
    goes_wrong(folder, faults)
    return folder


def goes_wrong(checkout: Path, faults: Faults) -> None:
    """From now on this happens there."""
    for mode in (faults.mode, *faults.trials.values()):
        assert mode in MODES, f"no mode {mode!r}: {', '.join(MODES)}"
    new = checkout / ".faults.json"
    new.write_text(json.dumps(asdict(faults)))
    new.replace(checkout / "faults.json")


def base_model(folder: Path, quality: float = 0.4) -> Path:
    """A model directory of the form that training starts from, with weights that only the stand-in can read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "stand_in", "hidden_size": 4}))
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.1, "top_k": 20, "top_p": 0.8}))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "model.safetensors").write_bytes(weights(quality, bytes(64)))
    return folder


def weights(quality: float, noise: bytes) -> bytes:
    """Two tensors of 32-bit numbers in the safetensors format: the first value of the norm is the quality."""
    norm = struct.pack("<4f", quality, 1.0, 1.0, 1.0)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, data in (("model.embed_tokens.weight", noise), ("model.norm.weight", norm)):
        header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [end, end + len(data)]}
        end += len(data)
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    return struct.pack("<Q", len(written)) + written + noise + norm


def quality_of(file: Path) -> float:
    """What `weights` was given."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    (quality,) = struct.unpack_from("<f", data, 8 + length + header["model.norm.weight"]["data_offsets"][0])
    return float(quality)
