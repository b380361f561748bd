"""What a run was trained and judged on, as MLflow's datasets: the environment, and its prepared questions.

Questions themselves are never sent. A dataset is known by name and digest, so sending it again changes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import environments
from environments import judge_name
from tasks.recipes.output import FILE, PREPARED
from tasks.sandbox import outputs
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

DIGEST = 16
"""Hexadecimal digits of a digest."""


def environment_digest(ledger: Ledger) -> str:
    """That of the environment's folder, as frozen at the campaign's start."""
    return outputs.digest(ledger.path / "environment")[:DIGEST]


def used(ledger: Ledger) -> list[DatasetInput]:
    """The datasets of a campaign; the profile of its questions is the number for each use."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    environment, source, note = ledger.environment, scrub_text(ledger.campaign.source), ledger.path / FILE
    facts = {"metric": environment.metric, "judge": judge_name(environment.judge)}
    datasets: dict[str, tuple[str, str, object]] = {
        "environment": (environment.name, environment_digest(ledger), facts)
    }
    if note.is_file():
        made = PREPARED.validate_json(note.read_bytes())
        datasets["questions"] = f"{environment.name}/questions", made.content, made.questions
    kind = "nightshift" if source in environments.bundled() else "local"
    return [
        DatasetInput(
            Dataset(name, digest, kind, json.dumps({"uri": source}), profile=json.dumps(profile)),
            [InputTag("mlflow.data.context", context)],
        )
        for context, (name, digest, profile) in datasets.items()
    ]
