"""What a run was trained and judged on, as MLflow's datasets: the environment, and question sets by digest and count.

Questions themselves are never sent. A dataset is known by name and digest, so sending it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import environments
from environments import judge_name
from environments.recipe import DATA, JUDGE, TRAIN
from tasks.recipes.output import FILE, PREPARED
from tasks.sandbox import outputs
from tasks.system.redact import scrub_text
from tasks.trial import Trial

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

    from tasks.store.ledger import Ledger

ENVIRONMENT = "environment"
DIGEST = 16
"""Hexadecimal digits of a digest."""
OF_TRIALS = (ENVIRONMENT, "train", "search")
"""Contexts of every trial's datasets; `confirm` is that of trials with reruns, `report` of certificates."""


@dataclass(frozen=True)
class UsedDataset:
    name: str
    digest: str
    context: str
    """What it is for: `environment`, `train`, `search`, `confirm` or `report`."""
    source: str
    """A bundled environment's name, or a path."""
    facts: tuple[tuple[str, str | int], ...]
    """Shown as its profile; `num_rows` is a number of questions."""


def used(ledger: Ledger) -> tuple[UsedDataset, ...]:
    """The datasets of a campaign, as frozen at its start."""
    environment, source = ledger.environment, scrub_text(ledger.campaign.source)
    facts = {
        "metric": environment.metric,
        "judge": judge_name(environment.judge),
        "budget_seconds": f"{environment.budget_seconds:g}",
    }
    digest = outputs.digest(ledger.path / "environment")[:DIGEST]
    found = [UsedDataset(environment.name, digest, ENVIRONMENT, source, tuple(facts.items()))]
    note = ledger.path / FILE
    if note.is_file():
        made = PREPARED.validate_json(note.read_bytes())
        for use, many in made.questions.items():
            name = f"{DATA}/{TRAIN}.jsonl" if use == TRAIN else f"{JUDGE}/{use}.jsonl"
            digest = made.files[name].sha256[:DIGEST]
            found.append(UsedDataset(f"{environment.name}/{use}", digest, use, source, (("num_rows", many),)))
    return tuple(found)


def of_trial(datasets: Iterable[UsedDataset], trial: Trial) -> list[UsedDataset]:
    """Those that a trial saw or was judged on."""
    contexts = (*OF_TRIALS, "confirm") if trial.reruns else OF_TRIALS
    return [dataset for dataset in datasets if dataset.context in contexts]


def inputs(datasets: Iterable[UsedDataset]) -> list[DatasetInput]:
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    found = []
    for one in datasets:
        kind = "nightshift" if one.source in environments.bundled() else "local"
        profile = json.dumps(dict(one.facts))
        dataset = Dataset(one.name, one.digest, kind, json.dumps({"uri": one.source}), profile=profile)
        found.append(DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, one.context)]))
    return found
