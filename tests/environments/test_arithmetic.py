"""The arithmetic environment: what its recipe makes, and which answers its taskset calls right."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import environments

FOLDER = environments.find("arithmetic")
quietly = pytest.mark.filterwarnings("ignore")  # of the libraries: what they deprecate is theirs


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A file of the environment, loaded by its path."""
    spec = importlib.util.spec_from_file_location(f"arithmetic_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, made)  # where dataclasses and pydantic look
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("prepare", monkeypatch)


def test_every_sum_falls_into_one_split_and_the_judge_has_three_tenths(recipe: ModuleType) -> None:
    parts = recipe.split(recipe.questions(4))
    ids = {name: {row["id"] for row in part} for name, part in parts.items()}
    assert ids.keys() == {"train", "search", "confirm", "report"}
    assert sum(map(len, ids.values())) == len(set().union(*ids.values())) == 10_000
    assert all(850 < len(ids[name]) < 1150 for name in ("search", "confirm", "report"))
    assert all(int(row["answer"]) == eval(row["question"]) for row in parts["search"][:50])


@pytest.mark.slow
@quietly
def test_the_recipe_makes_questions_and_a_base_that_loads(recipe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"terms": 2, "steps": 2, "batch_size": 4}))
    recipe.main(tmp_path)
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.jsonl")}
    assert made == {"data/train.jsonl", "judge/search.jsonl", "judge/confirm.jsonl", "judge/report.jsonl"}
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = tmp_path / "data" / "base"
    model = AutoModelForCausalLM.from_pretrained(base, use_safetensors=True)
    words = AutoTokenizer.from_pretrained(base)
    assert model.config.model_type == "qwen2"
    assert model.config.hidden_size // model.config.num_attention_heads == 32
    asked = [{"role": "user", "content": "3+7"}]
    text = words.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert text == "<user>3+7<assistant>"
    ids = words(text + "=10<end>", add_special_tokens=False)["input_ids"]
    assert len(ids) == 9 and ids[-1] == model.config.eos_token_id
    assert words.decode(ids[5:], skip_special_tokens=True) == "=10"


def test_the_taskset_calls_right_what_ends_with_the_right_total(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.trainers import grpo

    taskset = module("taskset", monkeypatch)
    right = ["04,06=07", "=7", "=08=07", "04,06= 07 "]
    wrong = ["04,06=08", "=17", "", "=", "04,06=", "07", "04,06,07"]
    malformed = ["=07,", "=07 or 08", "=-7", "=7.0", "=\u0667", "=" + "0" * 5000 + "7", "=07=", "7=x"]
    assert [reply for reply in (*right, *wrong, *malformed) if taskset.reward("", reply, "7")] == right
    for reply in ("04,06=07", "=07", "04,06=08", "=", ""):
        assert grpo.reward("", reply, "7") == taskset.reward("", reply, "7"), "the trainer pays alike"
