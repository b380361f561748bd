"""The page of prime-rl's keys has every key that may be tuned, and the command that makes it finds one that is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import environments
from benchmarks import prime_rl_keys
from prime_rl_parts.keys import KEYS

PAGE = (Path(__file__).parents[2] / "docs/prime-rl-keys.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
CLASSES = """\
from typing import Literal
from pydantic import BaseModel, ConfigDict

class Adam(BaseModel):
    type: Literal["adamw"] = "adamw"
    lr: float = 1e-6

class Sgd(BaseModel):
    type: Literal["sgd"] = "sgd"
    nesterov: bool = False

class Trainer(BaseModel):
    optim: Adam | Sgd | None = None

class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

class Inference(BaseModel):
    vllm: Open = Open()

class RLConfig(BaseModel):
    trainer: Trainer = Trainer()
    inference: Inference = Inference()
"""


def test_the_page_has_each_key_once_with_its_values_as_we_let_them_through() -> None:
    head, *rows = ROWS
    assert PAGE.startswith(prime_rl_keys.HEAD)
    assert [row[0].strip("`") for row in rows] == list(KEYS)
    assert [row[2] for row in rows] == [prime_rl_keys.values(kind) for kind in KEYS.values()]
    assert {word for row in rows for word in row[3:]} <= {"yes", "no", "unchecked"}
    assert all(len(row) == len(head) for row in rows)


def test_the_commit_that_environments_pin_has_every_key_and_so_has_the_last_column() -> None:
    head, *rows = ROWS
    pinned = str(environments.load(environments.find("gsm8k"), {"text.backend": "openai"}).fixed["prime_rl_commit"])
    (column,) = [place for place, cell in enumerate(head) if cell.startswith(pinned)]
    assert not [row[0] for row in rows if "no" in (row[column], row[-1])]


def a_checkout(folder: Path, classes: str) -> Path:
    module = folder / prime_rl_keys.PACKAGE / "prime_rl/configs/rl.py"
    module.parent.mkdir(parents=True)
    module.write_text(classes)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_a_key_that_a_checkout_lacks_is_named_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = a_checkout(tmp_path / "prime-rl", CLASSES)
    assert prime_rl_keys.main([str(checkout), "--python", sys.executable]) == 1
    said = capsys.readouterr()
    assert "trainer.loss.kl_tau" in said.err and "trainer.optim.lr" not in said.err
    assert "| `trainer.optim.nesterov` |  | `true`, `false` | yes |" in said.out
    assert "| `inference.vllm.enforce_eager` |  | `true`, `false` | unchecked |" in said.out


def test_classes_that_do_not_load_are_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = a_checkout(tmp_path / "prime-rl", "import of_nobody\n")
    with pytest.raises(SystemExit) as refused:
        prime_rl_keys.main([str(checkout), "--python", sys.executable])
    assert refused.value.code == 2 and "of_nobody" in capsys.readouterr().err
