"""Proposing ahead: a language model is asked while the trial before still trains, and only once, whatever is killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path

import pytest

from flows.engine.next_trial import _undecided
from tasks import proposers
from tests.support import processes
from tests.support.fake_llm import Asked, FakeLLM, Reply
from tests.support.fake_tracker import settled
from tests.support.ledgers import created
from tests.support.toy import GREEDY, nightshift, quadratic, slow, start, status

KEY = "sk-of-a-test-0123456789"


def script() -> tuple[itertools.count[int], object]:
    numbers = itertools.count(1)

    def answer(_: Asked) -> Reply:
        idea = {"rationale": "closer", "category": "step", "params": {"x": 2.0 - next(numbers) / 10}}
        return Reply(json.dumps(idea), delay=1.0)

    return numbers, answer


def command(url: str, folder: Path, name: str, trials: int) -> list[str]:
    options = {"base_url": url, "model": "test", "key_variable": "THE_KEY", "max_output_tokens": 1000}
    given = [word for key, value in options.items() for word in ("--set", f"proposer.{key}={value}")]
    more = ["--seed", "3", "--tracking", "off", "--proposer", "llm", "--trials", str(trials)]
    return ["run", str(folder), "--name", name, *more, *GREEDY, *given]


@pytest.mark.slow
def test_no_slot_waits_for_a_language_model_and_no_proposal_is_bought_twice(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder, trials = quadratic(tmp_path / "quad", fit=slow(2.5)), home / "one/trials"
    with FakeLLM(script()[1], key=KEY) as model:
        run = command(model.url, folder, "one", 4)
        with start(*run, server=server, THE_KEY=KEY) as process:
            processes.wait_for((trials / "0003/proposal.json").is_file, 60)
            assert not (trials / "0002/trial.json").exists(), "it was proposed while trial 2 trained"
            os.kill(process.pid, signal.SIGKILL)
        kept = (trials / "0003/proposal.json").read_bytes()
        processes.wait_for(lambda: status("one")["state"] == "interrupted")
        done = nightshift("resume", "one", server=server, THE_KEY=KEY)
        assert done.returncode == 0, done.stderr
        assert (trials / "0003/proposal.json").read_bytes() == kept
        assert len(model.requests) == 4, "one for each trial"
    assert [row["proposer"] for row in status("one")["trials"]] == ["baseline", *["llm"] * 4]
    events = [json.loads(line) for line in (home / "one/events.jsonl").read_text().splitlines()]
    assert {event["number"] for event in events if event["event"] == "ahead"} == {2, 3, 4}
    for number in (2, 3, 4):
        proposal = json.loads((trials / f"{number:04d}/proposal.json").read_text())
        assert proposal["pending"] == [number - 1] and proposal["seen"] == number - 1


def test_a_trial_that_was_decided_while_its_worker_is_not_free_yet_is_not_pending(tmp_path: Path) -> None:
    trial = settled(created(tmp_path), ())
    other = trial.number + 1
    assert _undecided({trial.number: trial.proposal, other: trial.proposal}, (trial,)) == {other: trial.proposal}


def test_only_proposers_that_take_long_propose_ahead() -> None:
    from environments import plugins

    names = plugins.names("tasks.proposers")
    ahead = {name for name in names if plugins.load("tasks.proposers", name, proposers.Proposer).ahead}  # type: ignore[type-abstract]
    assert ahead == {"llm", "llm_diff", "best_of_n", "ensemble", "agent"}
