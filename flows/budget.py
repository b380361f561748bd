"""The budget of a campaign: `max_usd`, `max_gpu_hours`, and what they leave for language models.

No trial starts that could break a limit, the runs that are reserved for the certificate included. Everything is counted
as dear as it may become, so a campaign ends below its budget, not at it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

from environments import Environment
from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from tasks.proposing.brief import RemainingBudget
from tasks.spending import HOUR, MachineCost, Spent, spent
from tasks.store.ledger import Ledger
from tasks.trial import History

ROUNDING = 1e-9


@dataclass(frozen=True)
class CampaignBudget:
    """What a campaign spent and may spend, while a process runs it, or before it begins."""

    spec: CampaignSpec
    ledger: Ledger | None
    environment: Environment

    @cached_property
    def gpus(self) -> int:
        """GPUs of the slots that its runs will hold, as far as can be seen from here."""
        if self.spec.launch == "here":
            return max((len(part.gpus) for part in self.spec.slots(self.environment).parts), default=0)
        return 0 if self.environment.device == "cpu" else self.environment.gpus

    def spent(self, history: History) -> Spent:
        return spent(self.ledger, history, time.time()) if self.ledger else Spent()

    def shortage(self, history: History, under_way: int = 0) -> str:
        """Why the budget allows no trial after so many under way, each counted whole; empty if it does."""
        excess = self._excess(self.spent(history), self._projection(history, under_way))
        return excess and f"no budget for another trial: {excess}"

    def left_for_models(self, history: History, under_way: int = 0) -> RemainingBudget:
        """The money and tokens that models may take for the next proposal; None where nothing limits them."""
        so_far, limits = self.spent(history), self.spec.advanced
        tokens = None if limits.max_tokens is None else max(limits.max_tokens - so_far.models.tokens, 0)
        if limits.max_usd is None:
            return RemainingBudget(tokens=tokens)
        if so_far.usd is None:  # a limit that cannot be checked must not be exceeded
            return RemainingBudget(usd=0.0, tokens=tokens)
        machines = self._projection(history, under_way).usd
        return RemainingBudget(usd=max(limits.max_usd - so_far.usd - machines, 0.0), tokens=tokens)

    def check(self, history: History, what: str, environment: Environment, seconds: float) -> None:
        """Refuse so many seconds in an environment, which a person asked for, if they could break a limit."""
        if excess := self._excess(self.spent(history), self._hour(environment).of(seconds)):
            raise Refused(f"no budget for {what}: {excess}: raise the limit with `nightshift resume`, or ask for less")

    def _projection(self, history: History, under_way: int) -> MachineCost:
        """The most that machines may cost for another trial after those under way, and for the certificate."""
        seconds = self.spec.time_for_the_certificate(self.environment, history, parallel=1)
        seconds += (1 + under_way) * self.spec.machine_time_for_a_trial(self.environment, history)
        return self._hour(self.environment).of(seconds)

    def _hour(self, environment: Environment) -> MachineCost:
        """What an hour costs: its slot, and a rented machine as the environment states it."""
        slot, remote = MachineCost(self.spec.advanced.usd_per_hour, self.gpus), environment.remote
        return slot + MachineCost(HOUR * remote.usd_per_second, environment.rented_gpus) if remote else slot

    def _excess(self, so_far: Spent, need: MachineCost) -> str:
        """Why machines that cost so much more could break a limit; empty if they could not, or cost nothing: of models
        alone the fallback takes the place.
        """
        limits, used = self.spec.advanced, so_far.machines
        if limits.max_usd is not None and need.usd and so_far.usd is None:
            return f"max_usd = {limits.max_usd:g} cannot be kept, since a language model has no known price"
        of_each = (
            ("max_usd", "USD", limits.max_usd, so_far.usd or 0.0, need.usd),
            ("max_gpu_hours", "GPU hours", limits.max_gpu_hours, used.gpu_hours, need.gpu_hours),
        )
        for name, unit, limit, before, more in of_each:
            if limit is not None and more and before + more > limit + ROUNDING:
                return f"{name} = {limit:g}, {before:.3g} {unit} used, and {more:.3g} more may be needed"
        return ""


def check_budget(spec: CampaignSpec) -> RemainingBudget:
    """What models may take at most. Refused if the budget does not pay for what a new or resumed campaign will run."""
    limits = spec.advanced
    is_limited = (limits.max_usd, limits.max_gpu_hours) != (None, None)
    if is_limited and not Ledger.exists(spec.name):
        if shortage := CampaignBudget(spec, None, spec.new_environment()).shortage(()):
            raise Refused(f"{shortage}: raise the limit, which also has to pay for what the rule runs at the end")
    elif is_limited and limits.ablation and not (ledger := Ledger.open(spec.name)).spec["advanced"]["ablation"]:
        history, environment = ledger.history(), ledger.environment
        seconds = spec.time_for_runs(environment, history, 0, len(environment.space) + 1, parallel=1)
        CampaignBudget(spec, ledger, environment).check(history, "the ablation", environment, seconds)
    return RemainingBudget(usd=limits.max_usd, tokens=limits.max_tokens)
