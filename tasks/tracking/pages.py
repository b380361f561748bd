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
    """Where a campaign's trials are, best first, and the campaigns of its environment, newest first.

    `url` and `nights_url`; without a server `path` and `nights_path`, to be appended to the address of the server that
    `command` starts.
    """
    objective, up = f"metrics.`{metric_key(ledger.environment.metric)}`", not ledger.environment.higher_is_better
    trials = _runs(experiment, f"tags.kind = 'trial' and tags.campaign = '{ledger.campaign.name}'", objective, up)
    nights = _runs(experiment, "tags.kind = 'campaign'", "attributes.start_time", ascending=False)
    pages = {"": trials, "nights_": nights}
    if store.is_served:
        return {f"{which}url": f"{store}/{page}" for which, page in pages.items()}
    # The job runner is eight processes that are not needed.
    command = f"mlflow ui --backend-store-uri {shlex.quote(store.uri)} --port 5000"
    return {"command": f"MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false {command}"} | {
        f"{which}path": f"/{page}" for which, page in pages.items()
    }


def _runs(experiment: str, only: str, order: str, ascending: bool) -> str:
    filters = f"searchFilter={quote(only)}&orderByKey={quote(order)}&orderByAsc={str(ascending).lower()}"
    return f"#/experiments/{experiment}/runs?{filters}&{WORKFLOW}"
