"""Links to MLflow's pages. Each states the workflow, or the page opens in its mode for language models."""

from __future__ import annotations

import shlex
from urllib.parse import quote

from tasks.store.ledger import Ledger
from tasks.tracking.connection import Store
from tasks.tracking.values import metric_key

WORKFLOW = "workflowType=machine_learning"


def experiments_page(server: str) -> str:
    """The address of a server's list of experiments."""
    return f"{server}/#/experiments?{WORKFLOW}"


def links(ledger: Ledger, store: Store, experiment: str) -> dict[str, str]:
    """The `url` of a campaign's trials, best first.

    Without a server `path`, to be appended to the address of the server that `command` starts.
    """
    only = quote(f"tags.kind = 'trial' and tags.campaign = '{ledger.campaign.name}'")
    objective = quote(f"metrics.`{metric_key(ledger.environment.metric)}`")
    order = f"orderByKey={objective}&orderByAsc={str(not ledger.environment.higher_is_better).lower()}"
    page = f"#/experiments/{experiment}/runs?searchFilter={only}&{order}&{WORKFLOW}"
    if store.is_served:
        return {"url": f"{store}/{page}"}
    # The job runner is eight processes that are not needed.
    command = f"mlflow ui --backend-store-uri {shlex.quote(store.uri)} --port 5000"
    return {"command": f"MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false {command}", "path": f"/{page}"}
