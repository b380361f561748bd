"""Makes the questions, and the base model that training starts from: `python prepare.py FOLDER`.

FOLDER/settings.json says how. A question is a sum of one-digit numbers, "3+7+5+2". The base is a language
model of some 100,000 weights that was shown worked answers: each running sum and then the total, "10,15=17". A share of
what it saw were lazy guesses, "=21", and now and then a worked sum slipped by one. So it has learned to add, and bad
habits with it: what reinforcement can bring out.

On one machine the same settings give the same model, bit for bit.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from making import SPLITS, Row, identity, run, settings_of, write

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

USER, ASSISTANT, END, PAD, UNKNOWN = "<user>", "<assistant>", "<end>", "<pad>", "<unknown>"
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<user>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MOST = 10_000
"""Questions, where there are more."""
IGNORED = -100
"""The label of a token that the loss leaves out."""


def questions(terms: int) -> Iterator[Row]:
    """Every question of so many one-digit numbers; the same 10,000 of them where there are more."""
    many = 10**terms
    for number in range(many) if many <= MOST else random.Random(0).sample(range(many), MOST):
        digits = f"{number:0{terms}d}"
        text = "+".join(digits)
        yield {"id": identity(text), "question": text, "answer": str(sum(map(int, digits)))}


def split(rows: Iterator[Row]) -> dict[str, list[Row]]:
    """The questions of each split, in the order of their identities: a tenth for each of the judge's, by identity."""
    parts: dict[str, list[Row]] = {name: [] for name in (*SPLITS, "train")}
    for row in rows:
        tenth = int(row["id"], 16) % 10
        parts[SPLITS[tenth] if tenth < len(SPLITS) else "train"].append(row)
    return {name: sorted(part, key=lambda row: row["id"]) for name, part in parts.items()}


def demonstration(question: str, draw: random.Random, settings: SimpleNamespace) -> str:
    """An answer as the base is shown it: worked out, with slips, or guessed."""
    most = 9 * settings.terms

    def slipped(total: int) -> int:
        wrong = draw.random() < settings.slips
        return min(max(total + draw.choice((-1, 1)), 0), most) if wrong else total

    if draw.random() < settings.lazy:
        return f"={draw.randint(0, most):02d}"
    total, *others = map(int, question.split("+"))
    worked = []
    for number in others:
        worked.append(total := slipped(total + number))
    return ",".join(f"{total:02d}" for total in worked[:-1]) + f"={worked[-1]:02d}"


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = (PAD, UNKNOWN, END, USER, ASSISTANT, *"0123456789", *"+,=")
    table = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, UNKNOWN))
    table.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    table.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=table, pad_token=PAD, unk_token=UNKNOWN, eos_token=END,
        additional_special_tokens=[USER, ASSISTANT], padding_side="left", model_max_length=64,
    )  # fmt: skip
    made.chat_template = TEMPLATE
    return made


def untrained(words: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A Qwen2 of two layers. Its heads are 32 wide: narrower ones, vLLM does not take."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(words), hidden_size=64, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def warm_up(model: PreTrainedModel, words: PreTrainedTokenizerFast, asked: list[str], how: SimpleNamespace) -> None:
    """Show the model `how.steps` batches of answers; only answers count in the loss."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    draw = random.Random(how.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps)
    model.train()
    for step in range(how.steps):
        ids, counted = [], []
        for question in draw.choices(asked, k=how.batch_size):
            before = words.encode(f"{USER}{question}{ASSISTANT}")
            said = words.encode(demonstration(question, draw, how) + END)
            ids.append(torch.tensor(before + said))
            counted.append(torch.tensor([IGNORED] * len(before) + said))
        # Padding comes last, where nothing that counts can see it: no attention mask is needed.
        labels = pad_sequence(counted, batch_first=True, padding_value=IGNORED)
        loss = model(input_ids=pad_sequence(ids, True, words.pad_token_id), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            sys.stdout.write(f"warm-up: step {step} of {how.steps}, loss {loss.item():.3f}\n")
            sys.stdout.flush()
    model.eval()


def base(folder: Path, asked: list[str], how: SimpleNamespace) -> None:
    """Train the base model on questions of training alone, and save it as a Hugging Face folder."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(how.seed)
    words = tokenizer()
    model = untrained(words)
    warm_up(model, words, asked, how)
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def main(folder: Path) -> None:
    how = settings_of(folder)
    parts = split(questions(how.terms))
    write(folder, parts["train"], {name: parts[name] for name in SPLITS})
    base(folder / "data" / "base", [row["question"] for row in parts["train"]], how)


if __name__ == "__main__":
    run("arithmetic", main)
