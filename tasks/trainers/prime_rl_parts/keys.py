"""The tunable keys of prime-rl, and writing parameters into train.toml."""

from __future__ import annotations

import difflib
import math
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from prime_rl_parts import Failed
from prime_rl_parts.other_keys import OLD, OWNED


@dataclass(frozen=True)
class Key:
    """The allowed values of a key: a number from `low` to `high`, a boolean, one of `words`, or a list of some."""

    kind: type
    low: float = 0
    high: float = math.inf
    words: tuple[str, ...] = ()

    def fault(self, value: object) -> str | None:
        """The reason why a value is not allowed; None if it is."""
        if self.kind is list:
            fits = isinstance(value, list) and 0 < len(value) == len({*map(str, value)} & {*self.words})
            return None if fits else f"must be a list of some of {', '.join(self.words)}, got {str(value)[:60]!r}"
        if isinstance(value, str) and self.words:
            wrong = f"must be one of {', '.join(self.words)}, got {value[:60]!r}"
            return None if value in self.words else wrong
        if type(value) is not self.kind and not (self.kind is float and type(value) is int):
            return f"must be of type {self.kind.__name__}, got {str(value)[:60]!r}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not (self.low <= value <= self.high and abs(value) <= sys.float_info.max):
            return f"must be finite and from {self.low:g} to {self.high:g}, got {value!r}"
        return None


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers that an adapter may be beside, by which both prime-rl and vLLM call them in dense models."""
OFF = ("None",)
"""How prime-rl's TOML spells that something is switched off."""
_KINDS = {
    "number": Key(float),
    "number|None": Key(float, words=OFF),
    "share": Key(float, 0, 1),
    "decay": Key(float, 0, 0.9999),
    "temperature": Key(float, 0, 2),
    "memory": Key(float, 0.05, 0.98),
    "count": Key(int, 1),
    "count|disabled": Key(int, 1, words=("disabled",)),
    "whole": Key(int),
    "rank": Key(int, 1, 512),
    "projections": Key(list, words=PROJECTIONS),
    "reward": Key(float, -math.inf),
    "switch": Key(bool),
}
_KEYS = """
adamw|muon|sgd|sign_sgd  trainer.optim.type
number                   trainer.optim.lr trainer.optim.weight_decay
number|None              trainer.optim.max_norm
share                    trainer.optim.betas1 trainer.optim.betas2 trainer.optim.mu trainer.optim.momentum
switch                   trainer.optim.nesterov
constant|linear|cosine   trainer.scheduler.type
whole                    trainer.scheduler.warmup_steps trainer.scheduler.decay_steps
number                   trainer.scheduler.min_lr
default|ipo              trainer.loss.type
number                   trainer.loss.dppo_mask_low trainer.loss.dppo_mask_high trainer.loss.ipo_threshold
number                   trainer.loss.adv_tau trainer.loss.kl_tau
auto|flash_attention_2|flash_attention_3|flash_attention_4  trainer.model.attn
auto|hf|custom           trainer.model.impl
bfloat16|float32         trainer.model.optimization_dtype trainer.model.reduce_dtype
None                     trainer.model.ac trainer.model.ac_offloading trainer.model.compile
full|selective           trainer.model.ac.mode
None                     trainer.model.lora
rank                     trainer.model.lora.rank
number                   trainer.model.lora.alpha
share                    trainer.model.lora.dropout
projections              trainer.model.lora.target_modules
count                    trainer.model.ac.freq trainer.model.ac_offloading.max_inflight_activations
switch                   trainer.model.ac_offloading.pin_memory trainer.model.compile.fullgraph
switch                   trainer.model.optim_cpu_offload
count|disabled           trainer.model.fused_lm_head_token_chunk_size
highest|high|medium      trainer.matmul_precision
count                    seq_len trainer.model.seq_len orchestrator.seq_len
grpo|max_rl|rae          orchestrator.algo.type
decay                    orchestrator.algo.decay
linear                   orchestrator.algo.length_penalty.type
number                   orchestrator.algo.length_penalty.num_output_tokens_weight
number                   orchestrator.algo.length_penalty.num_input_tokens_weight
number                   orchestrator.algo.length_penalty.num_turns_weight
count                    orchestrator.batch_size orchestrator.token_batch_size orchestrator.group_size
whole                    orchestrator.max_off_policy_steps
count                    orchestrator.concurrency.initial_inflight orchestrator.concurrency.min_inflight
count                    orchestrator.concurrency.max_inflight
switch                   orchestrator.train.filter_zero_advantages
standard|difficulty_pool  orchestrator.train.source.curriculum.sampler.type
reward                   orchestrator.train.source.curriculum.sampler.pools.hard.threshold
number                   orchestrator.train.source.curriculum.sampler.pools.hard.weight
reward                   orchestrator.train.source.curriculum.sampler.pools.normal.threshold
number                   orchestrator.train.source.curriculum.sampler.pools.normal.weight
reward                   orchestrator.train.source.curriculum.sampler.pools.easy.threshold
number                   orchestrator.train.source.curriculum.sampler.pools.easy.weight
advantage_range          orchestrator.train.source.curriculum.gates.advantage.type
reward                   orchestrator.train.source.curriculum.gates.advantage.reject_min
reward                   orchestrator.train.source.curriculum.gates.advantage.reject_max
temperature              orchestrator.train.sampling.temperature
count                    orchestrator.train.sampling.max_completion_tokens inference.vllm.max_model_len
memory                   inference.vllm.gpu_memory_utilization
switch                   inference.vllm.enforce_eager inference.vllm.enable_prefix_caching
"""
KEYS = {
    key: _KINDS.get(kind) or Key(str, words=tuple(filter(None, kind.split("|"))))
    for kind, *keys in map(str.split, _KEYS.strip().splitlines())
    for key in keys
}
"""The keys of prime-rl that train.toml and the parameters may set."""
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
"""Short names of parameters; any other parameter is a full key."""


def flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys and values of nested tables. An empty table is a value: it may switch something on."""
    for name, value in table.items():
        key = above + (name if re.fullmatch(r"\w+", name) else f'"{name}"')
        if isinstance(value, dict) and value:
            yield from flat(value, key + ".")
        else:
            yield key, value


def faults(table: dict[str, Any]) -> list[str]:
    """The faults of a train.toml, one line per key."""
    found = []
    for key, value in flat(table):
        if value == {} and any(known.startswith(key + ".") for known in KEYS):
            continue
        wrong = KEYS[key].fault(value) if key in KEYS else stranger(key)
        found += [f"{key} {wrong}"] if wrong else []
    return found


def stranger(key: str) -> str:
    """Why a key is refused: it is outdated, the engine's, or unknown."""
    for table, why in ((OLD, "is of an older prime-rl; today's key: "), (OWNED, "is not for tuning: ")):
        if above := [known for known in table if f"{key}.".startswith(f"{known}.")]:
            return why + table[max(above, key=len)]
    return "is none of the keys that may be tuned" + near(key, KEYS)


def near(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""


def tuned(text: str, params: dict[str, Any]) -> str:
    """A train.toml with parameters written into it; comments stay.

    A file of dotted lines (`trainer.optim.lr = 1e-6`) that has no place for a new key is rewritten. A parameter that
    is a list in the file is a text with commas: `q_proj,v_proj`.

    Raises:
        Failed: it is not TOML, a parameter is unknown, or a key may not be tuned.
    """
    try:
        plain, document = tomllib.loads(text), tomlkit.parse(text)
        for name, value in params.items():
            key = DOTTED.get(name, name)
            path = key.split(".")
            if len(path) == 1 and name not in KEYS:
                raise Failed(f"refused: unknown parameter {name!r}{near(name, DOTTED)}")
            if isinstance(value, str) and key in KEYS and KEYS[key].kind is list:
                value = [word.strip() for word in value.split(",")]
            put(plain, path, value)
            put(document, path, value)
        found, written = faults(plain), tomlkit.dumps(document)
    except (ValueError, RecursionError, TOMLKitError) as broken:  # of a key that is there twice, no ValueError
        raise Failed(f"refused: train.toml: not TOML: {str(broken)[:200]}") from broken
    if found:
        rest = f"; and {len(found) - 4} more" if len(found) > 4 else ""
        raise Failed(f"refused: train.toml: {'; '.join(found[:4])}{rest}")
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(written) == plain:
            return written
    return tomlkit.dumps(plain)


def put(table: Any, path: list[str], value: object) -> None:
    """Set a value in nested tables, creating them as needed."""
    *above, last = path
    for part in above:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            what = f"{part} is {str(table)[:60]}"
            raise Failed(f"refused: train.toml: {what}, so {'.'.join(path)} has no place")
    table[last] = value
