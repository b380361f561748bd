"""What there is to say of a campaign, as one JSON document: everything read from its directory, nothing kept."""

from __future__ import annotations

import tomllib
from typing import Any

from tasks import life
from tasks.ledger import Ledger
from tasks.outbox import is_tracked
from tasks.trial import History, Trial, baseline, best


def document(ledger: Ledger) -> dict[str, Any]:
    """The campaign's status; the shape is documented in docs/command-line.md."""
    campaign, history = ledger.campaign, ledger.history()
    return {
        "campaign": campaign.name,
        "campaign_id": campaign.campaign_id,
        "environment": campaign.environment,
        "metric": ledger.environment.metric,
        "direction": ledger.environment.direction,
        "state": state(ledger),
        "reason": ended(ledger).get("reason"),
        "spec": stored_spec(ledger),
        "seed": campaign.seed,
        "isolation": campaign.isolation,
        "baseline": _scored(baseline(history)),
        "champion": _champion(best(history)),
        "shipped": None,
        "certificate": None,
        "trials": [_row(trial) for trial in history],
        "spent": {
            "seconds": round(life.spent(ledger), 1),
            "trials": len([trial for trial in history if trial.number > 0]),
            "usd": _cost(history),
        },
        "waiting_to_record": len([trial for trial in history if not is_tracked(ledger, trial)]),
        "urls": urls(ledger),
    }


def state(ledger: Ledger) -> str:
    """running, finished, failed, stopped, or interrupted (its last life ended without a word)."""
    return "running" if life.is_running(ledger) else str(ended(ledger).get("state", "interrupted"))


def ended(ledger: Ledger) -> dict[str, Any]:
    """How the last life ended; empty when it still runs or was cut off."""
    last: dict[str, Any] = {}
    for event in ledger.events():
        if event["event"] == "life":
            last = {}
        elif event["event"] == "end":
            last = event
    return last


def urls(ledger: Ledger) -> dict[str, str]:
    """Where the campaign's trials are shown: by MLflow, and its last life by Prefect."""
    found: dict[str, str] = {}
    for event in ledger.events():
        if event["event"] == "life" and event.get("page"):
            found["prefect"] = event["page"]
        elif event["event"] == "tracked":
            found |= {f"mlflow_{key}": value for key, value in event["urls"].items()}
    return found


def stored_spec(ledger: Ledger) -> dict[str, Any]:
    """The specification of the campaign's last life."""
    return tomllib.loads((ledger.path / "spec.toml").read_text())


def summary(ledger: Ledger) -> dict[str, Any]:
    """A campaign in a line."""
    history = ledger.history()
    return {
        "campaign": ledger.campaign.name,
        "environment": ledger.campaign.environment,
        "state": state(ledger),
        "trials": len([trial for trial in history if trial.number > 0]),
        "baseline": _scored(baseline(history)),
        "champion": _champion(best(history)),
        "created": ledger.campaign.created,
    }


def _scored(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {"trial": trial.number, "score": trial.score.value, "se": trial.score.se, "n": trial.score.n}


def _champion(trial: Trial | None) -> dict[str, Any] | None:
    return None if trial is None else {**(_scored(trial) or {}), "params": trial.proposal.params}


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "attempt": trial.attempt,
        "verdict": trial.verdict.kind,
        "level": trial.verdict.level,
        "score": trial.score.value,
        "se": trial.score.se,
        "n": trial.score.n,
        "seconds": trial.runs[-1].seconds,
        "params": trial.proposal.params,
        "description": trial.proposal.rationale,
        "reason": trial.verdict.reason,
        "proposer": trial.proposal.proposer,
    }


def _cost(history: History) -> float | None:
    """What the proposals cost in USD; None when nothing is known to have been bought."""
    costs = [trial.proposal.cost for trial in history if trial.proposal.cost is not None]
    return sum(costs) if costs else None
