"""The importer of folders like zjianyi/autoRL: the control judge plays the agent that their evaluation is given."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.cli.problems import import_environment
from tests.importing.test_importers import imported_from, run
from tests.support.toy import folder_of

EVALUATE = """\
import gymnasium as gym
import numpy as np
TIME_BUDGET = 720
ENV_ID = "CartPole-v1"
NUM_EVAL_EPISODES = 10
def evaluate_policy(agent, device, num_episodes=2):
    import torch
    env, returns = gym.make(ENV_ID), []
    for episode in range(num_episodes):
        (seen, _), ended, total = env.reset(seed=episode), False, 0.0
        while not ended:
            action = agent.get_action(torch.tensor(seen, dtype=torch.float32).unsqueeze(0))
            seen, reward, terminated, truncated, _ = env.step(int(action))
            ended, total = terminated or truncated, total + reward
        returns.append(total)
    return {"avg_return": float(np.mean(returns))}
"""
TRAIN = """\
import time
import numpy as np
import torch
from evaluate import TIME_BUDGET, evaluate_policy
SEED = 1
GAIN = 0.0
def sign(value): return int(value > 0)
class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor([0.0, 0.0, 1.0, GAIN]))
    def get_action(self, seen):
        with torch.no_grad():
            return np.asarray(sign(float(seen.squeeze(0) @ self.weights)))
torch.manual_seed(SEED)
agent, began = Agent(), time.time()
while time.time() - began < TIME_BUDGET:
    time.sleep(0.05)
stats = evaluate_policy(agent, "cpu")
print("---")
print(f"avg_return:       {stats['avg_return'] + 1000:.6f}")
"""


def repository(folder: Path, train: str) -> Path:
    program = "The goal: get the highest `avg_return`, by `grep '^avg_return:' run.log`.\n"
    return folder_of(folder, {"train.py": train, "evaluate.py": EVALUATE, "program.md": program})


@pytest.mark.slow
def test_the_judge_plays_the_agent_and_ignores_the_printed_score(tmp_path: Path) -> None:
    imported_from(repository(tmp_path / "theirs", TRAIN.replace("GAIN = 0.0", "GAIN = 1.0")), tmp_path / "here")
    environment = environments.load(tmp_path / "here", {"budget_seconds": 1})
    assert (environment.metric, environment.direction, environment.budget_seconds) == ("return", "maximize", 1)
    done, score = run(environment, tmp_path / "0000")
    assert done.status == "finished", done.error
    assert score.value is not None and 100 < score.value <= 500, score.error
    assert len(score.units) == 10 and "avg_return:" in (tmp_path / "0000/log.txt").read_text()


def test_a_repository_without_an_agent_to_play_is_refused(tmp_path: Path) -> None:
    theirs = repository(tmp_path / "theirs", TRAIN.replace("= evaluate_policy(agent", "= dict(agent"))
    with pytest.raises(Refused, match="to call evaluate_policy"):
        import_environment(str(theirs), tmp_path / "here")
