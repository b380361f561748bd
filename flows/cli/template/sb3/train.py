"""PPO in CartPole: stands in for your own script, of which `nightshift env import SCRIPT` makes the same."""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

env = VecNormalize(make_vec_env("CartPole-v1", n_envs=4), norm_reward=False)
model = PPO("MlpPolicy", env, learning_rate=3e-4, n_steps=256)
model.learn(total_timesteps=25_000)
model.save("ppo_cartpole")
