"""Made-up problems for proposers, over a space like that of a small PPO campaign.

Each is a function of the parameters: the true score from 0 to 1, which is the best there is, or None where every run
crashes. What a proposer is told is one draw of it with a noise of `NOISE` (standard deviation).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from environments.space import Choice, Float, Int, Space
from tasks.trial import Params

SPACE: Space = {
    "lr": Float(low=1e-4, high=3e-3, log=True, default=2e-4),
    "num_envs": Choice(values=(4, 8, 16, 32), default=4),
    "epochs": Int(low=2, high=10, default=3),
    "minibatches": Choice(values=(4, 8, 16), default=4),
    "entropy": Float(low=0.0, high=0.02, default=0.0),
    "gamma": Choice(values=(0.98, 0.99, 0.995, 0.999), default=0.99),
    "normalize": Choice(values=(False, True), default=False),
}
DEFAULTS: Params = {name: parameter.default for name, parameter in SPACE.items()}
NOISE = 0.15
Problem = Callable[[Params], float | None]


def hill(at: float, top: float, width: float) -> float:
    """1 at the top, 0.37 a width away from it."""
    return math.exp(-(((at - top) / width) ** 2))


def wave(at: float, top: float, length: float) -> float:
    """1 at the top and every length away from it, 0 halfway between."""
    return (1 + math.cos(2 * math.pi * (at - top) / length)) / 2


def rate(params: Params) -> float:
    """Where the learning rate lies on its scale, 0 to 1."""
    return math.log(float(params["lr"]) / 1e-4) / math.log(30)


def work(params: Params) -> float:
    """How many gradient steps there are per sample, 0 to 1 on a log scale."""
    return math.log(float(params["epochs"]) * float(params["minibatches"]) / 8) / math.log(20)


def spread(params: Params) -> float:
    """How many environments there are, 0 to 1 on a log scale."""
    return math.log2(float(params["num_envs"]) / 4) / 3


def entropy(params: Params) -> float:
    """Where the entropy bonus lies on its scale, 0 to 1."""
    return float(params["entropy"]) / 0.02


def bump(params: Params) -> float:
    """Everything matters a little, and all of it more where the learning rate is right."""
    extras = 0.25 * bool(params["normalize"]) + 0.25 * hill(float(params["gamma"]), 0.995, 0.008)
    return hill(rate(params), 0.6, 0.3) * (0.5 * hill(work(params), 0.7, 0.4) + extras)


def ridge(params: Params) -> float:
    """The more gradient steps, the smaller the best learning rate; more environments move that, and add to it."""
    wide = spread(params)
    return hill(rate(params) + 0.8 * work(params), 0.9 + 0.3 * wide, 0.3) * (0.6 + 0.4 * wide)


def rate_only(params: Params) -> float:
    """A narrow hill over the learning rate; the rest does nothing."""
    return hill(rate(params), 0.65, 0.15)


def cliff(params: Params) -> float | None:
    """The bolder the better, and beyond some boldness every run crashes: a quarter of the space."""
    bold = (rate(params) + work(params)) / 2 - 0.15 * bool(params["normalize"])
    return None if bold > 0.6 else (bold + 0.15) / 0.75


def rugged(params: Params) -> float:
    """A broad hill full of dents: four crests over the learning rate, two and a half over the entropy bonus."""
    broad = hill(rate(params), 0.7, 0.5) * hill(work(params), 0.6, 0.7) * hill(entropy(params), 0.4, 0.9)
    dents = 0.3 * (1 - wave(rate(params), 0.7, 0.25)) + 0.2 * (1 - wave(entropy(params), 0.4, 0.4))
    return broad * (1 - dents)


def islands(params: Params) -> float | None:
    """A low broad hill near the baseline, a high narrow one far off, and crashes in between: a sixth of the space."""
    calm, bold = rate(params), work(params)
    if abs(calm + bold - 0.95) < 0.1 and entropy(params) < 0.75:
        return None
    low = 0.55 * hill(calm, 0.25, 0.3) * hill(bold, 0.2, 0.4)
    high = hill(calm, 0.75, 0.2) * hill(bold, 0.7, 0.3) * (0.7 + 0.3 * bool(params["normalize"]))
    return max(low, high)


PROBLEMS: dict[str, Problem] = {
    "bump": bump,
    "ridge": ridge,
    "rate_only": rate_only,
    "cliff": cliff,
    "rugged": rugged,
    "islands": islands,
}
