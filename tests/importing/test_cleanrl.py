"""The importer of scripts like CleanRL's: they run unchanged, without tyro and TensorBoard, and what they log counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.cli.problems import import_environment
from flows.cli.validation import warnings
from tests.importing.test_importers import imported_from, run
from tests.support.toy import folder_of

SCRIPT = '''\
import os
from dataclasses import dataclass
import gymnasium as gym
import tyro
from tensorboardX import SummaryWriter
from small_utils.returns import scaled

@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    seed: int = 1
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
args = parser.parse_args()
if "final_info" not in {}:
    SummaryWriter("runs").add_scalar("episodic_return", args.learning_rate + args.seed, 1)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script in a repository, with the package that it imports in the folder above its own."""
    returns = "from factors import THOUSAND\ndef scaled(value, rate): return value * 0 + THOUSAND * rate\n"
    files = {"small_utils/__init__.py": "", "small_utils/returns.py": returns, "factors.py": "THOUSAND = 1000\n"}
    files["algorithms/small.py"] = SCRIPT
    return folder_of(tmp_path / "theirs", files) / "algorithms/small.py"


def test_a_script_with_a_dataclass_of_options_runs_unchanged_and_the_mean_of_what_it_logs_is_the_score(
    script: Path, tmp_path: Path
) -> None:
    _, made = import_environment(str(script), tmp_path / "here")
    environment = environments.load(tmp_path / "here")
    assert (environment.metric, environment.direction) == ("charts/episodic_return", "maximize")
    assert environment.defaults == {
        "learning_rate": 2.5e-4, "num_envs": 2, "anneal_lr": True, "env_id": "CartPole-v1",
    }  # fmt: skip
    assert environment.budget_steps == 50 and environment.editable == ("repository/small.py",)
    assert warnings(environment) == [] and made.warnings
    left = " ".join(term.theirs + term.ours for term in made.left)
    assert "learning_rate" not in left
    for name in ("budget_seconds", "track", "tau", "target_kl", "exp_name"):
        assert name in left
    assert (tmp_path / "here/repository/small.py").read_text() == SCRIPT

    done, score = run(environment, tmp_path / "0000", learning_rate=0.001)
    assert done.status == "finished", (tmp_path / "0000/log.txt").read_text()
    assert score.value == 1.0, score.error
    assert 8 <= score.also["charts/length"] <= 11  # always left: ten steps each
    assert done.curve and done.startup is not None

    endless = environments.load(tmp_path / "here", {"budget_seconds": 0.3, "budget_steps": 10**9})
    done, score = run(endless, tmp_path / "0001")
    assert (done.status, score.value) == ("finished", 0.25), "a run that its time ends counts with what it has logged"


def test_a_script_that_cannot_be_carried_is_refused_with_the_reason(script: Path, tmp_path: Path) -> None:
    cases = {"charts/episodic_return": ("charts/gain", "score is not seen"), "import os": ("import (", "is not Python")}
    for old, (new, reason) in cases.items():
        script.write_text(SCRIPT.replace(old, new))
        with pytest.raises(Refused, match=reason):
            import_environment(str(script), tmp_path / "here")


def test_a_script_with_argparse_gets_its_options_on_its_command_line(tmp_path: Path) -> None:
    script = tmp_path / "flags.py"
    script.write_text(FLAGS)
    environment = imported_from(script, tmp_path / "here")
    assert environment.defaults == {"learning-rate": 2.0}
    account = (tmp_path / "here/imported.md").read_text()
    assert "gymnasium has up to 0.29" in account and "- :" not in account
    _, score = run(environment, tmp_path / "0000", **{"learning-rate": 4.0})
    assert score.value == 4 + 7, (tmp_path / "0000/log.txt").read_text()
