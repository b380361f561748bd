"""Plain PPO for continuous actions: a re-implementation of CleanRL's single file, to compare speeds with.

It is `cleanrl/ppo_continuous_action.py` (Huang and others 2022) without its logging, for the same Gymnasium: one
process, four environments in a SyncVectorEnv with CleanRL's wrappers, and rollouts of 128 steps with 4 epochs of 4
minibatches, which are CleanRL's sizes for several environments.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions.normal import Normal

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 128, 4, 4
GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, GRADIENT_NORM, LEARNING_RATE = 0.99, 0.95, 0.2, 0.0, 0.5, 0.5, 3e-4


def make(id: str) -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = gym.wrappers.FlattenObservation(gym.make(id))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    env = gym.wrappers.ClipAction(env)
    env = gym.wrappers.NormalizeObservation(env)
    env = gym.wrappers.TransformObservation(env, lambda seen: np.clip(seen, -10, 10), env.observation_space)
    env = gym.wrappers.NormalizeReward(env, gamma=GAMMA)
    return gym.wrappers.TransformReward(env, lambda reward: float(np.clip(float(reward), -10, 10)))


def layer(inputs: int, outputs: int, gain: float = float(np.sqrt(2))) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.constant_(made.bias, 0.0)
    return made


class Agent(nn.Module):
    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__()
        seen, taken = envs.single_observation_space.shape, envs.single_action_space.shape
        assert seen and taken
        self.critic = nn.Sequential(
            layer(seen[0], 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )  # fmt: skip
        self.actor_mean = nn.Sequential(
            layer(seen[0], 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, taken[0], 0.01)
        )  # fmt: skip
        self.actor_logstd = nn.Parameter(torch.zeros(1, taken[0]))

    def value(self, seen: Tensor) -> Tensor:
        valued: Tensor = self.critic(seen)
        return valued

    def act(self, seen: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean = self.actor_mean(seen)
        bell: Any = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = bell.sample() if action is None else action
        return action, bell.log_prob(action).sum(1), bell.entropy().sum(1), self.critic(seen)


def train(id: str, seconds: float, seed: int) -> tuple[int, float]:
    """Steps taken, and the seconds that they took: at least `seconds`, and whole updates only."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = gym.vector.SyncVectorEnv([lambda: make(id) for _ in range(ENVS)])
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    observations = torch.zeros((STEPS, ENVS, *(envs.single_observation_space.shape or ())))
    actions = torch.zeros((STEPS, ENVS, *(envs.single_action_space.shape or ())))
    logprobs, rewards, dones, values = torch.zeros((4, STEPS, ENVS))
    first, _ = envs.reset(seed=seed)
    seen, done = torch.Tensor(first), torch.zeros(ENVS)
    steps, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        for step in range(STEPS):
            steps += ENVS
            observations[step], dones[step] = seen, done
            with torch.no_grad():
                action, logprob, _, value = agent.act(seen)
            values[step], actions[step], logprobs[step] = value.flatten(), action, logprob
            arrived, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            seen, done = torch.Tensor(arrived), torch.Tensor(np.logical_or(terminated, truncated))
        with torch.no_grad():
            advantages, later = torch.zeros_like(rewards), torch.zeros(ENVS)
            for t in reversed(range(STEPS)):
                goes_on = 1.0 - (done if t == STEPS - 1 else dones[t + 1])
                after = agent.value(seen).reshape(-1) if t == STEPS - 1 else values[t + 1]
                delta = rewards[t] + GAMMA * after * goes_on - values[t]
                advantages[t] = later = delta + GAMMA * GAE_LAMBDA * goes_on * later
            returns = advantages + values
        improve(agent, optimizer, observations, actions, logprobs, advantages, returns, values)
    envs.close()
    return steps, took


def improve(agent: Agent, optimizer: torch.optim.Adam, *rollout: Tensor) -> None:
    b_seen, b_actions, b_logprobs, b_advantages, b_returns, b_values = (part.flatten(0, 1) for part in rollout)
    order, size, clip_fractions = np.arange(ENVS * STEPS), ENVS * STEPS // MINIBATCHES, []
    for _ in range(EPOCHS):
        np.random.shuffle(order)
        for start in range(0, ENVS * STEPS, size):
            mb = order[start : start + size]
            _, logprob, entropy, value = agent.act(b_seen[mb], b_actions[mb])
            logratio = logprob - b_logprobs[mb]
            ratio = logratio.exp()
            with torch.no_grad():
                clip_fractions.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
            gain = b_advantages[mb]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy_loss = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)).mean()
            value = value.view(-1)
            clipped = b_values[mb] + torch.clamp(value - b_values[mb], -CLIP, CLIP)
            value_loss = 0.5 * torch.max((value - b_returns[mb]) ** 2, (clipped - b_returns[mb]) ** 2).mean()
            loss = policy_loss - ENTROPY * entropy.mean() + VALUE * value_loss
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(agent.parameters(), GRADIENT_NORM)
            optimizer.step()
