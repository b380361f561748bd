"""What a campaign spent as a part of the status document and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.spending.spent import spent
from tasks.store.ledger import Ledger
from tasks.trial import History

Document = Mapping[str, Any]


def money(ledger: Ledger, history: History) -> dict[str, Any]:
    """The costs in a campaign's status."""
    so_far = spent(ledger, history)
    bought = so_far.models
    return {
        # None when nothing was bought, or a price is unknown.
        "usd": so_far.usd if so_far.anything else None,
        "calls": bought.calls,
        "tokens": bought.tokens,
        "models_usd": bought.usd if bought.calls else None,
        "machines_usd": round(so_far.machines.usd, 6),
        "gpu_hours": round(so_far.machines.gpu_hours, 6),
        "unknown": None if so_far.usd is not None else "a language model",
    }


def parts(document: Document) -> list[str]:
    """Money, GPU hours and model calls in a status document, with their limits; only those that there were any of."""
    costs, limits = document["spent"], document["spec"].get("advanced", {})
    max_usd, max_hours, found = limits.get("max_usd"), limits.get("max_gpu_hours"), []
    if costs["unknown"]:
        found.append(f"an unknown sum{_of(max_usd)} USD, since {costs['unknown']} has no known price")
    elif costs["usd"] is not None or max_usd is not None:
        found.append(f"{costs['usd'] or 0.0:.2f}{_of(max_usd)} USD")
    if costs["gpu_hours"] or max_hours is not None:
        found.append(f"{costs['gpu_hours']:.3g}{_of(max_hours)} GPU hours")
    if costs["calls"]:
        found.append(f"{costs['calls']} model calls with {costs['tokens']:,} tokens")
    return found


def _of(limit: float | None) -> str:
    return "" if limit is None else f" of {limit:g}"
