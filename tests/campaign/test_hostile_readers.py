"""Nights on which a language model proposes nothing but what no reader comes to the end of. They end as asked."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.system import orphans
from tests.support.fake_llm import Asked, FakeLLM
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, start, status

GRAPH = ["class A0: pass", "class B0: pass"]
GRAPH += [f"class {name}{i}(A{i - 1}, B{i - 1}): pass" for i in range(1, 45) for name in "AB"]
TEXTS = {
    "more than 3 s of processor time": f"y = f'{'{x}' * 80_000}'",
    "never calls parse_args()": "\n".join([*GRAPH, "A44().parse()"]),
    "nested too deeply": f"y = {'-' * 9000}1",
    "is not Python": f"y = {'9' * 100_000}",
}
"""What is proposed in place of the whole program, in turns, with a word of the reason why it is refused."""
KEY = "sk-of-a-test-0123456789"
END_SECONDS = 30
"""From the wish to the end of the process, on a busy machine; a single reading may take 3 s of processor time."""


@contextmanager
def night(
    tmp_path: Path, server: str, *options: str, asked_before: int = 3
) -> Iterator[tuple[FakeLLM, subprocess.Popen[str]]]:
    """A campaign whose model answers with the texts for ever, once it has asked so often."""
    texts = itertools.cycle(TEXTS.values())

    def script(asked: Asked) -> str:
        return f"RATIONALE: trust me\nCATEGORY: art\n\nfit.py\n```python\n{next(texts)}\n```\n"

    toml = QUADRATIC.replace("deterministic = true", 'deterministic = true\nrequired_calls = ["parse_args"]')
    folder = quadratic(tmp_path / "quad", toml=toml.replace("budget_seconds = 5", "budget_seconds = 1"))
    with FakeLLM(script, key=KEY) as model:
        account = [f"base_url={model.url}", "model=test", "key_variable=THE_KEY", "form=whole_file"]
        given = [word for option in account for word in ("--set", f"proposer.{option}")]
        command = ["run", str(folder), "--name", "odd", "--proposer", "llm_diff", "--tracking", "off", *GREEDY, *given]
        with start(*command, *options, server=server, THE_KEY=KEY) as process:
            try:
                wait_for_requests(model, process, asked_before)
                yield model, process
            finally:
                process.kill()


def wait_for_requests(model: FakeLLM, process: subprocess.Popen[str], count: int) -> None:
    """Until the last of so many texts is about to be read, and those before it were refused."""
    deadline = time.monotonic() + 90
    while len(model.requests) < count:
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < deadline, "the model is not asked"
        time.sleep(0.05)


def ended(process: subprocess.Popen[str], seconds: float = END_SECONDS) -> int:
    """Its exit status, once it has ended in time with everything that it started."""
    process.communicate(timeout=seconds)
    assert orphans.marked(status("odd")["campaign_id"]) == []
    return process.returncode


def refusals() -> list[str]:
    """Why proposals were turned down."""
    return [one["words"] for one in status("odd")["incidents"] if one["kind"] == "turned down"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--now",)], ids=["stop", "stop --now"])
def test_a_campaign_whose_proposals_cannot_be_read_stops(
    tmp_path: Path, home: Path, server: str, how: tuple[str, ...]
) -> None:
    with night(tmp_path, server, "--trials", "50") as (_, process):
        done = nightshift("stop", "odd", *how)
        assert done.returncode == 0, done.stderr
        ended(process)
    assert status("odd")["state"] in ("stopped", "interrupted")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_that_was_killed_while_it_read_resumes_and_tells_why_each_proposal_was_refused(
    tmp_path: Path, home: Path, server: str
) -> None:
    with night(tmp_path, server, "--trials", "2") as (_, process):
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=END_SECONDS)
        stored = {path: path.read_text() for path in (home / "odd/trials").glob("*/trial.json")}
        done = nightshift("resume", "odd", "--json", server=server, THE_KEY=KEY)
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["state"] == "finished" and len(document["trials"]) == 3
    assert {path: path.read_text() for path in stored} == stored
    told = "\n".join(refusals())
    for why in TEXTS:
        assert why in told, (why, told)
    assert all(trial["verdict"] != "crash" for trial in document["trials"]), "the fallback's, of numbers"
