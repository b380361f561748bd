"""What language models were asked and answered, as traces in MLflow: in a real sqlite store, and after whole nights."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tasks.llm import trace
from tasks.llm.request import Message
from tasks.llm.trace import Answer, Attempt, RecordedRequest
from tasks.store.ledger import Ledger
from tasks.tracking.client import CampaignRecord, Mlflow, TrialFiles
from tasks.tracking.connection import RecordRejected, Unreachable
from tasks.tracking.outbox import Outbox
from tasks.tracking.receipts import is_traced, waiting
from tasks.tracking.traces import KEY, questions, span_of
from tasks.trial import History, Trial, Usage
from tests.support.fake_llm import Asked as Request
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.fake_tracker import Shelf, notes, outbox_of, settled
from tests.support.ledgers import created
from tests.support.mlflow_records import client_of, make_files, make_trial, runs_of
from tests.support.toy import GREEDY, nightshift, quadratic, status

if TYPE_CHECKING:
    from mlflow.entities import Trace

PRICED = "openai/gpt-4o-mini"
"""A model whose price everybody knows."""
ENDED = 1_700_000_050.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Iterator[Mlflow]:
    """One sqlite store for the module, while the process is told of another."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, home)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
        patch.chdir(elsewhere.parent)
        yield Mlflow(f"sqlite:///{home / 'mlflow.db'}", home)
        assert not list(elsewhere.parent.iterdir()), "a trace went where this process writes by itself"


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> CampaignRecord:
    identity = f"id-{request.node.name[:40]}"
    return CampaignRecord("night", identity, "cartpole", "return/mean", True, None, 1.7e9, {})


def ask(
    folder: Path, question: str = "What next?", answer: str = "x = 1", error: str = "", model: str = PRICED,
    usd: float | None = 0.002,
) -> None:  # fmt: skip
    """Keep a question and its answer, of 2.5 s, as the trial's next."""
    usage = Usage(1, 1000, 500, usd)
    messages = Message("system", "You are brief."), Message("user", question)
    request = RecordedRequest(model, None, messages, None, 0.3, 700, 0, 11)
    said = None if error else Answer(answer, usage, model, "stop")
    trace.keep(folder, request, (Attempt(2.5, False, usage, error, "gpt-4o-mini-x"),), said, error)
    os.utime(questions(folder)[-1], (ENDED, ENDED))


def traces_of(store: Mlflow, campaign: CampaignRecord, run_id: str | None = None) -> list[Trace]:
    """The campaign's traces with their spans, in the order of their names."""
    client = client_of(store)
    experiment = client.get_experiment_by_name(f"nightshift/{campaign.environment}")
    assert experiment is not None
    found = client.search_traces(
        locations=[experiment.experiment_id], run_id=run_id, filter_string="tags.campaign = 'night'"
    )
    own = [one for one in found if one.info.tags[KEY].startswith(f"{campaign.campaign_id}/")]
    return sorted(own, key=lambda one: one.info.tags[KEY])


def recorded(store: Mlflow, campaign: CampaignRecord, files: TrialFiles) -> str:
    """Log a trial and what was asked for it; its run."""
    run_id = store.log_trial(campaign, make_trial(), files)
    assert store.log_traces(campaign, make_trial(), files) == run_id
    return run_id


def shape(found: list[Trace]) -> list[tuple[str, str, Any, Any]]:
    return [(t.info.trace_id, t.info.state.value, t.data.spans[0].outputs, t.info.token_usage) for t in found]


# In the store


def test_a_question_is_a_trace_of_its_trials_run(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    ask(tmp_path)
    run_id = recorded(store, campaign, files)
    (found,) = traces_of(store, campaign, run_id)
    info, (span,) = found.info, found.data.spans
    assert (info.state.value, info.request_preview, info.response_preview) == ("OK", "What next?", "x = 1")
    assert (info.request_time, info.execution_duration) == (ENDED * 1000 - 2500, 2500)
    assert (span.start_time_ns, span.end_time_ns) == ((ENDED - 2.5) * 10**9, ENDED * 10**9)
    tags = {name: value for name, value in info.tags.items() if not name.startswith("mlflow.")}
    assert tags == {
        KEY: f"{campaign.campaign_id}/0007/01",
        "campaign": "night",
        "trial": "7",
        "proposer": "tpe",
        "model": PRICED,
    }
    assert info.tags["mlflow.traceName"] == "night-0007/01"
    assert info.trace_metadata["mlflow.sourceRun"] == run_id
    assert info.trace_metadata["mlflow.trace.session"] == "night-0007"
    assert info.token_usage == {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
    assert info.cost is not None and info.cost["total_cost"] == 0.002
    assert span.inputs is not None
    assert span.inputs["messages"][-1] == {"role": "user", "content": "What next?"}
    assert (span.inputs["temperature"], span.inputs["max_tokens"]) == (0.3, 700)
    assert span.outputs is not None
    assert span.outputs["choices"][0]["message"] == {"role": "assistant", "content": "x = 1"}
    assert (span.model_name, span.span_type) == (PRICED, "CHAT_MODEL")
    attempts: Any = span.get_attribute("attempts")
    assert [attempt["model"] for attempt in attempts] == ["gpt-4o-mini-x"]


def test_what_was_not_answered_is_an_error_with_its_reason(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path)
    ask(tmp_path, error="outage (500): the machines are down")
    recorded(store, campaign, files)
    (found,) = traces_of(store, campaign)
    assert found.info.state.value == "ERROR"
    assert found.info.response_preview == "outage (500): the machines are down"
    assert found.data.spans[0].status.description == "outage (500): the machines are down"


def test_a_price_that_was_not_known_is_not_looked_up(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    ask(tmp_path, usd=None)
    recorded(store, campaign, files)
    (found,) = traces_of(store, campaign)
    assert not found.info.cost and not found.data.spans[0].llm_cost
    assert found.info.token_usage and found.info.token_usage["total_tokens"] == 1500


def test_sent_again_a_trace_takes_its_own_place(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    ask(tmp_path)
    ask(tmp_path, error="timeout")
    recorded(store, campaign, files)
    before = shape(traces_of(store, campaign))
    again = Mlflow(store.uri, tmp_path)
    recorded(again, campaign, files)
    another_attempt = replace(make_trial(), attempt=2)
    again.log_trial(campaign, another_attempt, files)
    again.log_traces(campaign, another_attempt, files)
    assert shape(traces_of(store, campaign)) == before and len(before) == 2


def test_what_a_kill_left_half_done_is_completed(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    from mlflow.tracing.client import TracingClient

    files = make_files(tmp_path)
    ask(tmp_path)
    store.log_trial(campaign, make_trial(), files)
    experiment = client_of(store).get_experiment_by_name("nightshift/cartpole")
    assert experiment is not None
    asked = trace.TRACE.validate_json(questions(tmp_path)[0].read_bytes())
    TracingClient(store.uri).log_spans(experiment.experiment_id, [span_of(asked, campaign, "0007/01", ENDED)])
    run_id = recorded(store, campaign, files)
    (found,) = traces_of(store, campaign, run_id)
    assert (found.info.state.value, found.info.request_preview) == ("OK", "What next?")
    assert found.info.token_usage == {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}


def test_traces_follow_a_trial_that_was_decided_anew_to_its_new_run(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path)
    ask(tmp_path)
    first = recorded(store, campaign, files)
    anew = make_trial(value=400.0)
    second = store.log_trial(campaign, anew, files)
    store.log_traces(campaign, anew, files)
    assert second != first
    assert len(traces_of(store, campaign)) == len(traces_of(store, campaign, second)) == 1


def test_a_trial_whose_run_is_not_there_gets_no_traces(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    ask(tmp_path)
    recorded(store, campaign, files)
    other = replace(make_trial(), number=8)
    assert store.log_traces(campaign, other, files) == ""
    assert len(traces_of(store, campaign)) == 1 and len(runs_of(store, campaign)) == 1


def test_no_text_makes_a_page_fetch_a_picture(campaign: CampaignRecord, tmp_path: Path) -> None:
    ask(tmp_path, "see ![](http://a.example/q)", "![](http://a.example/a) where a<b")
    asked = trace.TRACE.validate_json(questions(tmp_path)[0].read_bytes())
    span = span_of(asked, campaign, "0007/01", ENDED)
    shown = span.inputs["messages"][-1]["content"] + span.outputs["choices"][0]["message"]["content"]
    assert shown == r"see \![](http://a.example/q)\![](http://a.example/a) where a<b"


def test_a_file_that_is_no_trace_is_rejected_and_those_before_it_go(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path)
    ask(tmp_path)
    (tmp_path / "asked/02.json").write_text('{"digest": 1')
    store.log_trial(campaign, make_trial(), files)
    with pytest.raises(RecordRejected, match=r"asked/02\.json"):
        store.log_traces(campaign, make_trial(), files)
    assert len(traces_of(store, campaign)) == 1


# In the outbox


class Shelves(Shelf):
    """A shelf that takes traces, unless it has trouble with them alone."""

    def __init__(self) -> None:
        super().__init__()
        self.traced: list[int] = []
        self.trouble: dict[int, Unreachable] = {}

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        self._answer()
        assert trial.number in self.sent
        if trial.number in self.trouble:
            raise self.trouble[trial.number]
        self.traced.append(trial.number)
        return f"run-{trial.number}"


def asked_night(ledger: Ledger, shelf: Shelves, outbox: Outbox | None = None, down: bool = False) -> History:
    """Four trials, models asked for 1 and 2, each sent after it was decided."""
    outbox = outbox or outbox_of(ledger, shelf)
    history: History = ()
    for number in range(4):
        if number in (1, 2):
            ask(ledger.place(number).path)
        history += (settled(ledger, history),)
        shelf.down = down
        outbox.add(history[-1])
        outbox.drain()
    return history


def traced_ledger(tmp_path: Path, traces: bool = True) -> Ledger:
    return created(tmp_path, advanced={"traces": traces})


def want_traces(tmp_path: Path, ledger: Ledger) -> None:
    """The campaign is resumed with traces."""
    text = (ledger.path / "spec.toml").read_text()
    (ledger.path / "spec.toml").write_text(text.replace("traces = false", "traces = true"))


def test_only_what_was_asked_is_sent_and_once(tmp_path: Path) -> None:
    ledger, shelf = traced_ledger(tmp_path), Shelves()
    history = asked_night(ledger, shelf)
    outbox_of(ledger, shelf, history).close("finished")
    assert (shelf.sent, shelf.traced, waiting(ledger, history)) == ([0, 1, 2, 3], [1, 2], 0)


def test_without_the_option_nothing_is_sent_and_nothing_waits(tmp_path: Path) -> None:
    ledger, shelf = traced_ledger(tmp_path, traces=False), Shelves()
    history = asked_night(ledger, shelf)
    assert (shelf.traced, waiting(ledger, history)) == ([], 0)
    assert not is_traced(ledger, history[1])


def test_a_campaign_that_began_without_traces_shows_all_of_them_once_it_is_asked_to(tmp_path: Path) -> None:
    ledger, shelf = traced_ledger(tmp_path, traces=False), Shelves()
    history = asked_night(ledger, shelf)
    want_traces(tmp_path, ledger)
    assert waiting(ledger, history) == 2
    outbox_of(ledger, shelf, history).close("finished")
    assert (shelf.sent, shelf.traced, waiting(ledger, history)) == ([0, 1, 2, 3], [1, 2], 0)


def test_an_outage_loses_no_trace(tmp_path: Path) -> None:
    ledger, shelf = traced_ledger(tmp_path), Shelves()
    history = asked_night(ledger, shelf, down=True)
    assert (shelf.traced, waiting(ledger, history)) == ([], 4)
    shelf.down = False
    outbox_of(ledger, shelf, history).drain()
    assert (shelf.traced, waiting(ledger, history)) == ([1, 2], 0)


@pytest.mark.parametrize("problem", [RecordRejected("it takes no traces"), Unreachable("it takes no traces")])
def test_a_server_that_will_have_no_traces_gets_all_the_rest(tmp_path: Path, problem: Unreachable) -> None:
    ledger, shelf = traced_ledger(tmp_path), Shelves()
    shelf.trouble = {1: problem}
    outbox = outbox_of(ledger, shelf)
    history = asked_night(ledger, shelf, outbox)
    outbox.close("finished")
    assert (shelf.sent, shelf.ended) == ([0, 1, 2, 3], ["finished"])
    assert shelf.traced == ([2] if isinstance(problem, RecordRejected) else [])
    assert notes(ledger) == [("it takes no traces", 1)]
    assert waiting(ledger, history) == 2 - len(shelf.traced)


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
    assert "the key is not accepted" in str(found[2].info.response_preview)
    assert status("night")["waiting_to_record"] == 0
    assert not list(home.rglob("mlruns"))
