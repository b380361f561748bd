"""Judges the model that `rl_zoo3.train` left: prints the returns of episodes under its own best guess of each action.

    python zoo_episodes.py ALGO ENV FOLDER SEED EPISODES

It runs beside an installed RL Zoo, with the statistics by which the model's observations were normalised.
"""

from __future__ import annotations

import json
import sys

import rl_zoo3.import_envs  # registers the packages of environments that are there
from rl_zoo3.utils import get_model_path
from stable_baselines3.common.evaluation import evaluate_policy

ALGORITHM, ENVIRONMENT, FOLDER, SEED, EPISODES = sys.argv[1:6]

NAME = ENVIRONMENT.replace("/", "-")
"""As RL Zoo calls its files."""

_, model_path, log_path = get_model_path(1, FOLDER, ALGORITHM, NAME)
hyperparams, statistics = rl_zoo3.get_saved_hyperparams(f"{log_path}/{NAME}", test_mode=True)
env = rl_zoo3.create_test_env(
    ENVIRONMENT, stats_path=statistics, seed=int(SEED), should_render=False, hyperparams=hyperparams
)
# Of algorithms that replay the buffer would fill the memory, or need the environment; to others it means nothing.
model = rl_zoo3.ALGOS[ALGORITHM].load(
    model_path, device="cpu", buffer_size=1, replay_buffer_class=None, replay_buffer_kwargs={},
    optimize_memory_usage=False,
)  # fmt: skip
returns, _ = evaluate_policy(model, env, n_eval_episodes=int(EPISODES), return_episode_rewards=True)
sys.stdout.write(json.dumps({"units": [float(value) for value in returns]}) + "\n")
