"""What language models were asked and answered, as traces in MLflow: in a real sqlite store, and after whole nights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.llm import trace
from tasks.llm.trace import Answer, Message, RecordedRequest
from tasks.store.ledger import Ledger
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync, waiting
from tasks.tracking.traces import KEY, requests
from tasks.trial import Usage
from tests.support.fake_llm import Asked as Request
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.ledgers import created
from tests.support.mlflow_records import client_of, make_trial, put, store_in
from tests.support.toy import GREEDY, nightshift, quadratic, status

if TYPE_CHECKING:
    from mlflow.entities import Trace

PRICED = "openai/gpt-4o-mini"
"""A model whose price everybody knows."""
ENDED = 1_700_000_050.0
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # of MLflow's own types


@pytest.fixture
def store(home: Path, empty_mlflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A database, while the process is told of another."""
    elsewhere = tmp_path / "elsewhere" / "other.db"
    elsewhere.parent.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    monkeypatch.chdir(elsewhere.parent)
    yield store_in(home, empty_mlflow)
    assert not list(elsewhere.parent.iterdir()), "a trace went where this process writes by itself"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{elsewhere}"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path, advanced={"traces": True})


def ask(
    folder: Path, question: str = "What next?", answer: str = "x = 1", error: str = "", model: str = PRICED,
    usd: float | None = 0.002,
) -> None:  # fmt: skip
    """Keep a question and its answer, of 2.5 s, as the trial's next."""
    usage = Usage(1, 1000, 500, usd)
    messages = Message("system", "You are brief."), Message("user", question)
    request = RecordedRequest(model, None, messages, None, 0.3, 700, 0, 11)
    said = None if error else Answer(answer, usage, model, "stop")
    trace.keep(folder, request, said, error, usage, 2.5)
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
    ask(ledger.place_of(put(ledger, make_trial())).path)
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
    assert span.inputs["messages"][-1] == {"role": "user", "content": "What next?"}
    assert span.outputs["choices"][0]["message"] == {"role": "assistant", "content": "x = 1"}
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


def test_no_text_makes_a_page_fetch_a_picture(store: Store, ledger: Ledger) -> None:
    place = ledger.place_of(put(ledger, make_trial()))
    ask(place.path, "see ![](http://a.example/q)", "![](http://a.example/a) where a<b")
    recorded(store, ledger)
    (span,) = traces_of(store)[0].data.spans
    assert span.inputs is not None and span.outputs is not None
    shown = span.inputs["messages"][-1]["content"] + span.outputs["choices"][0]["message"]["content"]
    assert shown == r"see \![](http://a.example/q)\![](http://a.example/a) where a<b"


# A whole night


def campaigns_traces(home: Path) -> list[Trace]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name.startswith("nightshift/")]
    every = client.search_traces(locations=[experiment.experiment_id])
    for one in every:
        run = client.get_run(one.info.trace_metadata["mlflow.sourceRun"])
        assert run.data.tags["trial"] == one.info.tags["trial"]
    return sorted(every, key=lambda one: one.info.tags[KEY])


@pytest.mark.slow
def test_a_night_with_a_model_is_traced_from_the_resumption_that_asks_for_it(
    tmp_path: Path, home: Path, server: str
) -> None:
    answers: Iterator[str | float | Reply] = iter(["no JSON at all", 1.9, Reply("wrong key", status=401), 1.4])

    def script(request: Request) -> str | Reply:
        said = next(answers)
        if not isinstance(said, float):
            return said
        return json.dumps({"rationale": "closer", "category": "step", "params": {"x": said}})

    folder = quadratic(tmp_path / "quad")
    with FakeLLM(script) as model:
        account = [f"base_url={model.url}", "model=test", "max_output_tokens=500"]
        price = ["usd_per_million_input=1", "usd_per_million_output=2"]
        options = [word for option in (*account, *price) for word in ("--set", f"proposer.{option}")]
        night = ("run", str(folder), "--name", "night", "--proposer", "llm", *GREEDY, *options)
        done = nightshift(*night, "--trials", "1", server=server)
        assert done.returncode == 0, done.stderr
        assert campaigns_traces(home) == []
        done = nightshift("resume", "night", "--traces", "--trials", "3", server=server)
        assert done.returncode == 0, done.stderr
    found = campaigns_traces(home)
    kept = sorted((home / "night/trials").glob("*/asked/*.json"))
    assert [one.info.tags["mlflow.traceName"] for one in found] == [
        f"night-{path.parts[-3]}/{path.stem}" for path in kept
    ]
    assert [one.info.state.value for one in found] == ["OK", "OK", "ERROR", "OK"]
    assert found[0].info.cost is not None and found[0].info.cost["total_cost"] == pytest.approx(0.00014)
    assert "AuthenticationError (401): wrong key" in str(found[2].info.response_preview)
    assert status("night")["waiting_to_record"] == 0
    assert not list(home.rglob("mlruns"))
