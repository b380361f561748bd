"""MLflow's model registry: a certified champion's logged model becomes a version of its environment's model.

The model is named `nightshift.<environment>`; its alias `champion` points at the version certified last. A version is
found by its source run, so registering is idempotent.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tasks.certifying.certificate import Certificate
from tasks.describe import caution
from tasks.tracking import logged_model
from tasks.tracking.certificates import words
from tasks.tracking.connection import Store
from tasks.tracking.logged_model import Champion
from tasks.tracking.trial_run import CampaignRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion

ALIAS = "champion"
UPLOADED = "out/"
"""Prefix of the tag `checkpoint` of a run that has one (tasks/store/safe_read.py)."""
MODEL_ID = "model_id"
"""Tag of a version: its logged model."""
VERSIONS = "mlflow.modelVersions"
"""MLflow's tag of a logged model: its registered versions, to which its page links."""
PASSING = (408, 429)
"""Client errors that may pass; any other means that there is no usable registry."""
ABSENT = ("FEATURE_DISABLED", "NOT_IMPLEMENTED")
"""Server errors that also mean that."""


def model_name(environment: str) -> str:
    """The registered model of an environment; names may not contain / or :."""
    return f"nightshift.{re.sub(r'[^A-Za-z0-9_.-]', '_', environment)}"


def register(
    client: MlflowClient, store: Store, campaign: CampaignRecord, certificate: Certificate, champion: Champion,
    run_id: str, parent: str,
) -> str:  # fmt: skip
    """Make a champion a model version with the alias; returns it, or why there is none.

    `run_id` is its trial's run, `parent` the campaign's.
    """
    from mlflow.exceptions import MlflowException

    run = client.get_run(run_id)
    checkpoint = run.data.tags.get("checkpoint", "not uploaded")
    if not checkpoint.startswith(UPLOADED):
        return f"not registered: its checkpoint is {checkpoint}"
    name = model_name(campaign.environment)
    try:
        with store.lock():
            version, why = _version(client, store, name, run, parent, campaign, certificate, champion)
            _point_at(client, name, int(version.version))
    except MlflowException as error:
        status: int = error.get_http_status_code()  # type: ignore[no-untyped-call]
        if error.error_code not in ABSENT and (status in PASSING or not 400 <= status < 500):
            raise
        return f"not registered: {store.problem(error)}"
    return f"{name} version {version.version}" + (f", files only: {why}" if why else "")


def _version(
    client: MlflowClient, store: Store, name: str, run: Run, parent: str, campaign: CampaignRecord,
    certificate: Certificate, champion: Champion,
) -> tuple[ModelVersion, str]:  # fmt: skip
    """The version whose source is a run, created if missing, and why it cannot be loaded (empty if it can)."""
    run_id: str = run.info.run_id
    known = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    if known and MODEL_ID not in known[0].tags:  # of an earlier Nightshift, which registered files
        return known[0], "an earlier version registered it"
    model = logged_model.log(client, store, run, parent, campaign, champion)
    version = known[0] if known else _create(client, name, run, model, campaign, certificate)
    if VERSIONS not in model.tags:  # a server sets it, a database does not
        versions = json.dumps([{"name": name, "version": str(version.version)}])
        client.set_logged_model_tags(model.model_id, {VERSIONS: versions})
    return version, model.tags.get(logged_model.NOT_LOADABLE, "")


def _create(
    client: MlflowClient, name: str, run: Run, model: LoggedModel, campaign: CampaignRecord, certificate: Certificate
) -> ModelVersion:
    _model(client, name)
    tags = {
        "campaign": campaign.campaign,
        "campaign_id": campaign.campaign_id,
        "trial": str(certificate.champion),
        "metric": campaign.metric,
        "checkpoint": run.data.tags["checkpoint"],
        MODEL_ID: model.model_id,
    }
    told = f"{words(certificate)}; {caution(certificate)}"
    # The address models:/<id> would be looked up in the process's own store, whichever this client's is.
    where = model.artifact_location
    return client.create_model_version(name, where, run.info.run_id, tags, description=told, model_id=model.model_id)


def _model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

    try:
        client.create_registered_model(name, description="Certified champions of Nightshift, the newest last.")
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
            raise


def _point_at(client: MlflowClient, name: str, version: int) -> None:
    """Move the alias to a version, unless it points at a later one."""
    now = client.get_registered_model(name).aliases.get(ALIAS, 0)
    if int(now) < version:
        client.set_registered_model_alias(name, ALIAS, str(version))
