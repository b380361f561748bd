"""What a run was trained and judged on, as MLflow's datasets: the environment, and question sets by digest and count.

Questions themselves are never sent. A dataset is known by name and digest, so sending it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import environments
from environments import judge_name
from environments.recipe import DATA, JUDGE, TRAIN
from tasks.recipes.output import FILE, PREPARED
from tasks.sandbox import outputs
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text
from tasks.trial import Trial

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

DIGEST = 16
"""Hexadecimal digits of a digest."""
OF_TRIALS = ("environment", "train", "search")
"""Contexts of every trial's datasets; `confirm` is that of trials with reruns, `report` of certificates."""


@dataclass(frozen=True)
class UsedDataset:
    name: str
    digest: str
    context: str
    """What it is for: `environment`, `train`, `search`, `confirm` or `report`."""
    facts: dict[str, str | int]
    """Shown as its profile; `num_rows` is a number of questions."""


def environment(ledger: Ledger) -> UsedDataset:
    """The environment, as frozen at the campaign's start."""
    judged = ledger.environment
    facts: dict[str, str | int] = {
        "metric": judged.metric,
        "judge": judge_name(judged.judge),
        "budget_seconds": f"{judged.budget_seconds:g}",
    }
    digest = outputs.digest(ledger.path / "environment")[:DIGEST]
    return UsedDataset(judged.name, digest, "environment", facts)


def used(ledger: Ledger, contexts: Collection[str] = (*OF_TRIALS, "confirm", "report")) -> list[DatasetInput]:
    """The datasets of a campaign with these contexts."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    every, note = [environment(ledger)], ledger.path / FILE
    if note.is_file():
        made = PREPARED.validate_json(note.read_bytes())
        for use, many in made.questions.items():
            name = f"{DATA}/{TRAIN}.jsonl" if use == TRAIN else f"{JUDGE}/{use}.jsonl"
            digest = made.files[name].sha256[:DIGEST]
            every.append(UsedDataset(f"{ledger.environment.name}/{use}", digest, use, {"num_rows": many}))
    source = scrub_text(ledger.campaign.source)
    kind = "nightshift" if source in environments.bundled() else "local"
    where = json.dumps({"uri": source})
    return [
        DatasetInput(
            Dataset(one.name, one.digest, kind, where, profile=json.dumps(one.facts)),
            [InputTag("mlflow.data.context", one.context)],
        )
        for one in every
        if one.context in contexts
    ]


def of_trial(ledger: Ledger, trial: Trial) -> list[DatasetInput]:
    """Those that a trial saw or was judged on."""
    return used(ledger, (*OF_TRIALS, "confirm") if trial.reruns else OF_TRIALS)
