"""Programs to be edited, made at random from a seed: full of functions that are nearly alike."""

from __future__ import annotations

import random
import re
from itertools import product
from pathlib import Path

from tasks import trainers

FUNCTION = """\
def {verb}_{noun}(batch, state, scale={a}):
    total = 0.0
    count = {b}

    for item in batch:
        if item is None:
            continue
        value = item.{noun} * scale
        total += value
        count += 1

    mean = total / max(count, 1)
    state["{noun}"] = {c} * state["{noun}"] + (1 - {c}) * mean
    return mean


"""
CLASS = """\
class {Noun}{Verb}er(Module):
    def __init__(self, size, rate={a}):
        super().__init__()
        self.size = size
        self.rate = rate
        self.layers = [Linear(size, size) for _ in range({b})]

    def forward(self, inputs):
        hidden = inputs
        for layer in self.layers:
            hidden = layer(hidden)
            hidden = relu(hidden)
        return hidden

    def update(self, batch):
        for item in batch:
            if item is None:
                continue
            loss = self.loss(item) * {c}
            loss.backward()
        self.optimizer.step()


"""
VERBS = ("update", "score", "blend", "clip", "trace")
NOUNS = ("reward", "value", "advantage", "entropy", "return", "ratio")
Rng = random.Random


def program(rng: Rng) -> str:
    """A program in which one function is much like another."""
    if rng.random() < 0.2:
        return (Path(trainers.__path__[0]) / rng.choice(["ppo.py", "sac.py"])).read_text()
    parts = ["import numpy as np\n\nRATE = 0.1\nSTEPS = 100\n\n\n"]
    for verb, noun in rng.sample(list(product(VERBS, NOUNS)), rng.randint(6, 16)):
        words = {"verb": verb, "noun": noun, "Verb": verb.capitalize(), "Noun": noun.capitalize()}
        numbers = {"a": rng.choice([1, 0.5]), "b": rng.choice([1, 2]), "c": rng.choice([0.9, 0.99])}
        parts.append(rng.choice([FUNCTION, FUNCTION, CLASS]).format(**words, **numbers))
    text = "".join(parts).rstrip("\n") + "\n"
    return text.replace("    ", "\t") if rng.random() < 0.1 else text


def edited(text: str, rng: Rng) -> str:
    """The program with one to three small changes."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.choice([number for number, line in enumerate(lines) if line.strip()])
        indent, line = re.match(r"\s*", lines[at])[0], lines[at]  # type: ignore[index]
        new = f"{indent}value = np.clip(value, -{rng.randint(2, 99)}, {rng.randint(2, 99)})"
        other = re.sub(r"\d+(?!.*\d)", str(rng.randint(100, 999)), line)
        other = other if other != line else f"{line}  # {rng.choice(VERBS)}"
        change = rng.choice([[other], [other], [line, new], [new, line], [], [other, new]])
        lines[at : at + 1] = change
    return "\n".join(lines)
