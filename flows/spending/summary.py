"""What a campaign spent, what comes next and what its home spent this month, as a part of the status document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.spending import month
from tasks.spending.spent import HourlyRate, Spent, spent
from tasks.store.ledger import Ledger
from tasks.trial import History

Document = Mapping[str, Any]


def money(ledger: Ledger, history: History, stored: Document) -> dict[str, Any]:
    """The costs in a campaign's status. (stored: its specification)"""
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
        "unknown": so_far.unknown or None,
        "next": _next(ledger, history, stored, so_far),
        "month": this_month(ledger.path.parent),
    }


def this_month(home: Path) -> dict[str, Any]:
    """What all campaigns of a home spent this month; of a damaged budget.toml, what is wrong with it."""
    try:
        found = month.month(home)
    except Refused as damaged:
        return {"name": "", "usd": 0.0, "promised": 0.0, "cap": None, "unknown": False, "words": str(damaged)}
    return {**asdict(found), "words": found.words if found.cap is not None or found.usd else ""}


def _next(ledger: Ledger, history: History, stored: Document, so_far: Spent) -> dict[str, Any] | None:
    """The most that machines may cost for another trial and for the certificate; None where they cost nothing."""
    if HourlyRate() == so_far.slot_rate == so_far.rented_rate:
        return None
    from flows.spec.campaign_spec import CampaignSpec  # loads all that trains, which a free campaign does not need
    from flows.spending.projection import projection

    spec = CampaignSpec.of(**stored)
    planned = projection(spec, ledger.environment, history, so_far, so_far.slot_rate)
    return {name: asdict(getattr(planned, name)) for name in ("trial", "certificate")}


def sentences(document: Document, of_month: bool = True) -> list[str]:
    """The costs in a status document in words, a sentence each; none where nothing costs money or holds a GPU."""
    costs, limits = document["spent"], document["spec"].get("advanced", {})
    max_usd, max_hours = limits.get("max_usd"), limits.get("max_gpu_hours")
    found = []
    if costs["usd"] is not None or costs["unknown"] or max_usd is not None:
        found.append(_usd(costs, max_usd))
    if costs["gpu_hours"] or max_hours is not None:
        of = "" if max_hours is None else f" of {max_hours:g}"
        found.append(f"GPU hours: {costs['gpu_hours']:.3g}{of}")
    if coming := costs["next"]:
        parts = {"another trial may cost": coming["trial"], "the certificate": coming["certificate"]}
        words = [f"{name} {cost}" for name, part in parts.items() if (cost := _cost(part))]
        found.append(", ".join(words) + " at most, models aside")
    if of_month and costs["month"]["words"]:
        found.append(f"all campaigns: {costs['month']['words']}")
    return found


def parts(costs: Document) -> list[str]:
    """GPU hours, machines and models in a status document's costs, as far as there were any."""
    found = [f"{costs['gpu_hours']:.2g} GPU hours"] if costs["gpu_hours"] else []
    found += [f"{costs['machines_usd']:.2f} USD for machines"] if costs["machines_usd"] else []
    if costs["calls"]:
        price = "price unknown" if costs["models_usd"] is None else f"{costs['models_usd']:.2f} USD"
        found.append(f"{costs['calls']} model calls with {costs['tokens']:,} tokens, {price}")
    return found


def _usd(costs: Document, limit: float | None) -> str:
    of = "" if limit is None else f" of {limit:g}"
    if costs["unknown"]:
        return f"spent: an unknown sum{of} USD, since {costs['unknown']} has no known price"
    parts = [f"models {costs['models_usd']:.2f}"] if costs["models_usd"] is not None else []
    parts += [f"machines {costs['machines_usd']:.2f}"] if costs["machines_usd"] else []
    return f"spent: {costs['usd'] or 0.0:.2f}{of} USD" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")


def _cost(part: Document) -> str:
    """USD and GPU hours in words; empty for none."""
    words = [f"{part['usd']:.2f} USD"] if part["usd"] else []
    words += [f"{part['gpu_hours']:.3g} GPU hours"] if part["gpu_hours"] else []
    return " and ".join(words)
