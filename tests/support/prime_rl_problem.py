"""An environment of the trainer prime_rl whose prime-rl is the stand-in: its folder, and a checkout for it."""

from __future__ import annotations

from pathlib import Path

from tests.support.fake_prime_rl import NONE, Faults, base_model, lay
from tests.support.question_pool import RECIPE
from tests.support.toy import folder_of

TOML = """\
title = "The stand-in"
metric = "pass@1"
direction = "maximize"
range = [0, 1]
trainer = "prime_rl"
program = ["train.toml", "taskset.py"]
editable = ["train.toml"]
readable = ["{checkout}"]
judge = "command"
budget_seconds = 100
budget_steps = 6
startup_seconds = 300
grace_seconds = 20
allow_untrained = true

[prepare]
files = ["base/config.json", "base/tokenizer.json", "base/tokenizer_config.json", "base/model.safetensors"]
settings.questions = 4
seconds = 60
disk_gb = 0.01

[command]
eval_cmd = "python judge.py {{out}} {{result}} {{seed}}"

[limits]
least_seconds = 0

[space.learning_rate]
type = "float"
low = 1e-6
high = 2e-4
log = true
default = 1e-6

[fixed]
prime_rl = "{checkout}"
start_deadline = {start:g}
stall_deadline = {stall:g}
quit_deadline = 5
"""
TRAIN = """\
# what may be tuned
[trainer.optim]
lr = 5e-6  # the parameter learning_rate

[orchestrator]
batch_size = 16
group_size = 4
"""
PREPARE = (
    RECIPE
    + """
import shutil
shutil.copytree(pathlib.Path(__file__).with_name("base"), folder / "data/base")
"""
)
JUDGE = """\
import json, pathlib, random, struct, sys

quality, _ = struct.unpack("<2f", pathlib.Path(sys.argv[1], "model/model.safetensors").read_bytes()[-8:])
draws = random.Random(int(sys.argv[3]))
units = [int(draws.random() < quality) for _ in range(400)]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"units": units, "also": {"quality": quality}}))
"""


def laid(tmp_path: Path, faults: Faults = NONE, start: float = 60, stall: float = 30) -> tuple[Path, Path]:
    """The folder of the environment, and the checkout that it uses."""
    checkout = lay(tmp_path / "prime-rl", faults)
    folder = tmp_path / "env"
    base_model(folder / "base")
    toml = TOML.format(checkout=checkout, start=start, stall=stall)
    texts = {"environment.toml": toml, "train.toml": TRAIN, "taskset.py": "", "prepare.py": PREPARE, "judge.py": JUDGE}
    return folder_of(folder, texts), checkout
