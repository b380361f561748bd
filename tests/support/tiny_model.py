"""The language model of `arithmetic` before any training, as a Hugging Face directory: enough to generate with."""

from __future__ import annotations

import runpy
from pathlib import Path

import environments


def save(folder: Path) -> Path:
    import torch

    recipe = runpy.run_path(str(environments.find("arithmetic") / "prepare.py"))
    torch.manual_seed(0)
    words = recipe["tokenizer"]()
    recipe["untrained"](words).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
