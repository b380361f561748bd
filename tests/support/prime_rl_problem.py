"""An environment of the trainer prime_rl whose prime-rl is the stand-in: its folder, and a checkout for it."""

from __future__ import annotations

from pathlib import Path

from tests.support.fake_prime_rl import base_model, lay
from tests.support.question_pool import RECIPE
from tests.support.toy import folder_of, stated

TOML = stated(
    'title = "The stand-in"', 'metric = "pass@1"', 'direction = "maximize"', 'trainer = "prime_rl"',
    'train_cmd = "python train.py"', 'program = ["train.toml", "taskset.py"]', 'editable = ["train.toml"]',
    "deterministic = false", "budget_seconds = 100", "budget_steps = 6", "startup_seconds = 300", "grace_seconds = 20",
    "low = 1e-6", "high = 2e-4", "default = 1e-6",
).replace("[space.x]", "[space.learning_rate]") + """
[prepare]
files = ["base/config.json", "base/tokenizer.json", "base/tokenizer_config.json", "base/model.safetensors"]
settings.questions = 4
seconds = 60
disk_gb = 0.01
"""  # fmt: skip
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
import json, pathlib, struct, sys

[quality] = struct.unpack("<f", pathlib.Path(sys.argv[1], "model/model.safetensors").read_bytes()[-4:])
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": quality}))
"""


def laid(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of the environment, and the checkout that it uses."""
    checkout = lay(tmp_path / "prime-rl")
    folder = tmp_path / "env"
    base_model(folder / "base")
    toml = stated(f'readable = ["{checkout}"]', toml=TOML) + f'[fixed]\nprime_rl = "{checkout}"\nquit_deadline = 5\n'
    texts = {"environment.toml": toml, "train.toml": TRAIN, "taskset.py": "", "prepare.py": PREPARE, "judge.py": JUDGE}
    return folder_of(folder, texts), checkout
