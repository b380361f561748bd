"""A certified champion in MLflow: the folder `model` of its run, a version of its environment's registered model.

It is the folder of tasks/serving/loaded.py, with MLflow's own file MLmodel where the champion answers rows. The alias
`champion` moves only to a version that is better than the one it points at: by the mean of its certificate's fresh
runs, in the same version of the environment.
"""

from __future__ import annotations

import platform
import re
from typing import TYPE_CHECKING

from tasks.describe import caution
from tasks.serving import loaded
from tasks.stats.certificate import Certificate
from tasks.store import safe_read
from tasks.store.ledger import Ledger
from tasks.tracking.campaign_run import environment_digest, words
from tasks.trial import Trial

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

ALIAS = "champion"
FRESH_MEAN, ENVIRONMENT = "fresh_mean", "environment_digest"
"""Tags of a version, by which it is compared with others."""
RANKED = "ranked"
"""The tag that says what came of the comparison: an alias is moved once, and a person may move it then."""
FOLDER = "model"
"""Name of its folder among the artifacts of its run."""
ABOUT = "A certified champion. Each prediction starts its program in the sandbox; Nightshift must be installed."


def register(client: MlflowClient, ledger: Ledger, certificate: Certificate, trial: Trial, run: Run) -> str:
    """Make a certified trial a version of its environment's model, once; returns which, and where the alias is.

    Args:
        run: The trial's, which gets the model's folder among its artifacts.
    """
    checkpoint = run.data.tags.get("checkpoint", "not uploaded")
    if not checkpoint.startswith("out/"):
        return f"not registered: its checkpoint is {checkpoint}"
    name = f"nightshift.{re.sub(r'[^A-Za-z0-9_.-]', '_', ledger.environment.name)}"  # it may not contain / or :
    known = client.search_model_versions(f"name = '{name}' and run_id = '{run.info.run_id}'")
    version = known[0] if known else _version(client, name, ledger, certificate, trial, run)
    ranked = version.tags.get(RANKED) or _rank(client, name, version, ledger.environment.higher_is_better)
    return f"{name} version {version.version}, {ranked}"


def _version(
    client: MlflowClient, name: str, ledger: Ledger, certificate: Certificate, trial: Trial, run: Run
) -> ModelVersion:
    """Upload the model's folder, and make it a version. A kill in between has it uploaded again."""
    from mlflow.models import Model

    with safe_read.parcel(ledger.place_of(trial).path) as parcel:
        if not (why := loaded.pack(ledger.environment, ledger.place_of(trial), trial, parcel)):
            model = Model(metadata={"environment": ledger.environment.name})
            model.add_flavor("python_function", loader_module=loaded.__name__, python_version=platform.python_version())
            model.save(str(parcel / "MLmodel"))
        client.log_artifacts(run.info.run_id, str(parcel), FOLDER)
    tags = {
        "campaign": ledger.campaign.name,
        "trial": str(certificate.champion),
        FRESH_MEAN: repr(certificate.mean("champion")),
        ENVIRONMENT: environment_digest(ledger),
    }
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name, description="Certified champions of Nightshift, the newest last.")
    about = f"A certified champion, as files: {why}." if why else ABOUT
    told = f"{words(certificate)}; {caution(certificate)}\n\n{about}"
    source = f"{run.info.artifact_uri}/{FOLDER}"
    return client.create_model_version(name, source, run.info.run_id, tags, description=told)


def _rank(client: MlflowClient, name: str, version: ModelVersion, higher_is_better: bool) -> str:
    """Point the alias at a version if it is better than the one there, and note which it was."""
    at, stays = client.get_registered_model(name).aliases.get(ALIAS), ""
    if at and str(at) != str(version.version):
        holder = client.get_model_version(name, at)
        mine, best = float(version.tags[FRESH_MEAN]), float(holder.tags.get(FRESH_MEAN, "nan"))
        if holder.tags.get(ENVIRONMENT) != version.tags[ENVIRONMENT]:
            stays = f" stays at version {at}, of another version of the environment: their scores do not compare"
        elif not (mine > best if higher_is_better else mine < best):
            stays = f" stays at version {at}, with {best:.6g} against {mine:.6g} on fresh runs"
    if not stays:
        client.set_registered_model_alias(name, ALIAS, version.version)
    client.set_model_version_tag(name, version.version, RANKED, f"@{ALIAS}{stays}")
    return f"@{ALIAS}{stays}"
