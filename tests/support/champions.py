"""Champions with files, as a campaign leaves them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import environments
from environments import Environment
from tasks.sandbox import outputs
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Trial
from tests.support.act_programs import PRELUDE
from tests.support.mlflow_records import make_trial
from tests.support.toy import folder_of, quadratic


@dataclass(frozen=True)
class Champion:
    """A trial, and where its files are."""

    environment: Environment
    place: TrialDir
    trial: Trial


CART = """\
metric = "return/mean"
direction = "maximize"
trainer = "command"
program = ["train.py"]
budget_seconds = 5
device = "cpu"
judge = "control"

[control]
id = "CartPole-v1"
episodes = 4

[space.x]
type = "float"
low = 0.0
high = 1.0
default = 0.5
"""

TILT = """
config = json.load(open("config.json"))
with open(os.path.join(config["out"], "policy.json")) as file:
    sign = json.load(file)["sign"]
ready()
for active, start, (column,) in frames():
    answer((sign * column[:, 2] > 0).astype(np.int64))
"""
"""Pushes the cart towards the side to which the pole tilts, or away from it."""


def cart(folder: Path, act: str = TILT, files: dict[str, bytes] | None = None) -> Champion:
    """A champion of CartPole with this act program and checkpoint; its program is the environment's own."""
    home = folder_of(folder / "environment", {"environment.toml": CART, "train.py": PRELUDE + act})
    environment, place, trial = environments.load(home, name="cart"), TrialDir(folder / "0007"), make_trial()
    place.workspace.mkdir(parents=True)
    for source, name in workspace.baseline_files(environment):
        (place.workspace / name).write_bytes(source.read_bytes())
    for name, content in (files or {"policy.json": b'{"sign": 1}'}).items():
        (place.out / name).parent.mkdir(parents=True, exist_ok=True)
        (place.out / name).write_bytes(content)
    place.config.write_text(json.dumps(workspace.config(place, environment, trial.proposal, 1)))
    place.log.write_text("done\n")
    (run,) = trial.runs
    run = replace(run, program=workspace.program_digest(place), checkpoint=outputs.checkpoint(place.out))
    return Champion(environment, place, replace(trial, runs=(run,)))


def filed(folder: Path) -> Champion:
    """A champion that is judged by a command; its files are those of `make_files(folder)`."""
    return Champion(environments.load(quadratic(folder / "quadratic")), TrialDir(folder), make_trial())
