"""A campaign that is killed after a model has answered: the answer was paid for, and is not bought again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.fake_llm import Asked, FakeLLM
from tests.support.processes import wait_for
from tests.support.toy import FIT, GREEDY, nightshift, quadratic, start, status

SAVE = '(args.out / "model.json").write_text(json.dumps({"x": args.x}))'
EDIT = f"""{{"rationale": "stop near the optimum", "category": "clipping"}}

fit.py
<<<<<<< SEARCH
{SAVE}
=======
{SAVE.replace("args.x", "min(args.x, 1.1)")}
>>>>>>> REPLACE
"""


@pytest.mark.slow
def test_an_answer_before_a_kill_is_not_bought_again(tmp_path: Path, home: Path, server: str) -> None:
    assert SAVE in FIT

    def script(_: Asked) -> str:
        return EDIT

    folder = quadratic(tmp_path / "quad")
    with FakeLLM(script) as model:
        options = [f"base_url={model.url}", "model=test", "max_output_tokens=1000"]
        given = [word for option in options for word in ("--set", f"proposer.{option}")]
        night = ("run", str(folder), "--name", "night", "--proposer", "llm_diff", "--trials", "1", *GREEDY, *given)
        with start(*night, server=server) as process:
            asked = home / "night/trials/0001/asked/01.json"
            wait_for(asked.is_file)  # the edited program is being run for a moment, before it becomes a proposal
            assert not (home / "night/trials/0001/proposal.json").exists()
            os.kill(process.pid, signal.SIGKILL)
        done = nightshift("resume", "night", server=server)
        assert done.returncode == 0, done.stderr

    assert len(model.requests) == 1
    (row,) = [one for one in status("night")["trials"] if one["trial"] == 1]
    assert (row["proposer"], row["model"]) == ("llm_diff", "openai/test")
    assert status("night")["spent"]["calls"] == 1
