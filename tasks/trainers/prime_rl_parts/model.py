"""The end of a training: its last weights become a model, and what is large is deleted.

With LoRA prime-rl hands on the adapter alone, which is added to the base model's weights here. Its file has a pair of
matrices for each adapted layer, named as the layer is in the base model's files. peft would add them too, but expects
other names, and loads the model through transformers, which has to know its type.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

from _program import Failed
from prime_rl_parts.run import Run, at

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PACKAGE = "safetensors"


def check_adapter(run: Run) -> None:
    """Refuse, before anything is trained, an adapter that could not be added to the base model's weights."""
    if isinstance(at(run.stated, "trainer.model.lora"), dict) and not importlib.util.find_spec(PACKAGE):
        remedy = "`pip install --editable '.[grpo]'` in Nightshift's checkout, or leave it out"
        raise Failed(f"refused: trainer.model.lora: the package {PACKAGE} is not installed: {remedy}")


def assemble(run: Run, reached: int) -> None:
    """Make out/model from the last complete broadcast and the base model's configuration and tokenizer.

    Raises Failed: there is no broadcast after step 0, or the adapter is for other layers than the base model has.
    """
    # STABLE is written last: a broadcast without it is incomplete.
    stable = [path.parent for path in run.folder.glob("broadcasts/step_*/STABLE")]
    step, broadcast = max(((int(path.name[5:]), path) for path in stable), default=(0, run.folder))
    if not step:
        raise Failed(f"left nothing to score: no step's weights were handed on; it came to step {reached}")
    model = Path(run.config["out"]) / "model"
    making = model.with_name(".model")
    making.mkdir()
    is_adapted = (broadcast / CONFIG).exists()
    for path in run.base.iterdir():
        is_index = ".index." in path.name  # of the base model's files, which adapted weights are written into again
        if path.suffix in (".json", ".txt", ".model", ".jinja", ".tiktoken") and (is_adapted or not is_index):
            shutil.copyfile(path, making / path.name)
    if is_adapted:
        merge(run.base, broadcast, making)
    else:
        for path in broadcast.glob("*.safetensors*"):  # moved: the engine refuses checkpoints with hard links
            path.rename(making / path.name)
    making.rename(model)


def merge(base: Path, adapter: Path, into: Path) -> None:
    """Write the base model's weights with an adapter added, file by file, each tensor in the type that it has.

    Raises Failed: the base model has no weights of a layer that is adapted.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    said = json.loads((adapter / CONFIG).read_text())
    scale, pairs = said["lora_alpha"] / said["r"], load_file(adapter / WEIGHTS)
    left = {name.rpartition(".lora_")[0] for name in pairs}
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        for layer in {name.removesuffix(".weight") for name in tensors} & left:
            low, high = (pairs[f"{layer}.lora_{which}.weight"].float() for which in "AB")
            before = tensors[f"{layer}.weight"]
            tensors[f"{layer}.weight"] = (before.float() + scale * (high @ low)).to(before.dtype)
            left.discard(layer)
        save_file(tensors, into / path.name, metadata=metadata)
    if left:
        raise Failed(f"left nothing to score: the base model has no weights of {min(left)}, which the adapter is for")


def tidy(run: Run) -> None:
    """Delete what is large, and a link, which the engine refuses."""
    for name in ("run/rollouts", "run/broadcasts", "run/checkpoints", "converted"):
        shutil.rmtree(run.home / name, ignore_errors=True)
    for file in (run.questions, run.folder / "logs/latest"):
        file.unlink(missing_ok=True)
