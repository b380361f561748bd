"""LoRA by the prime-rl trainer: what it asks of prime-rl, and the model that it makes of an adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from _program import Failed
from prime_rl_parts import model
from prime_rl_parts.run import Run, Settings
from tests.support.fake_prime_rl import base_model
from tests.support.lazy import LazyModule
from tests.support.trainer_process import config

if TYPE_CHECKING:
    import torch
    from safetensors import torch as tensors_of
else:
    torch, tensors_of = LazyModule("torch"), LazyModule("safetensors.torch")

LAYER = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A training that has not begun, of a base model in two files of bfloat16."""
    base = base_model(tmp_path / "data/base")
    (base / "model.safetensors").unlink()
    torch.manual_seed(0)
    files = {
        "model-00001-of-00002.safetensors": {f"{LAYER}.weight": torch.randn(6, 4).bfloat16()},
        "model-00002-of-00002.safetensors": {
            f"{LAYER}.bias": torch.ones(6).bfloat16(), "lm_head.weight": torch.ones(2, 4),
        },
    }  # fmt: skip
    for name, tensors in files.items():
        tensors_of.save_file(tensors, base / name, metadata={"format": "pt"})
    where = {name: file for file, tensors in files.items() for name in tensors}
    (base / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    made = Run(config(tmp_path / "out", "", seed=3, steps=4, data=str(tmp_path / "data")), Settings("/opt/prime-rl"))
    made.home.mkdir(parents=True)
    return made


def hand_on(run: Run, step: int) -> dict[str, torch.Tensor]:
    """The broadcast of a step as prime-rl makes one of an adapter."""
    folder = run.folder / f"broadcasts/step_{step}"
    folder.mkdir(parents=True)
    pair = {f"{LAYER}.lora_A.weight": torch.randn(2, 4), f"{LAYER}.lora_B.weight": torch.randn(6, 2)}
    tensors_of.save_file(pair, folder / model.WEIGHTS, metadata={"format": "pt"})
    (folder / model.CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 8.0}))
    (folder / "STABLE").touch()
    return pair


def test_the_model_of_an_adapter_is_the_base_model_s_files_with_it_added_in_their_own_type(run: Run) -> None:
    pair = hand_on(run, 3)
    model.assemble(run, reached=3)
    made = run.folder.parents[1] / "model"
    before = tensors_of.load_file(run.base / "model-00001-of-00002.safetensors")[f"{LAYER}.weight"]
    after = tensors_of.load_file(made / "model-00001-of-00002.safetensors")[f"{LAYER}.weight"]
    change = 4.0 * pair[f"{LAYER}.lora_B.weight"] @ pair[f"{LAYER}.lora_A.weight"]  # alpha / rank
    assert after.dtype == torch.bfloat16 and torch.equal(after, (before.float() + change).bfloat16())
    other = "model-00002-of-00002.safetensors"
    assert (made / other).read_bytes() == (run.base / other).read_bytes()
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert index["weight_map"][f"{LAYER}.weight"] == "model-00001-of-00002.safetensors"
    assert not list(made.glob("adapter*")), "a judge refuses adapters that are not merged"


def test_an_adapter_that_could_not_be_added_to_the_weights_is_refused_before_training(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "PACKAGE", "no_such_package")
    run.train = "trainer.model.lora = 'None'"
    model.check_adapter(run)
    run.train = "[trainer.model.lora]"
    with pytest.raises(Failed, match=r"^refused: .*no_such_package is not installed"):
        model.check_adapter(run)
