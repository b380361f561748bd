"""Requests to language models as MLflow traces, one per file of tasks/llm/trace.py.

`MlflowClient.start_trace` does not fit: its tracer is global to the process, uses the process's address, exports from
its own thread, and hides errors. So the two requests that it sends are sent here. A trace's id is derived from its
request: sent again, it replaces itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.llm.trace import FOLDER, TRACE, Trace
from tasks.tracking.connection import RecordRejected
from tasks.tracking.trial_run import CampaignRecord, campaign_tags, plain
from tasks.trial import Trial, Usage

if TYPE_CHECKING:
    from mlflow.entities import Span, TraceInfo

KEY = "nightshift.key"
"""The tag that identifies a trace: campaign, trial and file."""
PREVIEW_CHARACTERS = 1000
"""Characters of request and answer in the table of traces."""
NAME_CHARACTERS = 250


def questions(folder: Path) -> list[Path]:
    """The request files in a trial's directory, in order."""
    return sorted((folder / FOLDER).glob("*.json"))


def send(uri: str, experiment: str, run_id: str, campaign: CampaignRecord, trial: Trial, folder: Path) -> None:
    """Make every request of a trial a trace linked to its run; existing ones are updated."""
    from mlflow.tracing.client import TracingClient

    client = TracingClient(uri)
    for path in questions(folder):
        asked, ended = _read(path), path.stat().st_mtime
        name = f"{trial.number:04d}/{path.stem}"
        span = span_of(asked, campaign, name, ended)
        try:
            client.log_spans(experiment, [span])
        except NotImplementedError as unknown:
            raise RecordRejected("this MLflow server takes no traces: from 3.4 on it does") from unknown
        client.start_trace(_info(asked, span, experiment, run_id, campaign, trial, name))


def _read(path: Path) -> Trace:
    try:
        return TRACE.validate_json(path.read_bytes())
    except ValueError as broken:
        reason = str(broken).partition("\n")[0]
        raise RecordRejected(f"{path} is not what was asked of a model: {reason}") from broken


def span_of(asked: Trace, campaign: CampaignRecord, name: str, ended: float) -> Span:
    """A request as the single span of its trace; `ended` is Unix time, in seconds.

    MLflow's page renders the texts as Markdown, in which HTML stays text, so code can be shown as it is.
    """
    from mlflow.entities import Span, SpanType
    from mlflow.tracing.constant import SpanAttributeKey
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    ids = hashlib.sha256(_key(campaign, name).encode()).hexdigest()
    request, usage = asked.request, asked.usage
    values: dict[str, object] = {
        SpanAttributeKey.REQUEST_ID: f"tr-{ids[:32]}",
        SpanAttributeKey.SPAN_TYPE: SpanType.CHAT_MODEL,
        SpanAttributeKey.INPUTS: {
            "messages": [{"role": said.role, "content": without_pictures(said.content)} for said in request.messages],
            "model": request.model,
            "temperature": request.temperature,
            "max_tokens": request.max_output_tokens,
            **({"schema": request.schema} if request.schema else {}),
        },
        SpanAttributeKey.OUTPUTS: _outputs(asked),
        SpanAttributeKey.MODEL: request.model,
        SpanAttributeKey.MESSAGE_FORMAT: "openai",
        "attempts": [asdict(attempt) for attempt in asked.attempts],
        "turned_down_before": request.turn,
    }
    # For a span with tokens and no price MLflow may fetch a price list.
    if usage.usd is not None:
        values[SpanAttributeKey.CHAT_USAGE] = _tokens(usage)
        values[SpanAttributeKey.LLM_COST] = {"total_cost": usage.usd}
    error = without_pictures(plain(asked.error))
    end = int(ended * 1e9)
    return Span(
        ReadableSpan(
            f"{campaign.campaign}-{name}",
            SpanContext(int(ids[:32], 16), int(ids[32:48], 16), is_remote=False, trace_flags=TraceFlags(1)),
            resource=Resource.get_empty(),
            attributes={key: json.dumps(value, ensure_ascii=False) for key, value in values.items()},
            start_time=end - int(asked.seconds * 1e9),
            end_time=end,
            status=Status(StatusCode.ERROR, error) if asked.error else Status(StatusCode.OK),
        )
    )


def without_pictures(text: str) -> str:
    """A text without Markdown images: a page would load them from any address in the text."""
    return re.sub(r"(\\*)!(?=\[)", r"\1\1\!", text)


def _tokens(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": usage.tokens}


def _outputs(asked: Trace) -> dict[str, object]:
    if asked.answer is None:
        return {"error": without_pictures(plain(asked.error))}
    message = {"role": "assistant", "content": without_pictures(asked.answer.text)}
    return {"choices": [{"index": 0, "message": message, "finish_reason": asked.answer.finish}]}


def _info(
    asked: Trace, span: Span, experiment: str, run_id: str, campaign: CampaignRecord, trial: Trial, name: str
) -> TraceInfo:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.constant import TRACE_SCHEMA_VERSION, TRACE_SCHEMA_VERSION_KEY, TraceMetadataKey, TraceTagKey

    question = asked.request.messages[-1].content if asked.request.messages else ""
    answer = asked.answer.text if asked.answer else asked.error
    source = {key: value for key, value in campaign_tags(campaign).items() if key.startswith("mlflow.")}
    return TraceInfo(
        trace_id=span.trace_id,
        trace_location=TraceLocation.from_experiment_id(experiment),
        request_time=span.start_time_ns // 10**6,
        execution_duration=int(asked.seconds * 1000),
        state=TraceState.ERROR if asked.error else TraceState.OK,
        request_preview=without_pictures(plain(question))[:PREVIEW_CHARACTERS],
        response_preview=without_pictures(plain(answer))[:PREVIEW_CHARACTERS],
        trace_metadata={
            **source,
            TRACE_SCHEMA_VERSION_KEY: str(TRACE_SCHEMA_VERSION),
            TraceMetadataKey.SOURCE_RUN: run_id,
            TraceMetadataKey.TOKEN_USAGE: json.dumps(_tokens(asked.usage)),
            # All requests for one trial form one session, shown as one conversation.
            TraceMetadataKey.TRACE_SESSION: f"{campaign.campaign}-{trial.number:04d}",
        },
        tags={
            TraceTagKey.TRACE_NAME: span.name,
            KEY: _key(campaign, name),
            "campaign": campaign.campaign,
            "trial": str(trial.number),
            "proposer": plain(trial.proposal.proposer)[:NAME_CHARACTERS],
            "model": plain(asked.request.model)[:NAME_CHARACTERS],
        },
    )


def _key(campaign: CampaignRecord, name: str) -> str:
    """Requests belong to the trial, not to an attempt, so the key names none."""
    return f"{campaign.campaign_id}/{name}"
