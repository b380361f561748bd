"""Judges the model that `rl_zoo3.train` left: prints the returns of episodes under its own best guess of each action.

    python zoo_episodes.py ALGO ENV FOLDER SEED EPISODES

It runs beside an installed RL Zoo, with the statistics by which the model's observations were normalised.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

ALGORITHM, ENVIRONMENT, FOLDER, SEED, EPISODES = sys.argv[1:6]


def main() -> None:
    import_module("rl_zoo3.import_envs")  # registers the packages of environments that are there
    from rl_zoo3 import ALGOS, create_test_env, get_saved_hyperparams
    from rl_zoo3.utils import get_model_path
    from stable_baselines3.common.evaluation import evaluate_policy

    _, model_path, log_path = get_model_path(1, FOLDER, ALGORITHM, ENVIRONMENT)
    hyperparameters, statistics = get_saved_hyperparams(f"{log_path}/{ENVIRONMENT}", test_mode=True)
    env = create_test_env(
        ENVIRONMENT, stats_path=statistics, seed=int(SEED), should_render=False, hyperparams=hyperparameters
    )
    buffer = {"buffer_size": 1} if ALGORITHM in ("dqn", "qrdqn", "ddpg", "sac", "her", "td3", "tqc", "crossq") else {}
    model = ALGOS[ALGORITHM].load(model_path, device="cpu", **buffer)
    returns, _ = evaluate_policy(model, env, n_eval_episodes=int(EPISODES), return_episode_rewards=True)
    sys.stdout.write(json.dumps({"units": [float(value) for value in returns]}) + "\n")


if __name__ == "__main__":
    main()
