"""A certified champion as a logged model of MLflow, which `mlflow.pyfunc.load_model` loads and runs in the sandbox.

The model's folder is that of tasks/serving/packing.py with MLflow's own file MLmodel: signature, example and the module
that loads it (tasks/serving/loaded.py). No requirements are listed, since Nightshift is on no package index: where it
is loaded, Nightshift must be installed. A champion that answers no rows gets a model without the flavour, files only.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from environments import Environment
from tasks.serving import rows
from tasks.serving.description import COMPLETION, PROMPT, Description
from tasks.serving.packing import NotPredictable, pack
from tasks.store import safe_read
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.tracking.connection import Store
from tasks.tracking.datasets import ENVIRONMENT
from tasks.tracking.trial_run import CampaignRecord, metric_key, origin, shown, trial_run_name, trial_scalars
from tasks.trial import Trial

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Metric, Run
    from mlflow.models import Model, ModelSignature

LOADER = "tasks.serving.loaded"
EXAMPLE = "input_example.json"
NOT_LOADABLE = "not_loadable"
"""The tag that says why a model holds files only."""
SHARED = ("lineage.commit", "isolation", "machine")
"""Tags of the run that are the model's too."""
NOTE = "A certified champion. Each prediction starts its program in the sandbox; Nightshift must be installed."
COLUMNS = 1000
"""Numbers of an observation that the signature lists one by one; a longer one is a tensor, without an example."""


@dataclass(frozen=True)
class Champion:
    """A certified trial, and where its files are."""

    environment: Environment
    place: TrialDir
    trial: Trial


def log(
    client: MlflowClient, store: Store, run: Run, parent: str, campaign: CampaignRecord, champion: Champion
) -> LoggedModel:
    """The model of a champion's run, made if missing or incomplete, and shown by its run and the campaign's."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    run_id: str = run.info.run_id
    known = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    model = known[0] if known else _create(client, run, campaign, champion.trial)
    if model.status != LoggedModelStatus.READY:
        with safe_read.parcel(champion.place.path) as parcel:
            why = _fill(parcel, model, run_id, champion)
            with store.uploading():
                client.log_model_artifacts(model.model_id, str(parcel))
        if why:
            client.set_logged_model_tags(model.model_id, {NOT_LOADABLE: why})
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_batch(run_id, _scores(campaign, champion.trial, model.model_id))
    for shows in (run_id, parent):
        outputs = client.get_run(shows).outputs
        if model.model_id not in {
            one.model_id for one in (outputs.model_outputs if outputs else ())
        }:  # twice is an error
            client.log_outputs(shows, [LoggedModelOutput(model.model_id, 0)])
    return client.get_logged_model(model.model_id)


def _create(client: MlflowClient, run: Run, campaign: CampaignRecord, trial: Trial) -> LoggedModel:
    shared = {name: run.data.tags[name] for name in SHARED if name in run.data.tags}
    note = f"{NOTE}\n\n{run.data.tags.get('mlflow.note.content', '')}"
    tags = {**origin(campaign), **shared, "trial": str(trial.number), "mlflow.note.content": note}
    name = re.sub(r"[/:.%\"']", "-", trial_run_name(campaign, trial))
    return client.create_logged_model(
        run.info.experiment_id, name, run.info.run_id, tags, shown(trial.proposal.params), "policy"
    )


def _scores(campaign: CampaignRecord, trial: Trial, model: str) -> list[Metric]:
    """The objective of the trial's run once more, as the model's: the same points, so the run gets no others."""
    from mlflow.entities import Metric

    environment = [(data.name, data.digest) for data in campaign.datasets if data.context == ENVIRONMENT]
    name, digest = environment[0] if environment else (None, None)
    keys = (metric_key(campaign.metric), "score", "score/se")
    points = [point for point in trial_scalars(campaign, trial) if point.key in keys]
    return [Metric(*point, model_id=model, dataset_name=name, dataset_digest=digest) for point in points]


def _fill(folder: Path, model: LoggedModel, run_id: str, champion: Champion) -> str:
    """Pack the champion with MLmodel; returns why it cannot be loaded, empty if it can."""
    from mlflow.models import Model

    version = importlib.metadata.version("nightshift-rl")
    needs = f"Nightshift {version}, installed where the model is loaded; predictions run in its sandbox"
    described = Model(
        run_id=run_id, model_id=model.model_id, metadata={"environment": champion.environment.name, "needs": needs}
    )
    why = ""
    try:
        packed = pack(champion.environment, champion.place, champion.trial, folder)
    except NotPredictable as reason:
        why = str(reason)
        described.add_flavor("nightshift", version=version)
    else:
        described.add_flavor("python_function", loader_module=LOADER, python_version=platform.python_version())
        described.signature = _signature(packed)
        _add_example(described, packed, folder)
    described.save(str(folder / "MLmodel"))
    return why


def _signature(packed: Description) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    def settings(**values: tuple[DataType, Any]) -> ParamSchema:
        return ParamSchema([ParamSpec(name, *value) for name, value in values.items()])

    if packed.judge == "text":
        asked = packed.settings
        params = settings(
            temperature=(DataType.double, float(asked["temperature"])),
            max_tokens=(DataType.long, int(asked["max_tokens"])),
            seed=(DataType.long, 0),
        )
        prompt, completion = (Schema([ColSpec("string", name)]) for name in (PROMPT, COMPLETION))
        return ModelSignature(prompt, completion, params)
    seen, taken = ([leaf.leaf for leaf in leaves] for leaves in (packed.observation, packed.action))
    wide = rows.width(seen)
    # Of unnamed numbers MLflow takes arrays, lists and frames of any numeric type; of a tensor its own type alone.
    one_by_one = Schema([ColSpec("double") for _ in range(wide)])
    inputs = one_by_one if wide <= COLUMNS else Schema([TensorSpec(rows.dtype(seen, wire=True), (-1, wide))])
    many = (rows.width(taken),) if len(taken) > 1 or taken[0].shape else ()
    outputs = Schema([TensorSpec(rows.dtype(taken, wire=False), (-1, *many))])
    mode = bool(packed.settings["deterministic"])
    return ModelSignature(inputs, outputs, settings(deterministic=(DataType.boolean, mode), seed=(DataType.long, 0)))


def _add_example(model: Model, packed: Description, folder: Path) -> None:
    """Write an example of the input, as MLflow reads it."""
    if packed.judge == "text":
        split: dict[str, list[Any]] = {"columns": [PROMPT], "data": [["Say hello."]]}
    else:
        leaves = [leaf.leaf for leaf in packed.observation]
        if (wide := rows.width(leaves)) > COLUMNS:
            return
        calm = [np.broadcast_to(np.clip(0, leaf.low, leaf.high), leaf.shape).ravel() for leaf in leaves]
        split = {"columns": list(range(wide)), "data": [np.concatenate(calm).astype(float).tolist()]}
    write_atomic(folder / EXAMPLE, json.dumps(split))
    model.saved_input_example_info = {"artifact_path": EXAMPLE, "type": "dataframe", "pandas_orient": "split"}
