"""An estimate of the GPU memory that prime-rl needs for one model: of the GPU that trains and of vLLM's.

Of P weights, micro batches of S tokens (`seq_len`), hidden size h, MLP size I, L layers, vocabulary V, in bytes:

    weights and gradients   4 P + 4 P in float32, 2 P + 2 P in bfloat16 (`optimization_dtype`), and a copy of 2 P to
                            compute with (arXiv 1910.02054, section 3.1)
    AdamW                   two moments of the same type as the weights; none where `optim_cpu_offload` is on
    activations             2 S h for each layer, whose inside is computed again in the backward pass, and the inside
                            of one, S (16 h + 8 I): the count of arXiv 2205.05198, section 4, for a gated MLP without
                            dropout, and with FlashAttention, which keeps no square of scores
    adapters                `trainer.model.lora` leaves gradients and moments to A weights: rank times height and width
                            of each layer that may have one, all seven of a dense model's
    logits                  8 C V: float32 and its gradient, for C of the S tokens at a time
                            (`fused_lm_head_token_chunk_size`)

A fifth is added for what the allocator cannot use, and 1.5 GiB for CUDA, NCCL and kernels. The batch size is not in it:
prime-rl packs answers into micro batches of S tokens, one at a time.

vLLM takes the share `gpu_memory_utilization` of its GPU, all of which must be free. In it must be room for 2 P of
weights, 16 A for the eight adapters that prime-rl gives it places for, 1.5 GiB, and the cache of one answer at least:
4 L K D bytes for each token of `max_model_len`, K heads of size D for keys and values (arXiv 2309.06180, section 3). No
figure of this file was compared with a GPU.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30
CONTEXT_BYTES = 1.5 * GIB
UNUSABLE = 1.2
LORA, LORA_RANK = "trainer.model.lora", 16
"""The key that switches adapters on, and prime-rl's rank where no other is stated."""
ADAPTERS = 8
"""Adapters that vLLM has places for, as prime-rl starts it."""
LARGEST_HEADER = 2**26
"""Bytes of a safetensors header that are read; that of a model with a million tensors is smaller."""


@dataclass(frozen=True)
class Model:
    """The sizes of a model directory of the Hugging Face hub."""

    weights: int
    layers: int
    hidden: int
    mlp: int
    vocabulary: int
    cached: int
    """Keys and values of one token in one layer: heads times their size, times two."""


def model_of(folder: Path) -> Model:
    """The sizes, from config.json and the headers of the weights. Raises ValueError where one is missing."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    weights = sum(map(_weights, sorted(folder.glob("*.safetensors"))))
    heads = config.get("num_attention_heads")
    try:
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        model = Model(
            weights, config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"],
            config["vocab_size"], 2 * size * (config.get("num_key_value_heads") or heads),
        )  # fmt: skip
    except (KeyError, TypeError) as missing:
        raise ValueError(f"{folder / 'config.json'} does not state {missing}") from missing
    if not weights:
        raise ValueError(f"{folder} has no weights in safetensors files")
    return model


def _weights(file: Path) -> int:
    """The number of weights in a safetensors file, by its header."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8).ljust(8, b"\0"))
        if not 0 < length <= LARGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(opened.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def of_training(model: Model, settings: Mapping[str, Any]) -> float:
    """Bytes on the GPU that trains; `settings` are prime-rl's keys with their values, absent ones at its defaults."""
    tokens = int(settings.get("trainer.model.seq_len", settings.get("seq_len", 2048)))
    each = 2 if settings.get("trainer.model.optimization_dtype") == "bfloat16" else 4
    moments = 0 if settings.get("trainer.model.optim_cpu_offload", True) else 2
    chunk = settings.get("trainer.model.fused_lm_head_token_chunk_size", 8192)
    logits = tokens if chunk == "disabled" else min(int(chunk), tokens)
    adapter = _adapter(model, settings)
    states = model.weights * (each + 2) + (adapter or model.weights) * each * (1 + moments) + adapter * (each + 2)
    activations = tokens * (2 * model.hidden * model.layers + 16 * model.hidden + 8 * model.mlp)
    return UNUSABLE * (states + activations + 8 * logits * model.vocabulary) + CONTEXT_BYTES


def answers_at_once(model: Model, settings: Mapping[str, Any], total: float) -> float:
    """How many answers of the greatest length vLLM can hold on a GPU of `total` bytes; below 1 it does not start."""
    share = float(settings.get("inference.vllm.gpu_memory_utilization", 0.9))
    length = int(settings.get("inference.vllm.max_model_len", 2048))
    room = share * total - 2 * model.weights - 2 * ADAPTERS * _adapter(model, settings) - CONTEXT_BYTES
    return room / (2 * model.layers * model.cached * length)


def _adapter(model: Model, settings: Mapping[str, Any]) -> int:
    """The weights of an adapter beside every layer that may have one; 0 where the whole model is trained."""
    if settings.get(LORA) == "None" or not any(f"{key}.".startswith(f"{LORA}.") for key in settings):
        return 0
    attention = 4 * model.hidden + 2 * model.hidden + model.cached  # of q and o, of k and v
    return int(settings.get(f"{LORA}.rank", LORA_RANK)) * model.layers * (attention + 3 * (model.hidden + model.mlp))
