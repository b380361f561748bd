"""Preparing: have an environment's recipe make what training and judging need, once for all campaigns.

runs/.prepared/arithmetic-0123456789abcdef/     named by the hash of the recipe
    data/            what training may read: train.jsonl, a base model
    judge/           what only the judge reads: search.jsonl, confirm.jsonl, report.jsonl
    prepared.json    which recipe, when, with which versions
"""

from __future__ import annotations

from pathlib import Path

from environments import Environment

FOLDER = ".prepared"


def place(environment: Environment, runs: Path) -> Path | None:
    """Where what its recipe makes lies, below the directory of all campaigns; None where it has no recipe."""
    if environment.prepare is None:
        return None
    digest = environment.prepare.digest(environment.folder)
    return runs.absolute() / FOLDER / f"{environment.name}-{digest}"


def laid(environment: Environment, runs: Path) -> Environment:
    """The environment, knowing where what its recipe makes lies; nothing is made here."""
    return environment.model_copy(update={"prepared": place(environment, runs)})
