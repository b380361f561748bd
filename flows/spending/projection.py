"""What the next trial and the certificate of a campaign may cost at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from environments import Environment
from flows.spec.campaign_spec import CampaignSpec
from tasks.spending.spent import HourlyRate, MachineCost, Spent
from tasks.trial import History


@dataclass(frozen=True)
class Projection:
    """The most that machines may cost from now on; language models come besides."""

    trial: MachineCost
    """The next trial."""
    under_way: MachineCost
    """What trials under way may still cost."""
    certificate: MachineCost
    """The runs that are reserved for the certificate, and the ablation after it."""

    @property
    def next(self) -> MachineCost:
        """Everything that the next trial commits the campaign to."""
        return self.trial + self.under_way + self.certificate


def projection(
    spec: CampaignSpec,
    environment: Environment,
    history: History,
    spent: Spent,
    rate: HourlyRate,
    under_way: Iterable[int] = (),
) -> Projection:
    """The most that the next trial, those under way and the certificate may cost.

    Args:
        rate: What an hour of a slot costs; a rented machine comes besides.
        under_way: Numbers of the trials that are started and not decided.
    """

    rented = rented_rate(environment, spent)

    def of(seconds: float) -> MachineCost:
        return rate.of(seconds) + rented.of(seconds)

    trial = of(spec.machine_time_for_a_trial(environment, history))
    going = (trial.beyond(spent.trials.get(number, MachineCost())) for number in under_way)
    certificate = of(spec.time_for_the_certificate(environment, history, parallel=1))
    return Projection(trial, sum(going, MachineCost()), certificate)


def rented_rate(environment: Environment, spent: Spent) -> HourlyRate:
    """What an hour of a machine costs that a trainer rents: as the environment states it, else the dearest so far."""
    remote, seen = environment.remote, spent.rented_rate
    if remote is None:
        return seen
    gpus = remote.rented_gpus or (environment.gpus if environment.device == "cuda" else 0)
    return HourlyRate(3600 * remote.usd_per_second or seen.usd, max(gpus, seen.gpus))
