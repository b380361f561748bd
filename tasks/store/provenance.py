"""Provenance of a campaign's proposals, and incidents on the way, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.store import inbox
from tasks.store.approval import Parked
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import NOTHING_BOUGHT, History, Proposal, Usage

LINE = 300
"""Characters of a reason."""
TURNED_DOWN = "turned down"
"""The ledger's event for suggestions that no trial follows."""


@dataclass(frozen=True)
class ProposerSummary:
    name: str
    model: str
    """The language model or coding agent behind it; empty without one."""
    trials: int
    in_full: int
    """Those that ran for the whole budget: no other can be kept."""
    kept: int
    usage: Usage

    @property
    def words(self) -> str:
        by = f"{self.name} ({self.model})" if self.model else self.name
        return f"{by}: {self.trials} trial{'s' * (self.trials != 1)}, {self.kept} kept{bought(self.usage)}"


@dataclass(frozen=True)
class Incident:
    trial: int
    kind: str
    """`switch`, `turned down`, `fallback`, `inbox`, `waits`, `approved` or `rejected`."""
    words: str


def sources(history: History, parked: Sequence[Parked] = ()) -> tuple[ProposerSummary, ...]:
    """Every proposer, the busiest first, without the baseline. Costs count for the proposer that was asked."""
    decided = {trial.number: trial.verdict.kind == "keep" for trial in history}
    proposals = {trial.number: trial.proposal for trial in history if trial.number > 0}
    proposals |= {one.number: one.proposal for one in parked}
    found: dict[tuple[str, str], tuple[int, int, int, Usage]] = {}
    for number, proposal in proposals.items():
        by = proposal.proposer, proposal.model
        asked = (proposal.instead_of.partition(":")[0], "") if proposal.instead_of else by
        tried, kept = number in decided, decided.get(number, False)
        whole = tried and not proposal.is_short
        for who, one, usage in ((by, (tried, whole, kept), NOTHING_BOUGHT), (asked, (0, 0, 0), proposal.usage)):
            trials, in_full, keeps, spent = found.get(who, (0, 0, 0, NOTHING_BOUGHT))
            spent = spent + usage if usage != NOTHING_BOUGHT else spent
            found[who] = trials + one[0], in_full + one[1], keeps + one[2], spent
    every = (ProposerSummary(*who, *counts[:3], usage=counts[3]) for who, counts in found.items())
    return tuple(sorted(every, key=lambda one: -one.trials))


def fallbacks(history: History) -> int:
    return len([trial for trial in history if trial.proposal.instead_of])


def note_turned_down(ledger: Ledger, number: int, reasons: Sequence[str]) -> None:
    """Note why suggestions for a trial were turned down that has no proposal; once, however often it is asked for."""
    if reasons and _unfollowed(ledger).get(number) != list(reasons):
        ledger.event(TURNED_DOWN, trial=number, reasons=reasons)


def _unfollowed(ledger: Ledger) -> dict[int, list[str]]:
    """The reasons that were noted last for each trial."""
    return {event["trial"]: event["reasons"] for event in ledger.events() if event["event"] == TURNED_DOWN}


def incidents(ledger: Ledger, history: History, parked: Sequence[Parked] = ()) -> tuple[Incident, ...]:
    """Incidents, by trial; those of the inbox last."""
    proposals = {trial.number: trial.proposal for trial in history}
    proposals |= {one.number: one.proposal for one in parked}
    words = {one.number: (one.state, one.words or "waits for a person's word") for one in parked}
    unfollowed, found = _unfollowed(ledger), list[Incident]()
    for number in sorted({*proposals, *unfollowed}):
        known = _of(proposals[number]) if number in proposals else []
        known += [one for reason in unfollowed.get(number, ()) if (one := (TURNED_DOWN, _line(reason))) not in known]
        found += [Incident(number, kind, text) for kind, text in known]
        if number in words:
            state, text = words[number]
            found.append(Incident(number, "waits" if state == "waiting" else state, _line(text)))
    last, refused = max(proposals, default=0), inbox.refused(ledger.path) | inbox.broken(ledger.path)
    ideas = [Incident(last, "inbox", f"idea {name} was refused: {_line(why)}") for name, why in refused.items()]
    return (*found, *ideas)


def bought(usage: Usage) -> str:
    """Use of language models in words, to append to a sentence; empty without any."""
    if not usage.calls:
        return ""
    price = "price unknown" if usage.usd is None else f"{usage.usd:.2f} USD"
    return f", {usage.calls} call{'s' * (usage.calls != 1)}, {usage.tokens:,} tokens, {price}"


def _of(proposal: Proposal) -> list[tuple[str, str]]:
    found = [("switch", _line(proposal.switch))] if proposal.switch else []
    found += [(TURNED_DOWN, _line(reason)) for reason in proposal.turned_down]
    if proposal.instead_of:
        found += [("fallback", f"{proposal.proposer} took the turn, instead of {_line(proposal.instead_of)}")]
    if proposal.inbox:
        found.append(("inbox", ": ".join(filter(None, (f"idea {proposal.inbox}", _line(proposal.rationale))))))
    return found


def _line(text: str) -> str:
    """A text as one safe line: its first line, and its last, as for a crash."""
    lines = [line for line in (" ".join(line.split()) for line in clean(text)) if line.strip("`")]
    ends = lines if len(lines) < 3 else [lines[0], "...", lines[-1]]
    return capped(" ".join(ends), LINE)
