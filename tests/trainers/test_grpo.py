"""The GRPO trainer: its parts, then whole trainings of a tiny random model, in this process and as the engine starts it."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import _program
import environments
from tasks.trainers import grpo
from tests.support import tiny_model
from tests.support import trainer_process as trainer_programs
from tests.support.trainer_process import progress

quietly = pytest.mark.filterwarnings("ignore")  # of the libraries: what they deprecate is theirs
TINY = {"batch_size": 8, "group_size": 4, "max_completion_length": 4, "learning_rate": 1e-2}
"""Four answers to each of two questions."""
QUESTIONS = [{"id": f"{i:016x}", "question": f"{i}+{i}", "answer": str(2 * i)} for i in range(1, 5)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions, and beside them an untrained model."""
    folder = tmp_path_factory.mktemp("data")
    tiny_model.save(folder / "base")
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return folder


def config(out: Path, data: Path, steps: int = 3, **more: Any) -> dict[str, Any]:
    params = TINY | more.pop("params", {})
    return trainer_programs.config(out, "", steps=steps, data=str(data), params=params, **more)


def digits(question: str, completion: str, answer: str) -> float:
    """A reward that an untrained model earns now and then: the share of digits in what it said."""
    return sum(letter.isdigit() for letter in completion) / 4


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the program in this process, in a workspace of its own; its exit status."""

    def run(settings: dict[str, Any], reward: Callable[[str, str, str], float] = digits) -> int:
        workspace = Path(settings["out"]).with_suffix(".workspace")
        workspace.mkdir(exist_ok=True)
        (workspace / "config.json").write_text(json.dumps(settings))
        monkeypatch.chdir(workspace)
        monkeypatch.setattr(grpo, "reward", reward)
        return _program.main([], grpo.train, clock=grpo.InterruptibleBudget)

    return run


def weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(model / "model.safetensors")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"group_size": 7}, "batch_size must be a multiple of group_size, got 128, 7"),
        ({"minibatches": 4, "micro_batch_size": 24}, "micro_batch_size must divide a minibatch, of 32, got 24"),
        ({"loss": "mean"}, "loss must be one of dapo, grpo"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(params: dict[str, Any], said: str) -> None:
    with pytest.raises(_program.Refused) as refused:
        grpo.Params.parse(params)
    assert said in str(refused.value)


def test_an_answer_is_scored_with_all_that_its_question_holds(tmp_path: Path) -> None:
    def counted(question: str, completion: str, answer: str, digits: list[int]) -> float:
        return float(completion == f"={answer}") * sum(digits)

    with (tmp_path / "progress.jsonl").open("w") as file:
        reporter = grpo.Reporter(_program.ProgressFile(file, _program.Budget(1, 1)), counted)
    said = [[{"role": "assistant", "content": text}] for text in ("=3", "=4")]
    further = ['{"digits": [1, 2]}'] * 2
    assert reporter.earned(said, [[1, 2], [1, 2, 3]], ["1+2"] * 2, ["3"] * 2, further, trainer_state=None) == [3.0, 0.0]
    assert reporter.tokens == 5


def test_answers_go_through_the_model_in_parts_that_memory_holds(data: Path) -> None:
    params = grpo.Params(batch_size=48, group_size=4)
    model, _, _ = grpo.load(str(data / "base"), params)
    fixed = 12 * model.num_parameters()
    sizes = [grpo.micro_batch(model, 20, params, fixed + free) for free in (3e6, 1e7, 1e9)]
    assert sizes[0] < sizes[1] < sizes[2] == 48 and not any(48 % size for size in sizes), "divisors of a batch"
    assert grpo.micro_batch(model, 40, params, fixed + 1e7) < sizes[1], "of longer answers fewer"
    with pytest.raises(_program.Refused, match="an answer of 20 tokens needs"):
        grpo.micro_batch(model, 20, params, fixed)


def test_a_taskset_that_is_part_of_the_program_asks_and_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert grpo.declared() == (grpo.prompt, grpo.reward)
    monkeypatch.syspath_prepend(Path(environments.__file__).parent / "gsm8k")
    ask, reward = grpo.declared()
    del sys.modules["taskset"]
    assert [one["role"] for one in ask("How many?")] == ["system", "user"]
    assert reward("How many?", "It is \\boxed{18}.", "18") == 1.0
    asked = "a\u2028b"
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": asked, "answer": 1}, ensure_ascii=False) + "\n")
    [row] = grpo.questions(tmp_path / "train.jsonl", ask)
    (tmp_path / "taskset.py").write_text("class Taskset: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(_program.Failed, match="no function reward"):
        grpo.declared()
    del sys.modules["taskset"]
    assert (row["question"], row["answer"]) == (asked, "1"), "a line ends at a line feed alone"


@pytest.mark.slow
@quietly
def test_a_training_reports_each_step_and_leaves_a_model_that_loads_and_that_its_seed_gives_again(
    train: Callable[..., int], data: Path, tmp_path: Path
) -> None:
    assert train(config(tmp_path / "out", data)) == 0
    ready, *reports = progress(tmp_path / "out")
    assert ready == {"ready": True}
    last = reports[-1]
    assert last["step"] == last["step_target"] == 3
    shown = {"pass@1", "reward/mean", "reward/std", "loss", "entropy/mean", "length/mean", "learning_rate"}
    assert shown <= last["metrics"].keys()
    assert 0 < last["metrics"]["pass@1"] <= 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"progress.jsonl", "model"}
    assert {path.suffix for path in (tmp_path / "out" / "model").iterdir()} == {".json", ".jinja", ".safetensors"}
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "out" / "model").chat_template
    base, trained = weights(data / "base"), weights(tmp_path / "out/model")
    assert any(bool((tensor != base[name]).any()) for name, tensor in trained.items())
    files = [(tmp_path / "out/model/model.safetensors").read_bytes()]
    for name, seed in (("again", 1), ("other", 2)):
        assert train(config(tmp_path / name, data, seed=seed)) == 0
        files.append((tmp_path / name / "model/model.safetensors").read_bytes())
    assert files[0] == files[1] != files[2]


@quietly
def test_adapters_alone_are_trained_and_the_merged_model_answers_as_the_adapted_one(
    train: Callable[..., int], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([[3, 13, 4, 14]])
    adapted: dict[str, Any] = {}
    really_save = grpo.save

    def saves(out: Path, model: Any, *more: Any) -> None:
        with torch.inference_mode():
            adapted["logits"] = model.eval()(ids).logits
        adapted["trained"] = {name for name, weight in model.named_parameters() if weight.requires_grad}
        adapted["scales"] = {layer.scaling["default"] for layer in model.modules() if hasattr(layer, "lora_A")}
        really_save(out, model, *more)

    monkeypatch.setattr(grpo, "save", saves)
    changed = {"lora_rank": 2, "lora_alpha": 6.0, "lora_targets": "q_proj, v_proj", "learning_rate": 0.1}
    assert train(config(tmp_path / "out", data, steps=3, params=changed)) == 0
    assert adapted["trained"] and all("lora_" in name for name in adapted["trained"])
    assert {name.split(".")[-4] for name in adapted["trained"]} == {"q_proj", "v_proj"}
    assert adapted["scales"] == {3.0}
    with torch.inference_mode():
        base, merged = (
            AutoModelForCausalLM.from_pretrained(folder)(ids).logits
            for folder in (data / "base", tmp_path / "out" / "model")
        )
    assert not torch.allclose(base, merged, atol=1e-4), "the adapters have learned something"
    assert torch.allclose(adapted["logits"], merged, atol=1e-5)


@quietly
def test_the_file_cancel_ends_it_at_the_next_report_with_status_42_and_no_model(
    train: Callable[..., int], data: Path, tmp_path: Path
) -> None:
    def cancels(question: str, completion: str, answer: str) -> float:
        Path("cancel").touch()
        return digits(question, completion, answer)

    assert train(config(tmp_path / "out", data, steps=10_000), cancels) == 42
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"progress.jsonl"}


@quietly
@pytest.mark.parametrize(
    ("params", "reward", "reason"),
    [
        ({}, lambda *_: 0.0, "no learning signal: all 16 answers of the first 2 steps earned 0"),
        ({"learning_rate": 1e30, "warmup_steps": 0, "anneal": False}, digits, "diverged: "),
    ],
)
def test_a_training_that_leads_nowhere_gives_up_and_says_so(
    train: Callable[..., int], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any],
    reward: Callable[[str, str, str], float], reason: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(grpo, "UNMOVED", 2)
    assert train(config(tmp_path / "out", data, steps=10_000, params=params), reward) == 1
    failed = progress(tmp_path / "out")[-1]
    assert failed["failed"].startswith(reason) and failed["retry"] is False
    assert not (tmp_path / "out" / "model").exists()


PATIENCE = 400
"""Seconds for a whole program, the import of its libraries on a busy machine included."""


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("turn", range(2))
def test_sigterm_at_any_moment_leaves_a_model_that_loads(turn: int, data: Path, tmp_path: Path) -> None:
    settings = config(tmp_path / "out", data, steps=0, budget_seconds=1e6)
    lines = tmp_path / "out" / "progress.jsonl"
    sign = "ready" if turn else ""  # at first it comes while the libraries are imported
    with trainer_programs.program(grpo, tmp_path / "workspace", settings) as running:
        while running.poll() is None and (not lines.exists() or sign not in lines.read_text()):
            time.sleep(0.01)
        time.sleep(0.2 + random.Random(turn).random() * turn)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said.decode()
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")


def test_sigterm_breaks_in_once_and_only_where_it_may() -> None:
    budget = grpo.InterruptibleBudget(1e6, 10)
    budget.stop()
    assert budget.spent
    budget.interruptible = True
    with pytest.raises(grpo.Stopped):
        budget.stop()
    budget.stop()  # the second one comes while the model is saved
