"""Who made a campaign's proposals, and what happened to them: a part of its status document."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tasks.stats.predictions import record
from tasks.store import approval, inbox
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import NOTHING_BOUGHT, History, Parked, Proposal, Usage

LINE = 300


def proposals(ledger: Ledger, history: History) -> dict[str, Any]:
    """Where proposals came from, what happened to them, and which wait."""
    parked = approval.parked(ledger)
    happened = _incidents(ledger, history, parked)
    return {
        "sources": sources(history, parked),
        "predictions": record(history),
        "fallbacks": len([one for one in happened if one["kind"] == "fallback"]),
        "incidents": happened,
        "waiting": [
            {
                "trial": one.number, "proposer": one.proposal.proposer, "description": one.proposal.rationale,
                "edits": one.proposal.edit is not None, "until": one.until,
                "diff": str(ledger.place(one.number).diff),
            }
            for one in parked
            if one.state == "waiting"
        ],
        "inbox": [path.stem for path in inbox.waiting(ledger.path, ledger.proposals(history))],
    }  # fmt: skip


def sources(history: History, parked: Sequence[Parked] = ()) -> list[dict[str, Any]]:
    """Every proposer, the busiest first, without the baseline. Costs count for the proposer that was asked."""
    verdicts = {trial.number: trial.verdict.kind for trial in history}
    trials, kept = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    used: defaultdict[tuple[str, str], Usage] = defaultdict(lambda: NOTHING_BOUGHT)
    for number, proposal in _proposals(history, parked).items():
        if number > 0:
            by = proposal.proposer, proposal.model
            asked = (proposal.instead_of.partition(":")[0], "") if proposal.instead_of else by
            trials[by] += number in verdicts
            trials[asked] += 0  # it has a line too
            kept[by] += verdicts.get(number) == "keep"
            used[asked] += proposal.usage
    return [
        {
            "proposer": who[0], "model": who[1], "trials": trials[who], "kept": kept[who], "calls": used[who].calls,
            "tokens": used[who].tokens, "usd": used[who].usd if used[who].calls else None,
            "words": _made(*who, trials[who], kept[who], used[who]),
        }
        for who in sorted(trials, key=lambda who: -trials[who])
    ]  # fmt: skip


def _made(proposer: str, model: str, trials: int, kept: int, usage: Usage) -> str:
    by = f"{proposer} ({model})" if model else proposer
    made = f"{by}: {trials} trial{'s' * (trials != 1)}, {kept} kept"
    if not (calls := usage.calls):
        return made
    price = "price unknown" if usage.usd is None else f"{usage.usd:.2f} USD"
    return f"{made}, {calls} call{'s' * (calls != 1)}, {usage.tokens:,} tokens, {price}"


def _incidents(ledger: Ledger, history: History, parked: Sequence[Parked]) -> list[dict[str, Any]]:
    """What happened, by trial: `switch`, `turned down`, `fallback`, `inbox`, `waits`, `approved` or `rejected`; what
    became of the inbox last.
    """
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
    every = dict.fromkeys((number, kind, _line(words)) for number, kind, words in found)
    return [{"trial": one[0], "kind": one[1], "words": one[2]} for one in sorted(every, key=lambda one: one[0])]


def _proposals(history: History, parked: Sequence[Parked]) -> dict[int, Proposal]:
    return {trial.number: trial.proposal for trial in history} | {one.number: one.proposal for one in parked}


def _line(text: str) -> str:
    """A text as one safe line: its first line, and its last."""
    lines = [line for line in (" ".join(line.split()) for line in clean(text)) if line.strip("`")]
    return capped(" ... ".join([*lines[:1], *lines[1:][-1:]]), LINE)
