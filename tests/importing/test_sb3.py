"""Scripts of Stable-Baselines3 and entries of RL Zoo: what is read of them, and that the judge plays what they save."""

from __future__ import annotations

import json
import os
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from environments.space import Value
from flows.cli.problems import env_new
from tasks.importing import imported
from tests.importing.test_importers import run
from tests.importing.test_wandb_sweep import read, written
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


def test_what_the_constructor_gets_is_searched_and_the_class_of_the_environment_is_judged(script: Path) -> None:
    made, table = read(script, "sb3")
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


def test_an_id_is_judged_as_the_script_makes_it(tmp_path: Path) -> None:
    own = {"id": "maze:maze/Maze-v0", "kwargs": {"size": 3}}
    for made, judged in (('"CartPole-v1"', {"id": "CartPole-v1"}), ('gym.make("maze/Maze-v0", size=3)', own)):
        text = f"import maze\nimport gymnasium as gym\nfrom stable_baselines3 import PPO\nPPO('MlpPolicy', {made}).learn(5)\n"
        (tmp_path / "one.py").write_text(text)
        assert read(tmp_path / "one.py", "sb3")[1]["control"].items() >= judged.items()


def test_an_entry_of_the_zoo_gets_the_ranges_of_its_sampler_widened_to_its_values(tmp_path: Path) -> None:
    folder_of(tmp_path, {"hyperparams/ppo.yml": ZOO, "hyperparams_opt.py": SAMPLER})
    made, table = read(f"{tmp_path}/hyperparams/ppo.yml#CartPole-v1", "rl_zoo")
    space = table["space"]
    assert space["n_steps"] == {"type": "choice", "values": [24, 32, 64, 128], "default": 24}
    assert (space["gamma"]["low"], space["gamma"]["high"], space["gamma"]["default"]) == (0.97, 0.9999, 0.98)
    assert (space["learning_rate"]["high"], space["learning_rate"]["default"]) == (0.01, 0.01)
    assert json.loads(json.loads(str(made.files["run.json"]))["command"][3]) == {"schedules": ["learning_rate"]}
    assert table["budget_steps"] == 100_000 and "n_envs, policy" in [term.theirs for term in made.left]
    (tmp_path / "hyperparams_opt.py").unlink()
    _, table = read(f"{tmp_path}/hyperparams/ppo.yml#CartPole-v1", "rl_zoo")
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
    made, _ = read(script, "sb3")
    (tmp_path / "here").mkdir()
    written(made, tmp_path / "here")
    python: dict[str, Value] = {"python": SB3} if SB3 else {}
    overrides = {"control.max_episode_steps": 20, "control.episodes": 10, **python, **limit}
    environment = environments.load(tmp_path / "here", overrides)
    done, score = run(environment, tmp_path / "0000", learning_rate=0.01)
    assert done.status == "finished", (tmp_path / "0000/log.txt").read_text()
    assert score.value is not None and 0 < score.value <= 20
    assert done.curve and done.reported is not None and (tmp_path / "0000/out/model/vecnormalize.pkl").is_file()


@pytest.mark.parametrize("kind", ["sb3", "rl-zoo", "grpo"])
def test_a_new_environment_of_each_kind_is_read(tmp_path: Path, kind: str) -> None:
    env_new(tmp_path / "new", kind=kind)
    environment = environments.load(tmp_path / "new")
    environment.check_files()
    assert environment.higher_is_better and environment.space
