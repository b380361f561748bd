"""GRPO for language models, by TRL: one program, free to edit.

Group relative policy optimisation: each question is answered several times, `reward` scores each answer, and answers
that earn more than the others of their group become more likely. `prompt` and `reward`, first below, are the problem,
unless a taskset.py beside this file has functions of these names: then training asks and pays as the judge does. What a
question's line holds beside id, question and answer is given to `reward` by name.

    python train.py        trains as ./config.json says: out/progress.jsonl on the way, then out/model

Questions are read from `train.jsonl` in the folder `data` of config.json: {"id", "question", "answer"} on a line. The
parameter `model` is "base" for the folder `base` beside them, a path, or a model of the Hugging Face hub. The result is
an ordinary Hugging Face folder, with LoRA adapters merged into the weights.

The contract with the engine (budget, progress lines, exit status) is in _program.py beside this file, which an edit
cannot change. A step is one batch of answers and what is learned from it. Training ends when the budget of seconds or
steps is spent, or at once on SIGTERM; either way it saves the model and exits 0. On the CPU, on as many `cores` and
with the same `micro_batch_size`, a seed and a budget of steps that binds give the same model, bit for bit.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _program import Budget, Config, Failed, ProgressFile, Refused, main, parse, use_cuda

if TYPE_CHECKING:  # imported where needed: after the SIGTERM handler is set and telemetry is switched off
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def prompt(question: str) -> list[dict[str, str]]:
    """The messages for the model's chat template."""
    return [{"role": "user", "content": question}]


def reward(question: str, completion: str, answer: str, **_: object) -> float:
    """The training reward of an answer: 1 if its last number is right, else 0."""
    number = last_number(completion)
    return float(number is not None and number == last_number(answer))


def last_number(text: str) -> float | None:
    """The last number in a text by value, so that 07 is 7 and 1,000 is 1000.0; None without any."""
    numbers = NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def declared() -> tuple[Callable[[str], list[dict[str, str]]], Callable[..., float]]:
    """`prompt` and `reward` of the taskset, where it is part of the program; else those above. Raises Failed: it has no
    reward, and the judge's is not to be guessed.
    """
    taskset = importlib.import_module("taskset") if importlib.util.find_spec("taskset") else None
    if taskset and not hasattr(taskset, "reward"):
        raise Failed("taskset.py has no function reward(question, completion, answer), which pays here: give it one")
    return getattr(taskset, "prompt", prompt), getattr(taskset, "reward", reward)


@dataclass(frozen=True)
class Params:
    """The tunable parameters: `params` in config.json. Integers are >= 1 unless noted, other numbers >= 0."""

    model: str = "base"
    learning_rate: float = 1e-5
    batch_size: int = 128
    """Answers per step."""
    group_size: int = 8
    """Answers to each question, at least 2; a step asks batch_size / group_size questions."""
    minibatches: int = 1
    """Gradient steps per batch. With one, learning is on-policy and nothing is clipped."""
    micro_batch_size: int = 0
    """Answers per pass through the model; 0: as many of a minibatch as memory holds, found before the first step."""
    temperature: float = 1.0
    """Sampling temperature in training; > 0."""
    max_completion_length: int = 256
    """Most tokens of an answer."""
    beta: float = 0.0
    """Weight of the KL divergence from the model that training started with."""
    epsilon: float = 0.2
    """How far down a minibatch may move the probability of a token, as a ratio, before its gradient stops."""
    epsilon_high: float = 0.2
    """The same upwards."""
    loss: str = "dapo"
    """How tokens are averaged: "dapo" over the batch, "grpo" over each answer, "dr_grpo" by the longest possible."""
    scale_rewards: str = "group"
    """Whose standard deviation of rewards advantages are divided by: "group", "batch" or "none"."""
    weight_decay: float = 0.0
    warmup_steps: int = 5
    """Gradient steps over which the learning rate rises; may be 0."""
    anneal: bool = True
    """Decay the learning rate linearly to 0 over the budget."""
    lora_rank: int = 0
    """Rank of LoRA adapters, which alone are trained; 0: train every weight."""
    lora_alpha: float = 0.0
    """What adapters add is scaled by lora_alpha / lora_rank; 0: by 2."""
    lora_targets: str = "all-linear"
    """The linear layers with adapters, by name: "q_proj,v_proj"; "all-linear": all but the output layer."""
    gradient_checkpointing: bool = False
    """Recompute activations, to save memory."""

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Params:
        params = parse(cls, given, least=LEAST, choices=CHOICES)
        for name in ("group_size", "minibatches"):
            if params.batch_size % (size := getattr(params, name)):
                raise Refused(f"batch_size must be a multiple of {name}, got {params.batch_size}, {size}")
        if params.minibatch_size % (params.micro_batch_size or 1):
            whole = params.minibatch_size
            raise Refused(f"micro_batch_size must divide a minibatch, of {whole}, got {params.micro_batch_size}")
        return params

    @property
    def minibatch_size(self) -> int:
        return self.batch_size // self.minibatches


CHOICES = {"loss": ("dapo", "grpo", "dr_grpo"), "scale_rewards": ("group", "batch", "none")}
LEAST = {"group_size": 2, "micro_batch_size": 0, "warmup_steps": 0, "lora_rank": 0, "temperature": 1e-3}
LONG_MINUTES = 10
"""Of a training on the CPU; one that takes longer says so."""
RECENT = 1000
"""Latest answers over which reports average the reward."""
UNMOVED = 20
"""Steps after which a training is given up if all answers earned the same."""
HEADROOM, CHECKPOINTED = 2.2, 1.2
"""Memory of a pass through the model and back, over what is kept for the way back, also with recomputed activations."""
CPU_SHARE = 0.5
"""Of the free memory, for a pass on the CPU: larger ones are hardly faster, and others train beside it."""
METRICS = {
    "reward": "reward/mean",
    "reward_std": "reward/std",
    "frac_reward_zero_std": "groups/without_signal",
    "loss": "loss",
    "kl": "kl/mean",
    "entropy": "entropy/mean",
    "clip_ratio/region_mean": "clipped/mean",
    "completions/mean_length": "length/mean",
    "completions/clipped_ratio": "length/truncated",
    "grad_norm": "gradient/norm",
    "learning_rate": "learning_rate",
}
"""TRL's names of metrics, and ours."""


class Stopped(BaseException):
    """SIGTERM has come. No Exception, so that no library catches it on its way."""


class InterruptibleBudget(Budget):
    """A budget that SIGTERM may end within a step, while `interruptible`."""

    interruptible = False

    def stop(self, *_: object) -> None:
        super().stop()
        if self.interruptible:
            self.interruptible = False  # once: a second one must not break into the saving
            raise Stopped


class Reporter:
    """Scores answers, and reports what they earned with what TRL logs."""

    def __init__(self, progress: ProgressFile, reward: Callable[..., float], on_cpu: bool = False) -> None:
        self.progress, self.reward, self.on_cpu = progress, reward, on_cpu
        self.recent, self.count, self.tokens = deque[float](maxlen=RECENT), 0, 0
        self.low, self.high = math.inf, -math.inf
        self.metrics: dict[str, float] = {}

    def earned(
        self, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], question: Sequence[str],
        answer: Sequence[str], further: Sequence[str], **_: object,
    ) -> list[float]:  # fmt: skip
        """TRL's reward function: completions are messages, the rest columns of the rows."""
        rows = zip(question, completions, answer, map(json.loads, further), strict=True)
        earned = [float(self.reward(asked, said[0]["content"], right, **more)) for asked, said, right, more in rows]
        if not all(map(math.isfinite, earned)):
            raise Failed("diverged: reward() returned a number that is not finite")
        self.recent.extend(earned)
        self.count += len(earned)
        self.tokens += sum(map(len, completion_ids))
        self.low, self.high = min(self.low, *earned), max(self.high, *earned)
        return earned

    def take(self, logs: dict[str, Any]) -> None:
        """Take in what TRL logged of a gradient step. Raises Failed: it has diverged, or nothing can be learnt."""
        budget = self.progress.budget
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name, 0.0)):
                raise Failed(f"diverged: {name} is {logs[name]} at step {budget.step}")
        self.metrics |= {name: logs[key] for key, name in METRICS.items() if logs.get(key) is not None}
        is_first = self.on_cpu and budget.step == 1
        self.on_cpu &= not is_first  # further minibatches of it are counted as step 1, too
        if is_first and (minutes := budget.elapsed * max(budget.steps, 1) / 60) > LONG_MINUTES:
            self.progress.note(
                f"on the CPU, as no GPU was used: {budget.elapsed:.0f} s for the first step, "
                f"{minutes:.0f} minutes for all, of {budget.seconds / 60:.0f} in budget_seconds"
            )
        if self.progress.due:
            self.report()
        if budget.step == UNMOVED and self.low == self.high:
            same = f"all {self.count} answers of the first {UNMOVED} steps earned {self.low:g}"
            raise Failed(f"no learning signal: {same}")

    def report(self) -> None:
        speed = self.tokens / max(self.progress.budget.elapsed, 1e-3)
        means = {"pass@1": math.fsum(self.recent) / len(self.recent), "tokens/second": speed} if self.recent else {}
        self.progress.report(means | self.metrics)


def questions(path: Path, prompt: Callable[[str], list[dict[str, str]]]) -> list[dict[str, Any]]:
    """The rows of train.jsonl in TRL's form."""
    if not path.is_file():
        raise Refused(f"there are no questions at {path}: prepare the environment first")
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
    own = ("id", "question", "answer")
    return [
        {
            "prompt": prompt(row["question"]), "question": row["question"], "answer": str(row["answer"]),
            "further": json.dumps({key: value for key, value in row.items() if key not in own}),
        }
        for row in rows
    ]  # fmt: skip


def source(name: str, data: Path) -> str:
    """The model that training starts from: a folder, or a name on the hub."""
    folder = data / "base" if name == "base" else Path(name)
    if folder.is_dir():
        return str(folder.absolute())
    if name == "base" or name.startswith(("/", ".")):
        raise Refused(f"model is {name!r}, and there is no folder {folder}")
    return name


def load(name: str, params: Params) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, torch.dtype]:
    """The model to train, in 32 bits since 16 round its small steps away; its tokenizer; its original number format."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    words = AutoTokenizer.from_pretrained(name, trust_remote_code=False, padding_side="left")
    if words.chat_template is None:
        raise Refused(f"the tokenizer of {name} has no chat template: take an instruction-tuned model")
    model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    came, model = model.dtype, model.to(torch.float32)
    if params.lora_rank:  # adapters alone are trained
        from peft import LoraConfig, get_peft_model

        targets = params.lora_targets
        layers = targets if targets == "all-linear" else [target.strip() for target in targets.split(",")]
        alpha = params.lora_alpha or 2 * params.lora_rank
        model = get_peft_model(model, LoraConfig(r=params.lora_rank, lora_alpha=alpha, target_modules=layers))
    return model, words, came


def save(out: Path, model: Any, words: PreTrainedTokenizerBase, form: torch.dtype) -> None:
    """Write out/model, with adapters merged in in 32 bits; atomic."""
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    partial = out / ".model"
    shutil.rmtree(partial, ignore_errors=True)
    model.to(form).save_pretrained(partial)
    words.save_pretrained(partial)
    partial.rename(out / "model")


def free_bytes(config: Config, cuda: bool) -> float:
    """Memory that training may still take."""
    import psutil
    import torch

    if cuda:
        return float(torch.cuda.mem_get_info()[0])
    machine = psutil.virtual_memory()
    allowed = (config.get("memory_gb") or machine.total * 3 / 4 / 2**30) * 2**30
    return float(min(machine.available, allowed - psutil.Process().memory_info().rss))


def micro_batch(model: Any, tokens: int, params: Params, free: float) -> int:
    """The largest part of a minibatch whose answers of so many tokens, prompt included, `free` bytes hold.

    What one answer keeps for the way back is counted in a pass through the model. Raises Refused: not even one fits.
    """
    import torch

    weights, kept = {weight.untyped_storage().data_ptr() for weight in model.parameters()}, dict[int, int]()

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.ones((1, tokens), dtype=torch.long, device=model.device)
    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        # Kept until it has been counted: what is freed on the way would be counted under one address.
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=1).logits.sum()
    one = sum(kept.values()) * (CHECKPOINTED if params.gradient_checkpointing else HEADROOM)
    del loss
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    free -= 12 * trained + (4 * model.num_parameters() if params.beta else 0)  # gradients, Adam's two, the reference
    if one > free:
        needs, has = one / 2**30, free / 2**30
        raise Refused(
            f"an answer of {tokens} tokens needs {needs:.1f} GiB of memory beside the weights, and {has:.1f} are free: "
            "lower max_completion_length, set gradient_checkpointing or lora_rank, or take a smaller model"
        )
    room = max(1, int(free * (CPU_SHARE if model.device.type == "cpu" else 1) / one))
    return max(size for size in range(1, min(room, params.minibatch_size) + 1) if params.minibatch_size % size == 0)


def train(config: Config, progress: ProgressFile) -> None:
    """Train until the budget is spent, and save."""
    assert isinstance(progress.budget, InterruptibleBudget)
    params, budget, data = Params.parse(config["params"]), progress.budget, Path(config["data"] or "no data")
    name = source(params.model, data)
    # Before libraries are imported; what they cache lies in the program's own home.
    os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}
    if Path(name).is_dir():
        os.environ["HF_HUB_OFFLINE"] = "1"
    ask, score = declared()
    rows = questions(data / "train.jsonl", ask)

    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    cuda = use_cuda(config)
    if not cuda:  # no more than are granted: threads that share a core lose much
        torch.set_num_threads(config.get("cores", 1))
    torch.manual_seed(config["seed"])  # of the adapters, too
    if len(rows) < (asked := params.batch_size // params.group_size):
        raise Refused(f"there are {len(rows)} questions to train on, and a step asks {asked}: lower batch_size")
    model, words, form = load(name, params)
    model.to("cuda" if cuda else "cpu")
    reporter = Reporter(progress, score, on_cpu=not cuda)
    longest = max(rows, key=lambda row: len(row["question"]))["prompt"]
    tokens = len(words.apply_chat_template(longest, add_generation_prompt=True, return_dict=False))
    most = tokens + params.max_completion_length
    micro = params.micro_batch_size or micro_batch(model, most, params, free_bytes(config, cuda))
    passes = params.minibatch_size // micro

    # TRL generates once per batch, and saves and reports nothing itself.
    settings = GRPOConfig(
        output_dir=tempfile.gettempdir(), report_to="none", push_to_hub=False, save_strategy="no", disable_tqdm=True,
        logging_steps=1, logging_nan_inf_filter=False, log_completions=False,
        seed=config["seed"], use_cpu=not cuda, dataloader_pin_memory=cuda,
        bf16=cuda and torch.cuda.is_bf16_supported(),
        max_steps=budget.steps * params.minibatches if budget.steps else 10**9,
        per_device_train_batch_size=micro, gradient_accumulation_steps=passes,
        steps_per_generation=passes * params.minibatches, num_generations=params.group_size,
        max_completion_length=params.max_completion_length, temperature=params.temperature,
        beta=params.beta, epsilon=params.epsilon, epsilon_high=params.epsilon_high,
        loss_type=params.loss, scale_rewards=params.scale_rewards,
        gradient_checkpointing=params.gradient_checkpointing,
    )  # fmt: skip
    if cuda:  # one process on one GPU, although others may be visible: TRL refuses to share a model out
        settings._n_gpu = 1

    class Keeper(TrainerCallback):  # type: ignore[misc]
        """Enforces the budget, and holds SIGTERM back during an update."""

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            budget.interruptible = False

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            budget.interruptible = not budget.stopped

        def on_step_end(self, args: Any, state: Any, control: Any, **__: Any) -> None:
            budget.step = state.global_step // params.minibatches
            if budget.stopped:  # SIGTERM came during an update, or a library swallowed Stopped
                raise Stopped
            control.should_training_stop |= budget.spent

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **__: Any) -> None:
            if "loss" in logs:  # the last entry is a summary
                reporter.take(logs)

    def rate(step: int) -> float:
        """The learning rate's factor at a gradient step: a warm-up, then decay with the budget (not by loading)."""
        rising = min(1.0, (step + 1) / (params.warmup_steps + 1))
        return rising * (1 - budget.fraction if params.anneal and step else 1.0)

    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=params.learning_rate, betas=(0.9, 0.99), weight_decay=params.weight_decay, fused=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model, reward_funcs=reporter.earned, args=settings, train_dataset=Dataset.from_list(rows),
        processing_class=words, callbacks=[Keeper()],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)

    progress.ready()
    try:
        budget.interruptible = True
        if not budget.stopped:
            trainer.train()
        budget.interruptible = False
    except Stopped:
        pass
    except torch.OutOfMemoryError as error:
        remedy = "lower micro_batch_size or max_completion_length, or set gradient_checkpointing"
        raise Failed(f"out of GPU memory: {str(error).splitlines()[0]}; {remedy}") from error
    except RuntimeError as error:
        if "probability tensor contains" not in str(error):
            raise
        raise Failed(f"diverged: after step {budget.step} the model gives no probabilities") from error
    reporter.report()
    save(Path(config["out"]), model, words, form if cuda else torch.float32)  # rounded, small updates would be lost


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, clock=InterruptibleBudget))
