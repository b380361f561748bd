"""The budget of a running campaign: `max_usd`, `max_gpu_hours`, and the monthly cap of its home.

No trial starts that could break one of them, the runs that are reserved for the certificate included. Everything is
counted as dear as it may become (flows/spending/projection.py), so a campaign ends below its budget, not at it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from environments import Environment
from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.projection import Projection, projection, rented_rate
from tasks.machine.slots import Slots
from tasks.proposing.brief import RemainingBudget
from tasks.spending import month
from tasks.spending.prices import FILE, prices
from tasks.spending.spent import NOTHING_SPENT, HourlyRate, SpendingReader, Spent, note_removed_late
from tasks.store.ledger import Ledger
from tasks.trial import History

FIRST_SHARE = 0.25
"""Part of what a month has left that a campaign promises for its first proposal by a model."""
LARGEST = 2.0
"""Later: so many times the most that a proposal cost so far."""
ROUNDING = 1e-9
"""Of sums of costs."""


@dataclass(frozen=True)
class Shortage:
    """Why no further trial may start."""

    reason: str
    certifies: bool
    """Whether the certificate may still be made, since its cost is reserved."""


@dataclass
class CampaignBudget:
    """What a campaign spent and may spend, while a process runs it."""

    spec: CampaignSpec
    ledger: Ledger
    gpus: int
    """GPUs of a slot, until one was held (`gpus_of`)."""
    reader: SpendingReader = field(init=False)
    _granted: float | None = field(default=None, init=False)
    """USD that the month holds for the next proposal by a model; None without a cap."""

    def __post_init__(self) -> None:
        self.reader = SpendingReader(self.ledger)

    def __enter__(self) -> CampaignBudget:
        """Note the price and what was paid since, and take back a killed process's promise: others may have it now."""
        note_removed_late(self.ledger)
        self.reader.note_price(prices(self._home).of(self.spec.launch))
        self._promise(self._spent(self.ledger.history()), 0.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        """Write what was spent into the month, and take back what was promised."""
        self._promise(self._spent(self.ledger.history()), 0.0)

    @property
    def _home(self) -> Path:
        return self.ledger.path.parent

    def shortage(self, history: History, under_way: Collection[int] = ()) -> Shortage | None:
        """Why the budget allows no trial after those under way; None if it does, which the month then holds for it."""
        so_far = self._spent(history)
        planned = self._planned(history, so_far, under_way)
        try:
            return _own_limits(self.spec, so_far, planned) or self._monthly(history, so_far, planned)
        except Refused as damaged:  # budget.toml, edited meanwhile
            return Shortage(str(damaged), certifies=False)

    def left_for_models(self, history: History, under_way: Collection[int] = ()) -> RemainingBudget:
        """The money and tokens that models may take for the next proposal; None where nothing limits them."""
        so_far, limits = self._spent(history), self.spec.advanced
        tokens = None if limits.max_tokens is None else max(limits.max_tokens - so_far.models.tokens, 0)
        stated = [] if self._granted is None else [self._granted]
        if limits.max_usd is not None:
            # A price that is unknown leaves nothing: a limit that cannot be checked must not be exceeded.
            machines = self._planned(history, so_far, under_way).next.usd
            stated.append(0.0 if so_far.unknown else max(limits.max_usd - so_far.known_usd - machines, 0.0))
        return RemainingBudget(usd=min(stated, default=None), tokens=tokens)

    def for_the_certificate(self, history: History) -> str:
        """Have the month hold the cost of the certificate; why it does not, or nothing."""
        so_far = self._spent(history)
        need = self._planned(history, so_far, ()).certificate.usd
        try:
            found = self._promise(so_far, need)
        except Refused as damaged:
            return str(damaged)
        return month.short(found, f"the certificate may cost {need:.2f} USD", self._home) if found else ""

    def hold(self, history: History, what: str, seconds: float) -> None:
        """Have the month hold the cost of so many seconds of a slot, which a person asked for.

        Raises:
            Refused: the campaign's own limits, or the month, have too little left.
        """
        so_far, limits = self._spent(history), self.spec.advanced
        need = self._rate(so_far).of(seconds) + rented_rate(self.ledger.environment, so_far).of(seconds)
        if limits.max_usd is not None and need.usd and so_far.unknown:
            fact = f"max_usd = {limits.max_usd:g} cannot be kept, since {so_far.unknown} has no known price"
            raise Refused(f"{what} costs money, and {fact}: state the price, or resume without max_usd")
        _check_own("max_usd", limits.max_usd, so_far.known_usd, need.usd, f"{what} may cost", "USD")
        hours = so_far.machines.gpu_hours
        _check_own("max_gpu_hours", limits.max_gpu_hours, hours, need.gpu_hours, f"{what} may take", "GPU hours")
        if found := self._promise(so_far, need.usd):
            raise Refused(month.short(found, f"{what} may cost {need.usd:.2f} USD", self._home))

    def _monthly(self, history: History, so_far: Spent, planned: Projection) -> Shortage | None:
        """Have the month hold what the next trial may cost, models included; why it does not allow that."""
        cap, machines, self._granted = prices(self._home).usd_per_month, planned.next.usd, None
        asks = self.spec.loaded_proposer.asks
        if cap is not None and so_far.unknown and (asks or machines):
            words = f"usd_per_month = {cap:g} cannot be kept, since {so_far.unknown} has no known price"
            return Shortage(f"{words}: state the price, or remove the cap from {self._home / FILE}", False)
        if cap is not None and asks:
            spare = max((month.left_to(self.ledger, so_far.known_usd) or 0.0) - machines, 0.0)
            largest = max((trial.proposal.usage.usd or 0.0 for trial in history), default=0.0)
            self._granted = min(spare, LARGEST * largest or FIRST_SHARE * spare)
        need = machines + (self._granted or 0.0)
        if (found := self._promise(so_far, need)) is None:
            return None
        certifies = self._promise(so_far, planned.under_way.usd + planned.certificate.usd) is None
        return Shortage(month.short(found, f"another trial may cost {need:.2f} USD", self._home), certifies)

    def _spent(self, history: History) -> Spent:
        return self.reader.read(history, time.time())

    def _rate(self, so_far: Spent) -> HourlyRate:
        return HourlyRate(so_far.slot_rate.usd, so_far.slot_rate.gpus or self.gpus)

    def _planned(self, history: History, so_far: Spent, under_way: Collection[int]) -> Projection:
        return projection(self.spec, self.ledger.environment, history, so_far, self._rate(so_far), under_way)

    def _promise(self, so_far: Spent, usd: float) -> month.Month | None:
        return month.promise(self.ledger, so_far.known_usd, usd, bool(so_far.unknown))


def gpus_of(spec: CampaignSpec, environment: Environment, slots: Slots) -> int:
    """GPUs of the slots that a campaign's runs will hold, as far as can be seen from here."""
    if spec.launch == "here":
        return max((len(part.gpus) for part in slots.parts), default=0)
    return 0 if environment.device == "cpu" else environment.gpus


def check_budget(spec: CampaignSpec, home: Path) -> RemainingBudget:
    """What models may take at most, for their preflight.

    Raises:
        Refused: the budget, or what is left of the month, pays for no trial and its certificate.
    """
    stated, limits = prices(home), spec.advanced
    found = month.month(home)
    known = Ledger.open(spec.name) if Ledger.exists(spec.name) else None
    price = stated.of(spec.launch)
    is_limited = limits.max_usd is not None or found.left is not None
    if known is None and (limits.max_gpu_hours is not None or is_limited):  # else it need not be loaded
        environment, gpus = spec.new_environment(), 0
        if limits.max_gpu_hours is not None:
            gpus = gpus_of(spec, environment, spec.slots(environment))
        planned = projection(spec, environment, (), NOTHING_SPENT, HourlyRate(price, gpus))
        if short := _own_limits(spec, NOTHING_SPENT, planned):
            remedy = ", or use rule = greedy, which certifies nothing" if spec.loaded_rule.certifies else ""
            raise Refused(f"{short.reason}: raise the limit{remedy}")
        if found.left is not None and planned.next.usd > found.left:
            need = f"the baseline and the certificate may cost {planned.next.usd:.2f} USD"
            raise Refused(month.short(found, need, home))
    if spec.loaded_proposer.asks and found.left is not None and found.left < month.CENT:
        raise Refused(month.short(found, f"proposer {spec.proposer} asks a model, which costs money", home))
    left = [usd for usd in (limits.max_usd, found.left) if usd is not None]
    return RemainingBudget(usd=min(left, default=None), tokens=limits.max_tokens)


def _own_limits(spec: CampaignSpec, so_far: Spent, planned: Projection) -> Shortage | None:
    """Why the campaign's own limits allow no further trial; None if they do. Without machines that cost money, only
    models do, and the fallback proposes in their place."""
    limits = spec.advanced
    if limits.max_usd is not None and planned.next.usd:
        if so_far.unknown:
            fact = f"max_usd = {limits.max_usd:g} cannot be kept, since {so_far.unknown} has no known price"
            return Shortage(f"no money for another trial: {fact}", certifies=False)
        if words := _too_much(so_far.known_usd, planned, "usd", limits.max_usd, "USD"):
            return Shortage(f"no money for another trial: max_usd = {words}", certifies=True)
    if limits.max_gpu_hours is not None and (
        words := _too_much(so_far.machines.gpu_hours, planned, "gpu_hours", limits.max_gpu_hours, "GPU hours")
    ):
        return Shortage(f"no GPU hours for another trial: max_gpu_hours = {words}", certifies=True)
    return None


def _check_own(name: str, limit: float | None, used: float, need: float, what: str, unit: str) -> None:
    """Refuse what a person asks for if it could break a limit of the campaign."""
    if limit is not None and need and used + need > limit + ROUNDING:
        fact = f"{what} {need:.2f} {unit}, and {used:.2f} of {name} = {limit:g} are used"
        raise Refused(f"{fact}: raise {name} with `nightshift resume`, or ask for less")


def _too_much(used: float, planned: Projection, name: str, limit: float, unit: str) -> str:
    """That so much more would exceed a limit, with its parts; empty if it would not."""
    need: float = getattr(planned.next, name)
    if not need or used + need <= limit + ROUNDING:
        return ""
    kept: float = getattr(planned.certificate, name)
    of_that = f", of which {kept:.3g} are for the certificate" if kept else ""
    return f"{limit:g}, {used:.3g} {unit} used, and one may take {need:.3g}{of_that}"
