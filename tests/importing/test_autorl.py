"""The importer of folders like zjianyi/autoRL: the control judge plays the agent that their evaluation is given."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.cli.env_import import import_environment
from tasks.evaluate import judge_run
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.toy import SANDBOX

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


def repository(folder: Path, train: str = TRAIN, evaluate: str = EVALUATE) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(train)
    (folder / "evaluate.py").write_text(evaluate)
    (folder / "program.md").write_text("The goal: get the highest `avg_return`, by `grep '^avg_return:' run.log`.\n")
    return folder


@pytest.mark.slow
def test_the_judge_plays_the_agent_and_ignores_the_printed_score(tmp_path: Path) -> None:
    import_environment(
        str(repository(tmp_path / "theirs", TRAIN.replace("GAIN = 0.0", "GAIN = 1.0"))), tmp_path / "here", ""
    )
    environment = environments.load(tmp_path / "here", {"budget_seconds": 1})
    assert (environment.metric, environment.direction, environment.budget_seconds) == ("avg_return", "maximize", 1)
    place, proposal = TrialDir(tmp_path / "0000"), Proposal(environment.defaults)
    run = run_program("import/1", environment, SANDBOX, environment.folder, place, proposal, seed=7)
    assert run.status == "finished", run.error
    score = judge_run("import/1", environment, SANDBOX, place, run, seed=2)
    assert score.value is not None and 100 < score.value <= 500, score.error
    assert len(score.units) == 10 and "avg_return:" in place.log.read_text()


@pytest.mark.parametrize(
    ("train", "evaluate", "reason"),
    [
        (TRAIN.replace("= evaluate_policy(agent", "= dict(agent"), EVALUATE, "never calls evaluate_policy"),
        (TRAIN, EVALUATE.replace('"CartPole-v1"', "name()"), "ENV_ID is no plain text"),
        (
            TRAIN,
            EVALUATE.replace("def evaluate_policy(", "def other("),
            "no prepare.py, no program.md|no prepare.py in it",
        ),
    ],
)
def test_a_repository_without_an_agent_to_play_is_refused(
    tmp_path: Path, train: str, evaluate: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        import_environment(str(repository(tmp_path / "theirs", train, evaluate)), tmp_path / "here", "")
