"""What zjianyi/autoRL published, as values: read at commit 41000d2, the newest on 23 November 2026.

The repository holds the configuration that its search began with (train.py). The best one was never committed: the
chart progress.png names what each kept experiment changed, some labels are cut off, and README.md at 4590134 names four
changes in words. What the chart does not say is taken to be as at the start, which is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

from environments.space import Value

SOURCE = "github.com/zjianyi/autoRL at 41000d2"
BUDGET_SECONDS = 720
EPISODES = 100
PUBLISHED = {"start": 135.6, "best": 296.6}
"""progress.png, README.md at 4590134: one run each, seed 1 and seed 42; the best is the record of 30 experiments."""
TRANSFER = {"hopper": (2105, 3613), "walker2d": (382, 5026), "half_cheetah": (-3604, 6117), "ant": (881, 1113)}
"""transfer_comparison.png: one run each of the start and of the best, on a CPU or on an H100, by robot and by arm."""

START: dict[str, Value] = {
    "learning_rate": 2.5e-4, "num_envs": 4, "num_steps": 128, "epochs": 4, "minibatches": 4, "gamma": 0.99,
    "gae_lambda": 0.95, "clip": 0.2, "entropy": 0.01, "value_coef": 0.25, "max_grad_norm": 0.5, "hidden": 64,
    "anneal": True, "normalize_observations": False, "normalize_rewards": False,
}  # fmt: skip
"""train.py in the parameters of our program. Its squared error is halved before it is weighed by 0.5: 0.25 here."""
BEST: dict[str, Value] = {
    "num_envs": 256, "epochs": 15, "hidden": 512, "normalize_observations": True, "normalize_rewards": True,
}  # fmt: skip
"""What progress.png says that the best one changed and a parameter can say; its three ELU layers are an edit."""


@dataclass(frozen=True)
class Fact:
    """One line of the comparison."""

    name: str
    there: str
    where: str
    """The file of that repository which says so."""
    here: str


FACTS = (
    Fact("problem", "BipedalWalker-v3", "evaluate.py", "the same"),
    Fact("budget of a run", "720 s, counted over rollouts and updates", "evaluate.py, train.py", "720 s from ready on"),
    Fact("processes, threads", "1, as many threads as torch takes", "train.py", "2 processes of 1 thread"),
    Fact("device", "CUDA if there is one; the walker's runs on a CPU", "train.py, README.md", "CPU"),
    Fact("evaluation", "100 episodes, the mean action", "evaluate.py", "the same"),
    Fact("seeds of the episodes", "0 to 99, the same in every evaluation", "evaluate.py", "drawn anew for each run"),
    Fact("seed of a training", "1; 42 from experiment 22 on", "train.py, progress.png", "fresh for each run"),
    Fact("runs of a configuration", "1", "program.md", "as many as are asked for; 3 of the baseline at least"),
    Fact("environments x steps, start", "4 x 128", "train.py", "the same"),
    Fact("environments x steps, best", "256 x 128", "progress.png", "the same"),
    Fact("epochs, start and best", "4; 15", "train.py; progress.png", "the same"),
    Fact("minibatches", "4; the best's is not said", "train.py", "4 in both"),
    Fact("learning rate", "2.5e-4, decays to 0; the best's is not said", "train.py", "2.5e-4 in both"),
    Fact("discount, lambda, clip, bound of the gradient", "0.99, 0.95, 0.2, 0.5", "train.py", "the same"),
    Fact("entropy bonus", "0.01; the best's is not said", "train.py", "0.01 in both"),
    Fact("networks, start", "2 tanh layers of 64", "train.py", "the same"),
    Fact("networks, best", "3 ELU layers of 512", "progress.png", "the same, by an edit of train.py"),
    Fact("normalisation, best", "observations, rewards", "README.md at 4590134; progress.png", "the same"),
    Fact("a label that is cut off", "begins with T, beside the 15 epochs", "progress.png", "nothing"),
    Fact("clipped value loss", "start: yes; best: no", "train.py; progress.png", "NOT EXPRESSED: no in both"),
    Fact("weight of the value loss", "0.5 of half the squared error", "train.py", "0.25 of the squared error"),
    Fact("advantages normalised", "in each minibatch", "train.py", "NOT EXPRESSED: in each rollout"),
    Fact("an episode cut off at 1600 steps", "counts as ended", "train.py", "NOT EXPRESSED: would have gone on"),
    Fact(
        "the step after an episode", "a reset without a reward, which is learned from (gymnasium 1.2.3)",
        "train.py, uv.lock", "NOT EXPRESSED: no such step",
    ),
    Fact("log of the standard deviation", "kept in -5 to 2; the best's was not", "train.py, the transfer chart",
         "NOT EXPRESSED: free"),
)  # fmt: skip
