"""A real language model, trained, judged, and asked for proposals: NIGHTSHIFT_MODEL names its folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_for
from tests.support.servers import free_port
from tests.support.toy import nightshift, quadratic, status

MODEL = os.environ.get("NIGHTSHIFT_MODEL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not MODEL, reason="NIGHTSHIFT_MODEL names no folder with a small chat model, such as SmolLM2-135M"
    ),
]
SHORT = (
    *("--set", "budget_steps=1", "--set", "fixed.batch_size=8", "--set", "fixed.max_completion_length=16"),
    *("--set", "text.questions=8", "--set", "text.samples=1", "--set", "text.max_tokens=16"),
    *("--set", f"prepare.settings.model={MODEL}", "--params", '{"group_size": 4}', "--json"),
)


def test_it_trains_a_step_and_is_judged(home: Path, server: str) -> None:
    pytest.importorskip("reasoning_gym", reason="pip install 'nightshift-rl[reasoning]'")
    done = nightshift("try", "reasoning_gym", *SHORT, server=server)
    assert done.returncode == 0, done.stderr
    assert 0 <= json.loads(done.stdout)["score"] <= 1
    [file] = home.rglob("answers.jsonl")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert len(rows) == 8 and all(row["text"] and row["expected"] for row in rows)
    assert all(len(row["sampled"]["completions"]) == len(row["sampled"]["rewards"]) == 1 for row in rows)


@pytest.fixture
def served() -> Iterator[str]:
    """The model behind transformers' own server, which speaks OpenAI's protocol."""
    port, program = str(free_port()), str(Path(sys.executable).with_name("transformers"))
    command = [program, "serve", "--device", "cpu", "--host", "127.0.0.1", "--port", port]
    process = subprocess.Popen(command, env=os.environ | {"HF_HUB_OFFLINE": "1"})

    def is_up() -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5))
        return process.poll() is not None

    try:
        wait_for(is_up)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def test_it_is_asked_for_a_proposal_and_what_it_says_is_counted(
    tmp_path: Path, home: Path, served: str, server: str
) -> None:
    options = {"model": MODEL, "base_url": served, "max_output_tokens": 64, "timeout_seconds": 900}
    done = nightshift(
        *("run", str(quadratic(tmp_path / "quad")), "--name", "night", "--rule", "greedy", "--trials", "1"),
        *("--proposer", "llm", *(f"--set=proposer.{name}={value}" for name, value in options.items())),
        server=server, seconds=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    known = status("night")
    assert known["trials"][1]["proposer"] == "llm" or known["trials"][1]["instead_of"], "no silent fallback"
    assert known["spent"]["calls"] and known["spent"]["tokens"], known["spent"]
