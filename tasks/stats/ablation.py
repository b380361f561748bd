"""Ablation of a certified champion: fresh runs without each of its changes, against fresh runs of the champion.

The champion's runs of the certificate passed a test, so they are lucky on average; therefore it runs again. A change
carries if the champion is shown to be worse without it: one-sided t ratios with the pooled variance of these runs
alone (at least half of the search's), each at its share of LEVEL (Bonferroni). So the probability that any change
without an effect is said to carry is at most LEVEL. A change that carries a little, or only together with another, is
not shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ConfigDict

from environments.score import Score
from tasks.numbers import number, probability
from tasks.stats.permutation import Noise, pooled
from tasks.trial import Proposal, Run, Trial

LEVEL = 0.05
RUNS = 2
"""Without each change: one would not show how much such runs scatter."""
FEWEST = 3
"""Of the champion: every change is compared with it."""


@dataclass(frozen=True)
class Removed:
    """A run of the champion without one of its changes."""

    change: str
    """A parameter's name, or `its edit`; empty for the champion itself."""
    run: Run
    score: Score


@dataclass(frozen=True)
class Ablation:
    __pydantic_config__ = ConfigDict(defer_build=True)
    """As in `Certificate`."""
    champion: int
    sd: float
    """Standard deviation between training runs."""
    removed: tuple[Removed, ...]
    kept: tuple[Removed, ...]
    """Runs of the champion itself."""

    @classmethod
    def of(cls, champion: int, runs: Sequence[Removed], sd: float = 0.0) -> Ablation:
        """The ablation of these runs; their variance is at least half of the square of the search's `sd`."""
        removed, kept = (tuple(run for run in runs if bool(run.change) is gone) for gone in (True, False))
        made = cls(champion, 0.0, removed, kept)
        own = made.noise
        return replace(made, sd=math.sqrt(max(own.sd**2 if own else 0.0, sd**2 / 2)))

    @property
    def arms(self) -> dict[str, list[Score]]:
        """The scores of the champion, by an empty name, and those without each change."""
        found: dict[str, list[Score]] = {}
        for one in (*self.kept, *self.removed):
            found.setdefault(one.change, []).append(one.score)
        return found

    @property
    def noise(self) -> Noise | None:
        return pooled([score.utility for score in arm if score.value is not None] for arm in self.arms.values())

    @property
    def findings(self) -> dict[str, tuple[float, float]]:
        """Of each change whose runs all have a score: the champion's mean less the mean without it, in utility, and its
        one-sided p, adjusted for the number of changes. Empty if one of the champion's runs has no score.
        """
        from scipy import special  # type: ignore[import-untyped]

        scored = {name: arm for name, arm in self.arms.items() if all(score.value is not None for score in arm)}
        arms = {name: [score.utility for score in arm] for name, arm in scored.items()}
        mine, noise, found = arms.pop("", []), self.noise, {}
        for change, values in arms.items() if mine else ():
            loss = statistics.mean(mine) - statistics.mean(values)
            p = float(loss <= 0)  # where nothing is random
            if self.sd and noise:
                error = self.sd * math.sqrt(1 / len(values) + 1 / len(mine))
                p = min(len(arms) * float(special.stdtr(noise.df, -loss / error)), 1.0)
            found[change] = loss, p
        return found

    def sentences(self) -> list[str]:
        """What is known of each change, a sentence each, in the order in which they were removed."""
        found, arms, words = self.findings, self.arms, list[str]()
        mine = arms.pop("", [])
        for change, arm in arms.items():
            if change in found:
                loss, p = found[change]
                size = f"{number(abs(loss))} {'worse' if loss > 0 else 'better'}" if loss else "the same"
                carries = "it carries" if p <= LEVEL else "not shown to carry"
                told = f"{size} ({len(arm)} v {len(mine)} fresh runs, {probability(p)}): {carries}"
            else:
                whose, some = ("", arm) if any(score.value is None for score in arm) else (" of the champion", mine)
                errors = [(score.error or "no score").splitlines()[0] for score in some if score.value is None]
                told = f"could not be told, since {len(errors)} of {len(some)} runs{whose} crashed: {errors[0]}"
            words.append(f"without {change}: {told}")
        return words


def ablation_runs(changes: int, deterministic: bool = False) -> tuple[int, int]:
    """Runs of the champion itself, and of it without each of so many changes.

    The champion's share keeps the errors small for the number of runs in all. Where training draws nothing at random,
    two runs show whether the judge's units differ.
    """
    if not changes:
        return 0, 0
    return (RUNS, RUNS) if deterministic else (max(FEWEST, round(RUNS * math.sqrt(changes))), RUNS)


def parts(champion: Trial, baseline: Trial) -> tuple[tuple[str, Proposal], ...]:
    """The champion without each of its changes, with the name of the change."""
    proposal, before = champion.proposal, baseline.proposal.params
    names = [name for name, value in proposal.params.items() if before.get(name, value) != value]
    found = [(name, replace(proposal, params={**proposal.params, name: before[name]})) for name in names]
    if proposal.edit:
        found.append(("its edit", replace(proposal, edit=None)))
    return tuple(found)
