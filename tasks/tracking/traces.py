"""Requests to language models as MLflow traces, one per file of tasks/llm/chat.py, in a session per trial.

MLflow sends a trace when its span ends, and only logs what goes wrong with that. So `send` looks afterwards.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.llm.chat import FOLDER, TRACE, Trace
from tasks.store.ledger import Ledger
from tasks.tracking.values import plain
from tasks.trial import Trial

if TYPE_CHECKING:
    from mlflow import MlflowClient

KEY = "nightshift.key"
"""The tag that identifies a trace: campaign, trial and file. Requests belong to a trial, not to an attempt."""


def requests(folder: Path) -> list[Path]:
    """The request files in a trial's directory, in order."""
    return sorted((folder / FOLDER).glob("*.json"))


def send(client: MlflowClient, ledger: Ledger, trial: Trial, experiment: str, run_id: str) -> None:
    """Make every request of a trial that MLflow does not have yet a trace of its run.

    Raises:
        RuntimeError: MLflow has not taken every one.
    """
    wanted = {f"{trial.number:04d}/{path.stem}": path for path in requests(ledger.place_of(trial).path)}
    for name in wanted.keys() - (_names(client, ledger, trial, experiment) if wanted else set()):
        _log(TRACE.validate_json(wanted[name].read_bytes()), wanted[name], ledger, trial, name, experiment, run_id)
    if wanted and (left := wanted.keys() - _names(client, ledger, trial, experiment)):
        raise RuntimeError(f"{len(left)} traces were not taken; MLflow takes them from version 3.4 on")


def _names(client: MlflowClient, ledger: Ledger, trial: Trial, experiment: str) -> set[str]:
    """The trial's requests that have a trace."""
    only = f"tags.campaign = '{ledger.campaign.name}' and tags.trial = '{trial.number}'"
    page = client.search_traces(locations=[experiment], filter_string=only, include_spans=False, max_results=500)
    return {one.info.tags.get(KEY, "").removeprefix(f"{ledger.campaign.campaign_id}/") for one in page}


def _log(asked: Trace, path: Path, ledger: Ledger, trial: Trial, name: str, experiment: str, run_id: str) -> None:
    """MLflow's page renders the texts as Markdown, in which HTML stays text, so code can be shown as it is."""
    import mlflow
    from mlflow.entities import SpanType
    from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey

    request, usage, end = asked.request, asked.usage, int(path.stat().st_mtime * 1e9)
    span = mlflow.start_span_no_context(
        f"{ledger.campaign.name}-{name}",
        span_type=SpanType.CHAT_MODEL,
        inputs={
            "messages": [{"role": said.role, "content": without_pictures(said.content)} for said in request.messages],
            "model": request.model,
            "temperature": request.temperature,
            "max_tokens": request.max_output_tokens,
        },
        tags={
            KEY: f"{ledger.campaign.campaign_id}/{name}", "campaign": ledger.campaign.name, "trial": str(trial.number),
            "proposer": plain(trial.proposal.proposer), "model": plain(request.model),
        },
        metadata={
            TraceMetadataKey.SOURCE_RUN: run_id,
            TraceMetadataKey.TRACE_SESSION: f"{ledger.campaign.name}-{trial.number:04d}",
        },
        experiment_id=experiment, start_time_ns=end - int(asked.seconds * 1e9),
    )  # fmt: skip
    attributes: dict[str, Any] = {SpanAttributeKey.MODEL: request.model, "thoughts": without_pictures(asked.thoughts)}
    if usage.usd is not None:  # for a span with tokens and no price MLflow may fetch a price list
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        attributes[SpanAttributeKey.CHAT_USAGE] = {**tokens, "total_tokens": usage.tokens}
        attributes[SpanAttributeKey.LLM_COST] = {"total_cost": usage.usd}
    outputs: dict[str, object] = {"error": without_pictures(plain(asked.fault))}
    if asked.finish:
        message = {"role": "assistant", "content": without_pictures(asked.text)}
        outputs = {"choices": [{"index": 0, "message": message, "finish_reason": asked.finish}]}
    span.end(outputs, json.loads(json.dumps(attributes)), "OK" if asked.finish else "ERROR", end)


def without_pictures(text: str) -> str:
    """A text without Markdown images: a page would load them from any address in the text."""
    return re.sub(r"(\\*)!(?=\[)", r"\1\1\!", text)
