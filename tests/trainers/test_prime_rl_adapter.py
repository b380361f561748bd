"""LoRA by the prime-rl trainer: what it asks of prime-rl, and the model that it makes of an adapter."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prime_rl_parts import Failed, adapter, ends
from prime_rl_parts.keys import PROJECTIONS, tuned
from prime_rl_parts.run import Run, Settings
from tests.support.fake_prime_rl.laying import base_model
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


def hand_on(run: Run, step: int, layer: str = LAYER, rank: int = 2, size: float = 1.0) -> dict[str, torch.Tensor]:
    """The broadcast of a step as prime-rl makes one of an adapter."""
    folder = run.folder / f"broadcasts/step_{step}"
    folder.mkdir(parents=True)
    pair = {f"{layer}.lora_A.weight": torch.randn(rank, 4), f"{layer}.lora_B.weight": size * torch.randn(6, rank)}
    tensors_of.save_file(pair, folder / adapter.WEIGHTS, metadata={"format": "pt"})
    (folder / adapter.CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 8.0}))
    (folder / "STABLE").touch()
    return pair


def told(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.home / "run.json").read_text())
    return found


def test_the_model_of_an_adapter_is_the_base_model_s_files_with_it_added_in_their_own_type(run: Run) -> None:
    pair = hand_on(run, 3)
    ends.assemble(run, reached=3)
    model = run.folder.parents[1] / "model"
    before = tensors_of.load_file(run.base / "model-00001-of-00002.safetensors")[f"{LAYER}.weight"]
    after = tensors_of.load_file(model / "model-00001-of-00002.safetensors")[f"{LAYER}.weight"]
    change = 4.0 * pair[f"{LAYER}.lora_B.weight"] @ pair[f"{LAYER}.lora_A.weight"]  # alpha / rank
    assert after.dtype == torch.bfloat16 and torch.equal(after, (before.float() + change).bfloat16())
    other = "model-00002-of-00002.safetensors"
    assert (model / other).read_bytes() == (run.base / other).read_bytes()
    index = json.loads((model / "model.safetensors.index.json").read_text())
    assert index["weight_map"][f"{LAYER}.weight"] == "model-00001-of-00002.safetensors"
    assert not list(model.glob("adapter*")), "a judge refuses adapters that are not merged"
    assert told(run)["scored_step"] == 3 and told(run)["adapter_kept"] == pytest.approx(1, abs=0.02)


def test_a_change_that_rounding_loses_is_told(run: Run) -> None:
    hand_on(run, 3, size=1e-5)
    note = ends.assemble(run, reached=3)
    assert told(run)["adapter_kept"] < 0.5
    assert "% of the adapter's change is left" in note and adapter.rounded(0.95) == ""


def test_an_adapter_of_a_layer_that_the_base_model_lacks_is_no_model(run: Run) -> None:
    hand_on(run, 3, layer="model.layers.7.self_attn.q_proj")
    with pytest.raises(Failed, match=r"^left nothing to score: .*layers\.7"):
        ends.assemble(run, reached=3)
    assert not (run.folder.parents[1] / "model").exists()


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", None),
        ("trainer.model.lora = 'None'", None),
        ("[trainer.model.lora]", {"target_modules": list(PROJECTIONS)}),
        ("trainer.model.lora.rank = 8", {"target_modules": list(PROJECTIONS)}),
        ("trainer.model.lora.target_modules = ['q_proj']", None),
    ],
)
def test_where_no_layers_are_named_adapters_are_beside_those_of_dense_models(
    run: Run, text: str, asked: dict[str, Any] | None
) -> None:
    assert run.overlay(tuned(text, {}))["trainer"]["model"].get("lora") == asked


@pytest.mark.parametrize(
    ("text", "steps", "phases"),
    [
        ("", 6, None),
        ("trainer.scheduler.type = 'constant'", 6, None),
        ("trainer.scheduler.type = 'linear'", 20, None),
        ("trainer.scheduler.type = 'linear'", 0, None),
        ("trainer.scheduler.type = 'linear'", 6, {"warmup_steps": 3, "decay_steps": 3}),
        ("trainer.scheduler.type = 'cosine'", 7, {"warmup_steps": 3}),
        ("trainer.scheduler = {type = 'linear', warmup_steps = 9}", 6, None),
    ],
)
def test_a_part_of_the_budget_has_shorter_phases_of_the_learning_rate(
    run: Run, text: str, steps: int, phases: dict[str, int] | None
) -> None:
    run.config["budget_steps"] = steps
    assert run.overlay(tuned(text, {}))["trainer"].get("scheduler") == phases


def test_settings_may_be_off_and_the_temperature_of_the_curve_zero() -> None:
    given = {"prime_rl": "/opt/prime-rl", "keep_cache": False, "curve_temperature": 0.0}
    assert Settings.split(given)[0] == Settings("/opt/prime-rl", keep_cache=False, curve_temperature=0.0)
    with pytest.raises(Failed, match=r"start_deadline must be finite and from 0\.1"):
        Settings.split(given | {"start_deadline": 0.0})


def test_activations_that_are_not_computed_again_are_not_offloaded_either(run: Run) -> None:
    """prime-rl offloads them by default, and then switches `ac` on again."""
    for text, params in (("", {"trainer.model.ac": "None"}), ("trainer.model.ac = 'None'\n", {})):
        assert run.overlay(tuned(text, params))["trainer"]["model"]["ac_offloading"] == "None"
    for text in ("", "trainer.model.ac.mode = 'full'", "trainer.model.ac_offloading = 'None'"):
        assert "ac_offloading" not in run.overlay(tuned(text, {}))["trainer"]["model"]
    with pytest.raises(Failed, match=r"^refused: trainer\.model\.ac = 'None' .*set trainer\.model\.ac_offloading"):
        run.overlay(tuned("trainer.model = {ac = 'None', ac_offloading = {pin_memory = true}}", {}))


def test_dropout_is_refused_where_activations_are_computed_again(run: Run) -> None:
    dropout = "trainer.model.lora.dropout = 0.1\n"
    for other in ("", "trainer.model.ac_offloading = 'None'\n"):
        with pytest.raises(Failed, match=r"^refused: trainer\.model\.lora\.dropout: .*ac_offloading"):
            run.overlay(tuned(dropout + other, {}))
    run.overlay(tuned(dropout + "trainer.model.ac = 'None'\n", {}))
    run.overlay(tuned(dropout + "trainer.model.ac = 'None'\ntrainer.model.ac_offloading = 'None'\n", {}))
    run.overlay(tuned("trainer.model.lora.dropout = 0.0\n", {}))


@pytest.mark.parametrize(
    ("text", "curriculum"),
    [
        ("", None),
        ("[orchestrator.train.source.curriculum]", None),
        ("gates.advantage.type = 'advantage_range'", {"gates": {"advantage": {"type": "advantage_range"}}}),
        ("sampler.type = 'standard'", {"sampler": {"type": "standard"}}),
        ("sampler.type = 'difficulty_pool'", {"sampler": {"type": "difficulty_pool", "seed": 3}}),
    ],
)
def test_filters_of_questions_are_put_into_the_one_source(
    run: Run, text: str, curriculum: dict[str, Any] | None
) -> None:
    text = f"orchestrator.train.source.curriculum.{text}" if text and not text.startswith("[") else text
    [source] = run.overlay(tuned(text, {}))["orchestrator"]["train"]["source"]
    assert source.get("curriculum") == curriculum and source["env"]["taskset"]["id"] == "taskset"


def test_the_layers_are_a_text_with_commas_where_they_are_a_parameter() -> None:
    text = tuned("", {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.1, "lora_targets": "q_proj, v_proj"})
    lora = {"rank": 8, "alpha": 16.0, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
    assert tomllib.loads(text)["trainer"]["model"]["lora"] == lora
    with pytest.raises(Failed, match="list of some of"):
        tuned("", {"lora_targets": "q_proj,lm_head"})


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", ""),
        ("[trainer.model.lora]", ""),
        ("trainer.model.lora.target_modules = ['up_proj', 'down_proj']", "has none of the layers up_proj, down_proj"),
    ],
)
def test_layers_that_the_base_model_lacks_are_refused_before_training(run: Run, text: str, refused: str) -> None:
    (run.home / "train.toml").write_text(text)
    if refused:
        with pytest.raises(Failed, match=rf"^refused: .*{refused}"):
            adapter.check(run)
    else:
        adapter.check(run)


def test_an_adapter_is_refused_where_nothing_could_add_it_to_the_weights(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.home / "train.toml").write_text("[trainer.model.lora]")
    monkeypatch.setattr(adapter, "PACKAGES", ("no_such_package",))
    with pytest.raises(Failed, match=r"^refused: .*no_such_package is not installed"):
        adapter.check(run)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers' own calls
def test_it_makes_of_a_llama_what_peft_makes_of_it(run: Run) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    base, folder, into = run.base.with_name("llama"), run.home / "adapter", run.home / "merged"
    shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **shape))
    model.save_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    folder.mkdir()
    into.mkdir()
    named = {  # as prime-rl names them
        name.removeprefix("base_model.model.").replace(".default", ""): weight.detach().clone()
        for name, weight in adapted.named_parameters()
        if "lora_" in name
    }
    tensors_of.save_file(named, folder / adapter.WEIGHTS)
    (folder / adapter.CONFIG).write_text(json.dumps({"r": 2, "lora_alpha": 8}))
    assert adapter.merge(base, folder, into) == pytest.approx(1, abs=1e-3)
    ours, theirs = tensors_of.load_file(into / "model.safetensors"), adapted.merge_and_unload().state_dict()
    assert len(named) == 8 and all(torch.allclose(tensor, theirs[name], atol=1e-6) for name, tensor in ours.items())
