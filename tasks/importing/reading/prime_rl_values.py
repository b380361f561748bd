"""What of a prime-rl configuration is written otherwise today: keys whose value changes with the name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.space import Value

LORA = "trainer.model.lora"
DROPOUT = f"{LORA}.dropout"
AC, OFFLOADING = "trainer.model.ac", "trainer.model.ac_offloading"
LORA_RANK = 16
"""prime-rl's rank where a file switches adapters on and says no more."""
BUFFER, CURRICULUM = "orchestrator.buffer", "orchestrator.train.source.curriculum"
SAMPLER, GATE = f"{CURRICULUM}.sampler", f"{CURRICULUM}.gates.advantage"
LEAST = 1e-6
"""Less than two means of a group's rewards can differ by: today's thresholds are the most that is in a pool."""


def rewritten(key: str, table: Mapping[str, Any]) -> dict[str, Value] | None:
    """Today's keys and values of a key that is written otherwise today; None for any other.

    Args:
        table: All keys of the configuration, dotted.
    """
    value = table[key]
    if key == LORA and value == {}:
        return {f"{LORA}.rank": LORA_RANK}
    if key == f"{BUFFER}.online_difficulty_filtering" and value is True:
        return {f"{GATE}.type": "advantage_range"}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if key == f"{BUFFER}.easy_threshold":
        return _pools({"normal": (value - LEAST, 1.0), "easy": (max(value, 1.0), 0.0)})
    if key == f"{BUFFER}.hard_threshold":
        rest = {} if f"{BUFFER}.easy_threshold" in table else {"normal": (1.0, 1.0)}
        return _pools({"hard": (value, 0.0)} | rest)
    return None


def curricula(sources: object) -> list[dict[str, Any]]:
    """The curriculum of each source that has one, its one gate under the name that it has here."""
    listed = [one for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    tables = [one["curriculum"] for one in listed if isinstance(one.get("curriculum"), dict)]
    for table in tables:
        if isinstance(gates := table.get("gates"), dict) and len(gates) == 1:
            table["gates"] = {"advantage": next(iter(gates.values()))}
    return tables


def refused(tuned: Mapping[str, Value]) -> dict[str, str]:
    """The keys of a configuration that the trainer refuses beside the others, with the reason."""
    is_offloaded = any(key.startswith(f"{OFFLOADING}.") for key in tuned)
    is_recomputed = tuned.get(AC) != "None" or is_offloaded
    found = {}
    if tuned.get(AC) == "None" and is_offloaded:
        found[AC] = "prime-rl computes activations again wherever it offloads them"
    if tuned.get(DROPOUT) and is_recomputed:
        found[DROPOUT] = "it needs ac and ac_offloading switched off"
    return found


def _pools(pools: dict[str, tuple[float, float]]) -> dict[str, Value]:
    """Pools of questions by the greatest mean reward in them, and how often each is asked."""
    found: dict[str, Value] = {f"{SAMPLER}.type": "difficulty_pool"}
    for name, (threshold, weight) in pools.items():
        found |= {f"{SAMPLER}.pools.{name}.threshold": threshold, f"{SAMPLER}.pools.{name}.weight": weight}
    return found
