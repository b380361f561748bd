"""The proposer `inbox`: a campaign that tries what is put in, and waits in between."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.processes import wait_for
from tests.support.toy import GREEDY, quadratic, start, status, told


def test_a_campaign_waits_for_proposals_and_tries_nothing_else(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad")
    options = ("--name", "night", "--proposer", "inbox", "--trials", "2", *GREEDY)
    with start("run", str(folder), *options, server=server) as process:
        for number, x in enumerate((1.5, 1.0), 1):
            wait_for((home / f"night/trials/{number - 1:04d}/trial.json").is_file)
            told("propose", "night", "--params", json.dumps({"x": x}), "--rationale", "nearer")
        assert process.wait() == 0
    known = status("night")
    assert [(one["proposer"], one["params"]["x"]) for one in known["trials"]] == [
        ("baseline", 2.5),
        ("inbox", 1.5),
        ("inbox", 1.0),
    ]
