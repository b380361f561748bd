"""LoRA: prime-rl hands on the adapter alone, and the model that is judged has it added to the base model's weights.

prime-rl's file has a pair of matrices for each adapted layer, named as the layer is in the base model's files. peft
would add them too, but expects other names, and loads the model through transformers, which has to know its type.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from prime_rl_parts import Failed
from prime_rl_parts.keys import at
from prime_rl_parts.run import Run

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PACKAGES = ("safetensors", "torch")
LEFT_ENOUGH = 0.9
"""Where less of an adapter's change is left after rounding, that is noted."""


def check(run: Run) -> None:
    """Refuse, before anything is trained, an adapter that could not be added to the base model's weights."""
    lora = at(run.stated, "trainer.model.lora")
    if not isinstance(lora, dict):
        return
    if lacking := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        remedy = "`pip install --editable '.[grpo]'` in Nightshift's checkout, or leave it out"
        raise Failed(f"refused: trainer.model.lora: the package {lacking[0]} is not installed: {remedy}")
    if lora.get("modules_to_save"):
        why = "they would be trained, and prime-rl hands on the adapter alone"
        raise Failed(f"refused: trainer.model.lora.modules_to_save: {why}: leave it out")


def merge(base: Path, adapter: Path, into: Path) -> float:
    """Write the base model's weights with an adapter added, file by file, each tensor in the type that it has.

    Returns:
        The share of the adapter's change that is left after rounding: bfloat16 has three digits, and loses changes of
        less than half a step.

    Raises Failed: the base model has no weights of a layer that is adapted.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    said = json.loads((adapter / CONFIG).read_text())
    scale, pairs = said["lora_alpha"] / said["r"], load_file(adapter / WEIGHTS)
    left = {name.rpartition(".lora_")[0] for name in pairs}
    wanted = kept = 0.0
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        for name in [name for name in tensors if name.removesuffix(".weight") in left]:
            layer, before = name.removesuffix(".weight"), tensors[name]
            low, high = (pairs[f"{layer}.lora_{which}.weight"].float() for which in "AB")
            change = scale * (high @ low)
            tensors[name] = (before.float() + change).to(before.dtype)
            wanted += float(torch.sum(change * change))
            kept += float(torch.sum(change * (tensors[name].float() - before.float())))
            left.discard(layer)
        save_file(tensors, into / path.name, metadata=metadata)
    if left:
        raise Failed(f"left nothing to score: the base model has no weights of {min(left)}, which the adapter is for")
    return kept / wanted if wanted else 1.0


def rounded(kept: float) -> str:
    """What to know of a model of which this share of the adapter's change is left; empty if that is nearly all."""
    if kept >= LEFT_ENOUGH:
        return ""
    return (
        f"{kept:.0%} of the adapter's change is left in the model that is judged, the base model's number format "
        "rounds the rest away, and vLLM answered with all of it: a higher lora_alpha or learning_rate makes it larger"
    )
