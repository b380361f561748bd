"""Parameters as keys of prime-rl. Which keys and values there are, prime-rl itself says: `rl --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOTTED = {
    "learning_rate": "trainer.optim.lr",
    "weight_decay": "trainer.optim.weight_decay",
    "scheduler": "trainer.scheduler.type",
    "kl_tau": "trainer.loss.kl_tau",
    "mask_low": "trainer.loss.dppo_mask_low",
    "mask_high": "trainer.loss.dppo_mask_high",
    "lora_rank": "trainer.model.lora.rank",
    "lora_alpha": "trainer.model.lora.alpha",
    "batch_size": "orchestrator.batch_size",
    "group_size": "orchestrator.group_size",
    "algorithm": "orchestrator.algo.type",
    "max_off_policy_steps": "orchestrator.max_off_policy_steps",
    "temperature": "orchestrator.train.sampling.temperature",
    "max_completion_tokens": "orchestrator.train.sampling.max_completion_tokens",
}
"""Short names of parameters; any other parameter is prime-rl's own dotted key."""


def as_tables(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the nested tables of prime-rl."""
    tables: dict[str, Any] = {}
    for name, value in params.items():
        for part in reversed(DOTTED.get(name, name).split(".")):
            value = {part: value}
        tables = laid_over(tables, value)
    return tables


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One file laid over another, as prime-rl does: tables are merged, all else is replaced, lists as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def at(table: Any, key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    for part in key.split("."):
        table = table.get(part) if isinstance(table, dict) else None
    return table
