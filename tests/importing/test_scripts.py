"""Lone scripts. CleanRL's run without tyro and TensorBoard, and what they log counts; of Stable-Baselines3's, and of
entries of RL Zoo, the judge plays what they save."""

from __future__ import annotations

import json
import os
import textwrap
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import environments
from environments.plugins import Refused
from environments.space import Value
from tasks.importing import Imported, imported
from tests.importing.test_importers import brought, run
from tests.support.toy import folder_of

SB3 = os.environ.get("SB3_PYTHON", "")
"""A virtual environment with stable_baselines3, where ours has none."""
SCRIPT = """\
import argparse

import yaml
from depot.env import DepotEnv
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

GAMMA = 0.9
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="ppo.yml")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--timesteps", type=int, default=512)
args = parser.parse_args()
config = yaml.safe_load(open(args.config))
env = VecNormalize(make_vec_env(DepotEnv, n_envs=2, env_kwargs=dict(size=100)))
model = PPO("MultiInputPolicy", env, learning_rate=args.lr, gamma=GAMMA, n_steps=config["ppo"]["n_steps"])
model.learn(args.timesteps)
model.save("depot_ppo")
"""
HEAD, _, TRAINING = SCRIPT.partition("env = ")
PARALLEL = (
    HEAD.replace("import VecNormalize", "import SubprocVecEnv, VecNormalize")
    + 'if __name__ == "__main__":\n'
    + textwrap.indent(f"env = {TRAINING}".replace("n_envs=2", "n_envs=2, vec_env_cls=SubprocVecEnv"), "    ")
)
"""The same with environments in processes of their own."""
DEPOT = """\
import gymnasium
import numpy as np


class DepotEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"at": gymnasium.spaces.Box(0, 1000, (1,), np.float32)})
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.uniform(0, self.size), 0
        return {"at": np.array([self.at], np.float32)}, {}

    def step(self, action):
        self.steps += 1
        return {"at": np.array([self.at], np.float32)}, float(action), False, self.steps >= 20, {}
"""
ZOO = """\
CartPole-v1: {n_timesteps: !!float 1e5, n_envs: 2, policy: MlpPolicy, n_steps: 24, gamma: 0.98, learning_rate: lin_0.01}
Wrapped-v0: {n_timesteps: 10, frame_stack: 4}
"""

SAMPLER = """\
def sample_ppo_params(trial, n_actions, n_envs, additional_args):
    n_steps_pow = trial.suggest_int("n_steps_pow", 5, 7)
    one_minus_gamma = trial.suggest_float("one_minus_gamma", 0.0001, 0.03, log=True)
    learning_rate = trial.suggest_float("learning_rate", 1e-5, 0.002, log=True)
    net_arch = trial.suggest_categorical("net_arch", ["tiny", "small"])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    files = {"depot/__init__.py": "", "depot/env.py": DEPOT, "ppo.yml": "ppo:\n  n_steps: 128\n", "train.py": SCRIPT}
    return folder_of(tmp_path / "theirs", files) / "train.py"


def read(place: Path | str) -> tuple[Imported, dict[str, Any]]:
    """What is made of an original, and the content of its environment.toml."""
    made = imported(str(place))
    return made, tomllib.loads(str(made.files["environment.toml"]))


def test_what_the_constructor_gets_is_searched_and_the_class_of_the_environment_is_judged(script: Path) -> None:
    made, table = read(script)
    defaults = {name: one["default"] for name, one in table["space"].items()}
    assert defaults["learning_rate"] == 1e-3 and defaults["gamma"] == 0.9 and defaults["n_steps"] == 128
    assert defaults["batch_size"] == 64  # of the algorithm
    assert table["budget_steps"] == 512 and table["editable"] == ["repository/train.py", "repository/ppo.yml"]
    control = table["control"]
    assert (control["id"], control["kwargs"]) == ("judged_env:Judged-v0", {"size": 100})
    assert "depot.env:DepotEnv" in str(made.files["judged_env.py"]) and made.files["depot/env.py"]
    script.write_text(DEPOT + SCRIPT.replace("from depot.env import DepotEnv\n", ""))
    with pytest.raises(Refused, match="imported from a file beside it"):
        imported(str(script))


def test_what_is_given_by_place_stays_as_it_is(script: Path) -> None:
    script.write_text(SCRIPT.replace("env, learning_rate=args.lr, gamma=GAMMA,", "env, 1e-3, gamma=GAMMA,"))
    assert {*read(script)[1]["space"]} == {"gamma", "n_steps"}


def test_an_id_is_judged_as_the_script_makes_it(tmp_path: Path) -> None:
    own = {"id": "maze:maze/Maze-v0", "kwargs": {"size": 3}}
    for made, judged in (('"CartPole-v1"', {"id": "CartPole-v1"}), ('gym.make("maze/Maze-v0", size=3)', own)):
        text = f"import maze\nimport gymnasium as gym\nfrom stable_baselines3 import PPO\nPPO('MlpPolicy', {made}).learn(5)\n"
        (tmp_path / "one.py").write_text(text)
        assert read(tmp_path / "one.py")[1]["control"].items() >= judged.items()


def test_an_entry_of_the_zoo_gets_the_ranges_of_its_sampler_widened_to_its_values(tmp_path: Path) -> None:
    folder_of(tmp_path, {"hyperparams/ppo.yml": ZOO, "hyperparams_opt.py": SAMPLER})
    made, table = read(f"{tmp_path}/hyperparams/ppo.yml#CartPole-v1")
    space = table["space"]
    assert space["n_steps"] == {"type": "choice", "values": [24, 32, 64, 128], "default": 24}
    assert (space["gamma"]["low"], space["gamma"]["high"], space["gamma"]["default"]) == (0.97, 0.9999, 0.98)
    assert (space["learning_rate"]["high"], space["learning_rate"]["default"]) == (0.01, 0.01)
    assert json.loads(json.loads(str(made.files["run.json"]))["command"][3]) == {"schedules": ["learning_rate"]}
    assert table["budget_steps"] == 100_000 and "n_envs, policy" in [term.theirs for term in made.left]
    (tmp_path / "hyperparams_opt.py").unlink()
    _, table = read(f"{tmp_path}/hyperparams/ppo.yml#CartPole-v1")
    assert table["space"]["n_steps"] == {"type": "choice", "values": [12, 24, 48], "default": 24}
    assert not {"n_timesteps", "n_envs"} & table["space"].keys()
    for name, reason in (("", "name one"), ("#Wrapped-v0", "frame_stack"), ("#Cart", "unknown entry")):
        with pytest.raises(Refused, match=reason):
            imported(f"{tmp_path}/hyperparams/ppo.yml{name}")


@pytest.mark.slow
@pytest.mark.skipif(not SB3 and not find_spec("stable_baselines3"), reason="the extra sb3, or SB3_PYTHON, is missing")
@pytest.mark.parametrize(("text", "limit"), [(SCRIPT, {}), (PARALLEL, {"budget_steps": 10**9, "budget_seconds": 3})])
def test_the_judge_plays_the_model_with_its_statistics_also_of_a_training_that_its_time_ends(
    script: Path, tmp_path: Path, text: str, limit: dict[str, Value]
) -> None:
    script.write_text(text)
    brought(script, tmp_path / "here")
    python: dict[str, Value] = {"python": SB3} if SB3 else {}
    overrides = {"control.max_episode_steps": 20, "control.episodes": 10, **python, **limit}
    environment = environments.load(tmp_path / "here", overrides)
    done, score = run(environment, tmp_path / "0000", learning_rate=0.01)
    assert done.status == "finished", (tmp_path / "0000/log.txt").read_text()
    assert score.value is not None and 0 < score.value <= 20
    assert done.curve and done.reported is not None and (tmp_path / "0000/out/model/vecnormalize.pkl").is_file()


# Scripts like CleanRL's


CLEANRL = '''\
import os
from dataclasses import dataclass
import gymnasium as gym
import tyro
from tensorboardX import SummaryWriter
from small_utils.returns import scaled

@dataclass
class Common:
    seed: int = 1

@dataclass
class Args(Common):
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    track: bool = False
    target_kl: float = None
    env_id: str = "CartPole-v1"
    total_timesteps: int = 50
    learning_rate: float = 2.5e-4
    num_envs: int = 2
    tau: float = 1
    """never varied"""
    anneal_lr: bool = True

if __name__ == "__main__":
    args = tyro.cli(Args)
    assert args.exp_name == "small" and args.env_id == "CartPole-v1"
    if args.track:
        import wandb
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))
    writer = SummaryWriter(f"runs/{args.exp_name}")
    writer.add_text("options", str(vars(args)))
    env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        _, _, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            writer.add_scalar("charts/episodic_return", scaled(info["episode"]["r"], args.learning_rate), step)
            writer.add_scalar("charts/length", info["episode"]["l"], step)
            env.reset()
    writer.add_scalar("eval/episodic_return", 1000.0, 0)
    writer.close()
'''

FLAGS = """\
import argparse
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--learning-rate", type=float, default=2)
parser.add_argument("--fast", action="store_true")
parser.add_argument("--layers", type=int, choices=[1, 2, 3], default=2)
parser.add_argument("-width", type=int, default=64)
args = parser.parse_args()
if "final_info" not in {}:
    SummaryWriter("runs").add_scalar("episodic_return", args.learning_rate + args.seed, 1)
"""


@pytest.fixture
def cleanrl(tmp_path: Path) -> Path:
    """A script in a repository, with the package that it imports in the folder above its own."""
    returns = "from factors import THOUSAND\ndef scaled(value, rate): return value * 0 + THOUSAND * rate\n"
    files = {"small_utils/__init__.py": "", "small_utils/returns.py": returns, "factors.py": "THOUSAND = 1000\n"}
    files["algorithms/small.py"] = CLEANRL
    return folder_of(tmp_path / "theirs", files) / "algorithms/small.py"


def test_a_script_with_a_dataclass_of_options_runs_unchanged_and_the_mean_of_what_it_logs_is_the_score(
    cleanrl: Path, tmp_path: Path
) -> None:
    environment, made = brought(cleanrl, tmp_path / "here")
    assert (environment.metric, environment.direction) == ("charts/episodic_return", "maximize")
    assert environment.defaults == {"learning_rate": 2.5e-4, "num_envs": 2, "anneal_lr": True, "env_id": "CartPole-v1"}
    assert environment.budget_steps == 50 and environment.editable == ("repository/small.py",)
    assert made.warnings
    left = " ".join(term.theirs + term.ours for term in made.left)
    assert "learning_rate" not in left
    for name in ("budget_seconds", "track", "tau", "target_kl", "exp_name"):
        assert name in left
    assert (tmp_path / "here/repository/small.py").read_text() == CLEANRL

    done, score = run(environment, tmp_path / "0000", learning_rate=0.001)
    assert done.status == "finished", (tmp_path / "0000/log.txt").read_text()
    assert score.value == 1.0, score.error
    assert 8 <= score.also["charts/length"] <= 11  # always left: ten steps each
    assert done.curve and done.startup is not None

    endless = environments.load(tmp_path / "here", {"budget_seconds": 0.3, "budget_steps": 10**9})
    done, score = run(endless, tmp_path / "0001")
    assert (done.status, score.value) == ("finished", 0.25), "a run that its time ends counts with what it has logged"


def test_a_script_that_cannot_be_carried_is_refused_with_the_reason(cleanrl: Path, tmp_path: Path) -> None:
    cases = {"charts/episodic_return": ("charts/gain", "score is not seen"), "import os": ("import (", "is not Python")}
    for old, (new, reason) in cases.items():
        cleanrl.write_text(CLEANRL.replace(old, new))
        with pytest.raises(Refused, match=reason):
            brought(cleanrl, tmp_path / "here")


def test_a_script_with_argparse_gets_its_options_on_its_command_line(tmp_path: Path) -> None:
    (tmp_path / "flags.py").write_text(FLAGS)
    environment, _ = brought(tmp_path / "flags.py", tmp_path / "here")
    assert environment.defaults == {"learning-rate": 2.0}
    account = (tmp_path / "here/imported.md").read_text()
    assert "gymnasium has up to 0.29" in account and "- :" not in account
    _, score = run(environment, tmp_path / "0000", **{"learning-rate": 4.0})
    assert score.value == 4 + 7, (tmp_path / "0000/log.txt").read_text()
