"""What importers share: the runner that they write into an environment, its keys, and names that are seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environments.score import METRIC
from tasks.importing import Term

PROGRAMS = Path(__file__).parent / "programs"
REPOSITORY = "repository"
"""Folder of the original's files in the new environment."""
SEED = re.compile(r"(.*[-_./])?(seed([-_]everything)?|random[-_]?(seed|state)|rng([-_]?key)?)", re.IGNORECASE)
RESULT = "cp {out}/result.json {result}"
"""The judge's command where the score is what the program printed or reported."""


def program(name: str) -> str:
    """The text of a program that is written into an imported environment."""
    return (PROGRAMS / name).read_text("utf-8")


def files(how: Mapping[str, Any]) -> dict[str, str | Path]:
    """The runner, and how it runs the original."""
    return {"train.py": program("run.py"), "run.json": json.dumps(how, indent=1) + "\n"}


def keys(title: str, metric: str, direction: str, edited: str) -> dict[str, Any]:
    """The keys of environment.toml that every problem with the runner has; `edited` is a file, or empty."""
    return {
        "title": title,
        "metric": metric,
        "direction": direction,
        "trainer": "command",
        "train_cmd": "python train.py",
        "program": ["train.py", "run.json", REPOSITORY],
        "editable": [f"{REPOSITORY}/{edited}"] if edited else [],
        "judge": "command",
        "command": {"eval_cmd": RESULT},
    }


def is_seed(name: str) -> bool:
    """Whether a parameter is a seed: it gets the seed of the run, and no search picks the luckiest one."""
    return SEED.fullmatch(name) is not None


def metric_name(name: str, otherwise: str = "value") -> str:
    """A metric's name with the characters that ours may have."""
    kept = re.sub(r"[^A-Za-z0-9_\-. :/@]+", " ", name)[:100].strip()
    return kept if re.match(METRIC, kept) else otherwise


def metric_term(theirs: str, ours: str, words: str) -> Term:
    """What became of a metric, with its new name where it has one."""
    renamed = f" {ours!r}, since a name has letters, digits, _ - . space : / @" if ours != theirs else ""
    return Term(f"metric {theirs}", f"metric{renamed}, {words}")


def warning(edited: str, metric: str) -> str:
    """That the score comes from what is scored."""
    return (
        f"the score is what {edited} gives as {metric!r}, and that is the program which is scored: an edit can give "
        f"any number. Before code is edited, let it save its model, and have a frozen program measure that "
        f"(docs/environments.md); until then read the diff of every champion (--approval code)"
    )
