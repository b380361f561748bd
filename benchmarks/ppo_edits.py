"""Does the speed of the bundled PPO survive ordinary edits of its program?

    python -m benchmarks.ppo_edits [--id BipedalWalker-v3] [--rounds 1] [--seconds 5] [--envs 64] [--only ReLU]

Each edit is a change that a researcher tries: another network, another loss, another schedule. It is applied to the
program's text, and the program is trained on one core and on all. `of unedited` is the ratio of steps per second to the
program as it stands on as many cores, in the same round; `of 1 core` is what the further cores give the edited one.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.ppo_throughput import CORES, Layout, bundled

MLP = "nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])"
TRUNK = """self.trunk = mlp(shape.observations, shape.hidden, shape.hidden, gain=1.0)
        self.actor = nn.Sequential(self.trunk, nn.Tanh(), nn.Linear(shape.hidden, shape.actions))
        self.critic = nn.Sequential(self.trunk, nn.Tanh(), nn.Linear(shape.hidden, 1))"""
VALUE_LOSS = "value_loss = (agent.value(observations) - target).square().mean()"
CLIPPED_VALUE_LOSS = """value = agent.value(observations)
        near = old + (value - old).clamp(-params.clip, params.clip)
        value_loss = torch.maximum((value - target).square(), (near - target).square()).mean()"""
RATE = "params.learning_rate * (1 - budget.fraction)"


@dataclass(frozen=True)
class Edit:
    """Replacements in the text of the program, each of a text that stands there once."""

    replacements: tuple[tuple[str, str], ...]

    def __call__(self, text: str) -> str:
        for before, after in self.replacements:
            if text.count(before) != 1:
                raise ValueError(f"{before!r} stands {text.count(before)} times in the program: edit the benchmark")
            text = text.replace(before, after)
        return text

    def is_in(self, text: str) -> bool:
        """Whether the text holds every replacement. Another edit may have put lines between those that one has put
        behind a line, and that line."""
        for before, after in self.replacements:
            added = after.removeprefix(before) if before.endswith("\n") else after
            if added not in text or (before not in after and before in text):
                return False
        return True


def edit(*texts: str) -> Edit:
    return Edit(tuple(zip(texts[::2], texts[1::2], strict=True)))


EDITS = {
    "unedited": edit(),
    "ReLU": edit(MLP, MLP.replace("Tanh", "ReLU")),
    "layers of 128": edit("hidden: int = 64", "hidden: int = 128"),
    "a third layer": edit(MLP, MLP.replace("layers[2]", "nn.Linear(hidden, hidden), nn.Tanh(), layers[2]")),
    "layer norm": edit(MLP, MLP.replace("nn.Tanh()", "nn.LayerNorm(hidden), nn.Tanh()")),
    "shared trunk": edit(
        "self.actor = mlp(shape.observations, shape.hidden, shape.actions, gain=0.01)", TRUNK,
        "        self.critic = mlp(shape.observations, shape.hidden, 1, gain=1.0)\n", "",
    ),
    "stop at a KL divergence": edit(
        "        ratio = change.exp()\n",
        "        ratio = change.exp()\n        if (ratio - 1 - change).mean() > 0.02:\n            break\n",
    ),
    "clipped value loss": edit(
        "log_probs, gains, advantages + values)", "log_probs, gains, advantages + values, values)",
        "old_log_probs, gain, target in", "old_log_probs, gain, target, old in",
        VALUE_LOSS, CLIPPED_VALUE_LOSS,
    ),
    "cosine learning rate": edit(RATE, "params.learning_rate * (1 + math.cos(math.pi * budget.fraction)) / 2"),
    "entropy schedule": edit("params.entropy * entropy.mean()", "0.01 * (1 - budget.fraction) * entropy.mean()"),
    "reward shaping": edit(
        "        if params.normalize_rewards:",
        "        cost = 0.01 * batch.actions.square().sum(-1)\n"
        "        batch = replace(batch, rewards=batch.rewards - cost)\n"
        "        if params.normalize_rewards:",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps per second of edited PPO programs.")
    parser.add_argument("--id", default="BipedalWalker-v3", help="environment with Box actions (BipedalWalker-v3)")
    parser.add_argument("--rounds", type=int, default=1, help="trainings of each (1)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each training (5)")
    parser.add_argument("--envs", type=int, default=64, help="environments of each training (64)")
    parser.add_argument("--only", nargs="+", default=[""], help="edits whose names begin so (all)")
    options = parser.parse_args()
    edits = {name: edited for name, edited in EDITS.items() if name.startswith(("unedited", *options.only))}
    speeds: dict[tuple[str, int], list[float]] = {}
    for number in range(options.rounds):
        for name, edited in edits.items():
            for cores in (1, CORES):
                layout = Layout(options.envs, cores)
                steps, took = bundled(options.id, options.seconds, number, layout, edited)
                speeds.setdefault((name, cores), []).append(steps / took)
    when = f"{options.id}, {options.envs} envs, {options.rounds} rounds, {time.strftime('%Y-%m-%d %H:%M')}"
    table = Table("edit", f"steps/s, {CORES} cores", "of unedited", "1 core", "of unedited", "of 1 core", title=when)
    for name in edits:
        alone, all_of_them = speeds[name, 1], speeds[name, CORES]
        row = [f"{median(all_of_them):,.0f}", ratio(all_of_them, speeds["unedited", CORES])]
        table.add_row(
            name, *row, f"{median(alone):,.0f}", ratio(alone, speeds["unedited", 1]), ratio(all_of_them, alone)
        )
    Console(highlight=False).print(table)


def ratio(speeds: list[float], bases: list[float]) -> str:
    return f"{median(speed / base for speed, base in zip(speeds, bases, strict=True)):.2f}"


if __name__ == "__main__":
    main()
