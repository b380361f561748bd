"""What a run was trained and judged on, as MLflow's datasets: the environment, and question sets by digest and count.

Questions themselves are never sent. A dataset is known by name and digest, so sending it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

import environments
from environments import judge_name
from environments.recipe import DATA, JUDGE, TRAIN
from tasks.recipes.output import FILE, PREPARED
from tasks.sandbox import outputs
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

DIGEST = 16
"""Hexadecimal digits of a digest."""
OF_TRIALS = ("environment", "train", "search")
EVERY = (*OF_TRIALS, "confirm", "report")
"""Contexts: `confirm` is that of reruns, `report` of certificates."""


def environment_digest(ledger: Ledger) -> str:
    """That of the environment's folder, as frozen at the campaign's start."""
    return outputs.digest(ledger.path / "environment")[:DIGEST]


def used(ledger: Ledger, contexts: Collection[str] = EVERY) -> list[DatasetInput]:
    """The datasets of a campaign with these contexts; the profile of a question set is its number of questions."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    environment, source, note = ledger.environment, scrub_text(ledger.campaign.source), ledger.path / FILE
    facts = {"metric": environment.metric, "judge": judge_name(environment.judge)}
    every = {"environment": (environment.name, environment_digest(ledger), json.dumps(facts))}
    if note.is_file():
        made = PREPARED.validate_json(note.read_bytes())
        for use, many in made.questions.items():
            file = made.files[f"{DATA}/{TRAIN}.jsonl" if use == TRAIN else f"{JUDGE}/{use}.jsonl"]
            every[use] = f"{environment.name}/{use}", file.sha256[:DIGEST], json.dumps({"num_rows": many})
    kind = "nightshift" if source in environments.bundled() else "local"
    return [
        DatasetInput(
            Dataset(name, digest, kind, json.dumps({"uri": source}), profile=profile),
            [InputTag("mlflow.data.context", context)],
        )
        for context, (name, digest, profile) in every.items()
        if context in contexts
    ]
