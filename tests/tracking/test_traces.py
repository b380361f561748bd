"""What language models were asked and answered, as traces in MLflow: in a real sqlite store, and after whole nights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.llm import chat
from tasks.llm.chat import Message, RecordedRequest
from tasks.store.ledger import Ledger
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync, waiting
from tasks.tracking.traces import KEY, requests
from tasks.trial import Usage
from tests.support.ledgers import created
from tests.support.mlflow_records import client_of, make_trial, put

if TYPE_CHECKING:
    from mlflow.entities import Trace

PRICED = "openai/gpt-4o-mini"
"""A model whose price everybody knows."""
ENDED = 1_700_000_050.0
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # of MLflow's own types


@pytest.fixture
def store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A database, while the process is told of another."""
    elsewhere = tmp_path / "elsewhere" / "other.db"
    elsewhere.parent.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    monkeypatch.chdir(elsewhere.parent)
    yield store
    assert not list(elsewhere.parent.iterdir()), "a trace went where this process writes by itself"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{elsewhere}"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path, advanced={"traces": True})


def ask(folder: Path, question: str = "What next?", answer: str = "x = 1", error: str = "") -> None:
    """Keep a question and its answer, of 2.5 s, as the trial's next."""
    usage = Usage(1, 1000, 500, 0.002)
    messages = Message("system", "You are brief."), Message("user", question)
    request = RecordedRequest(PRICED, None, messages, 0.3, 700, 11)
    chat.keep(folder, chat.Trace(request, answer, usage, "" if error else "stop", error, seconds=2.5))
    os.utime(requests(folder)[-1], (ENDED, ENDED))


def traces_of(store: Store, run_id: str | None = None) -> list[Trace]:
    """The traces with their spans, in the order of their names."""
    client = client_of(store)
    experiment = client.get_experiment_by_name("nightshift/quad")
    assert experiment is not None
    found = client.search_traces(locations=[experiment.experiment_id], run_id=run_id)
    return sorted(found, key=lambda one: one.info.tags[KEY])


def recorded(store: Store, ledger: Ledger) -> str:
    """Record the campaign; the run of its newest trial."""
    done = sync(ledger, store, "finished")
    assert done.problem == "" and waiting(ledger, ledger.history()) == 0
    return done.runs[max(done.runs)]


def test_a_question_is_a_trace_of_its_trials_run(store: Store, ledger: Ledger) -> None:
    place = ledger.place_of(put(ledger, make_trial()))
    ask(place.path, "What next? ![](http://a.example/q)", "x = 1 ![](http://a.example/a) where a<b")
    (found,) = traces_of(store, recorded(store, ledger))
    info, (span,) = found.info, found.data.spans
    assert info.state.value == "OK"
    assert (info.request_time, info.execution_duration) == (ENDED * 1000 - 2500, 2500)
    tags = {name: value for name, value in info.tags.items() if not name.startswith("mlflow.")}
    assert tags == {
        KEY: f"{ledger.campaign.campaign_id}/0007/01",
        "campaign": "n",
        "trial": "7",
        "proposer": "tpe",
        "model": PRICED,
    }
    assert (info.tags["mlflow.traceName"], info.trace_metadata["mlflow.trace.session"]) == ("n-0007/01", "n-0007")
    assert info.token_usage == {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
    assert info.cost is not None and info.cost["total_cost"] == 0.002
    assert span.inputs is not None and span.outputs is not None
    asked, answered = span.inputs["messages"][-1], span.outputs["choices"][0]["message"]
    assert asked == {"role": "user", "content": r"What next? \![](http://a.example/q)"}, "no page fetches a picture"
    assert answered == {"role": "assistant", "content": r"x = 1 \![](http://a.example/a) where a<b"}
    assert span.span_type == "CHAT_MODEL"


def test_each_request_is_a_trace_once_whoever_asks_again(store: Store, ledger: Ledger) -> None:
    first = put(ledger, make_trial())
    ask(ledger.place_of(first).path)
    recorded(store, ledger)
    ask(ledger.place_of(first).path, error="timeout")
    put(ledger, make_trial(8))
    recorded(store, ledger)
    recorded(store, ledger)
    assert [one.info.tags[KEY][-7:] for one in traces_of(store)] == ["0007/01", "0007/02"]
