"""Who made a campaign's proposals, and what happened to them, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.store import inbox
from tasks.store.approval import Parked
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import NOTHING_BOUGHT, History, Proposal, Usage

LINE = 300


@dataclass
class ProposerSummary:
    name: str
    model: str
    """The language model or coding agent behind it; empty without one."""
    trials: int = 0
    kept: int = 0
    usage: Usage = NOTHING_BOUGHT

    @property
    def words(self) -> str:
        by = f"{self.name} ({self.model})" if self.model else self.name
        made = f"{by}: {self.trials} trial{'s' * (self.trials != 1)}, {self.kept} kept"
        if not (calls := self.usage.calls):
            return made
        price = "price unknown" if self.usage.usd is None else f"{self.usage.usd:.2f} USD"
        return f"{made}, {calls} call{'s' * (calls != 1)}, {self.usage.tokens:,} tokens, {price}"


@dataclass(frozen=True)
class Incident:
    trial: int
    kind: str
    """`switch`, `turned down`, `fallback`, `inbox`, `waits`, `approved` or `rejected`."""
    words: str


def sources(history: History, parked: Sequence[Parked] = ()) -> tuple[ProposerSummary, ...]:
    """Every proposer, the busiest first, without the baseline. Costs count for the proposer that was asked."""
    verdicts = {trial.number: trial.verdict.kind for trial in history}
    found: dict[tuple[str, str], ProposerSummary] = {}
    for number, proposal in _proposals(history, parked).items():
        if number > 0:
            by = proposal.proposer, proposal.model
            asked = (proposal.instead_of.partition(":")[0], "") if proposal.instead_of else by
            maker, payer = (found.setdefault(who, ProposerSummary(*who)) for who in (by, asked))
            maker.trials += number in verdicts
            maker.kept += verdicts.get(number) == "keep"
            payer.usage += proposal.usage
    return tuple(sorted(found.values(), key=lambda one: -one.trials))


def incidents(ledger: Ledger, history: History, parked: Sequence[Parked] = ()) -> tuple[Incident, ...]:
    """Incidents, by trial; those of the inbox last."""
    found: list[tuple[int, str, str]] = []
    proposals = _proposals(history, parked)
    for number, proposal in proposals.items():
        if proposal.switch:
            found.append((number, "switch", proposal.switch))
        found += [(number, "turned down", reason) for reason in proposal.turned_down]
        if proposal.instead_of:
            found.append((number, "fallback", f"{proposal.proposer} took the turn, instead of {proposal.instead_of}"))
        if proposal.inbox:
            found.append((number, "inbox", f"idea {proposal.inbox}: {proposal.rationale}".removesuffix(": ")))
    found += [
        (one.number, "waits", "for approval") if one.state == "waiting" else (one.number, one.state, one.words)
        for one in parked
    ]
    newest = max(proposals, default=0)
    found += [(newest, "inbox", f"idea {name} was refused: {why}") for name, why in inbox.refused(ledger.path).items()]
    every = [Incident(number, kind, _line(words)) for number, kind, words in found]
    return tuple(sorted(dict.fromkeys(every), key=lambda incident: incident.trial))


def _proposals(history: History, parked: Sequence[Parked]) -> dict[int, Proposal]:
    return {trial.number: trial.proposal for trial in history} | {one.number: one.proposal for one in parked}


def _line(text: str) -> str:
    """A text as one safe line: its first line, and its last."""
    lines = [line for line in (" ".join(line.split()) for line in clean(text)) if line.strip("`")]
    return capped(" ... ".join([*lines[:1], *lines[1:][-1:]]), LINE)
