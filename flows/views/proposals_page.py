"""A campaign's proposals in markdown: who made them, what they cost, and what happened to them."""

from __future__ import annotations

from collections.abc import Sequence

from flows.views.markdown import code, in_markdown
from tasks.numbers import number
from tasks.store.approval import Parked
from tasks.store.provenance import Incident, ProposerSummary, bought
from tasks.trial import History

HEADINGS = {
    "switch": "switched between parameters and edits",
    "turned down": "refused before any compute",
    "fallback": "the fallback proposer took the turn",
    "inbox": "from the inbox",
    "waits": "waits for approval",
    "approved": "approved",
    "rejected": "rejected",
}


def page(
    history: History, who: Sequence[ProposerSummary], happened: Sequence[Incident], parked: Sequence[Parked]
) -> str:
    """Proposers in a table, incidents in another, and every edit with its reason."""
    table = [("by", "model", "trials", "kept", "bought")]
    for one in who:
        cost = bought(one.usage).removeprefix(", ") or "nothing"
        table.append((one.name, code(one.model) if one.model else "", str(one.trials), str(one.kept), cost))
    parts = ["## Who proposed what", in_markdown(table)]
    if happened:
        rows = [(str(one.trial), HEADINGS[one.kind], code(one.words)) for one in happened]
        parts += ["## What happened to proposals", in_markdown([("trial", "what", "in words"), *rows])]
    edits = [trial for trial in history if trial.proposal.edit and trial.proposal.proposer != "baseline"]
    if edits:
        tried = [
            (
                str(trial.number), trial.proposal.proposer, trial.verdict.kind, number(trial.score.value),
                code(trial.proposal.rationale[:200]), code(trial.verdict.reason[:200]),
            )
            for trial in edits
        ]  # fmt: skip
        head = ("trial", "by", "verdict", "score", "why it was tried", "why this verdict")
        parts += ["## Trials of an edited program", in_markdown([head, *tried])]
    how = f"{code('nightshift approve')} or {code('nightshift reject')}"
    parts += [f"Trial {one.number} waits: {how}." for one in parked if one.answer is None]
    return "\n\n".join(parts) + "\n"
