"""PPO in CartPole: stands in for your own script, of which `nightshift env import SCRIPT` makes the same."""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=3e-4)
parser.add_argument("--n-steps", type=int, default=256)
parser.add_argument("--total-timesteps", type=int, default=25_000)
args = parser.parse_args()

env = VecNormalize(make_vec_env("CartPole-v1", n_envs=4), norm_reward=False)
model = PPO("MlpPolicy", env, learning_rate=args.learning_rate, n_steps=args.n_steps)
model.learn(total_timesteps=args.total_timesteps)
model.save("ppo_cartpole")
