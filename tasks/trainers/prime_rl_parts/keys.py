"""Parameters as keys of prime-rl. Which keys and values there are, prime-rl itself says: `rl --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHORT = """
learning_rate trainer.optim.lr                    optimizer trainer.optim.type
weight_decay trainer.optim.weight_decay           max_grad_norm trainer.optim.max_norm
beta1 trainer.optim.betas1                        beta2 trainer.optim.betas2
scheduler trainer.scheduler.type                  warmup_steps trainer.scheduler.warmup_steps
decay_steps trainer.scheduler.decay_steps         min_lr trainer.scheduler.min_lr
loss trainer.loss.type                            ipo_threshold trainer.loss.ipo_threshold
mask_low trainer.loss.dppo_mask_low               mask_high trainer.loss.dppo_mask_high
kl_tau trainer.loss.kl_tau                        adv_tau trainer.loss.adv_tau
batch_size orchestrator.batch_size                group_size orchestrator.group_size
max_off_policy_steps orchestrator.max_off_policy_steps
filter_zero_advantages orchestrator.train.filter_zero_advantages
algorithm orchestrator.algo.type                  temperature orchestrator.train.sampling.temperature
length_penalty orchestrator.algo.length_penalty.num_output_tokens_weight
max_completion_tokens orchestrator.train.sampling.max_completion_tokens
max_model_len inference.vllm.max_model_len
gpu_memory_utilization inference.vllm.gpu_memory_utilization
lora_rank trainer.model.lora.rank                 lora_alpha trainer.model.lora.alpha
lora_dropout trainer.model.lora.dropout           lora_targets trainer.model.lora.target_modules
"""
DOTTED = dict(zip(_SHORT.split()[::2], _SHORT.split()[1::2], strict=True))
"""Short names of parameters; any other parameter is prime-rl's own dotted key."""


def as_tables(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the nested tables of prime-rl. A list is a parameter as a text with commas: `q_proj,v_proj`."""
    tables: dict[str, Any] = {}
    for name, value in params.items():
        key = DOTTED.get(name, name)
        if key == DOTTED["lora_targets"] and isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        for part in reversed(key.split(".")):
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
