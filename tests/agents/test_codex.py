"""The program Codex itself, where it is installed, with a scripted model: by our skill, and as a proposer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_model import CodexModel, Steps
from tests.support.toy import FIT, command, nightshift, quadratic, status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("codex") is None, reason="there is no program codex: npm install -g @openai/codex"),
]
EDITS = ["args.x - 1.0", "args.x - 1.7", "args.y", "min(args.x, 1.1)", "args.x - 1.45"]
"""In place of `args.x`, each in the champion's program: the third one cannot run."""


def read(output: str) -> dict[str, Any]:
    """The JSON document in what a command printed."""
    document: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return document


def decided(nightshift: str) -> Steps:
    """Wait as the skill says, until nothing is to be tried."""
    while True:
        output = yield f"sleep 3; {nightshift} status night --json"
        known = read(output) if '"trials"' in output else {"trials": []}  # it has not begun
        if known["trials"] and not known["inbox"] and not known["under_way"]:
            return json.dumps(known)


def researcher() -> Steps:
    """An agent that does what the skill says."""
    skill = yield "cat .agents/skills/nightshift/SKILL.md"
    assert "nightshift propose NAME --diff" in skill, skill
    found = re.search("it is `(.*)`", skill)
    assert found, skill
    nightshift = found[1]  # its shell is one of a login, in which no environment is active
    valid = yield f"{nightshift} env validate ./problem"
    assert "valid" in valid, valid
    yield f"{nightshift} run ./problem --name night --proposer inbox --trials 4 --hours 1 --detach"
    known = json.loads((yield from decided(nightshift)))
    yield f"git clone -q {known['folder']}/lineage.git work"
    for edit in EDITS:
        yield f'git -C work fetch -q && git -C work reset -q --hard origin/champion; sed -i \'s/"x": [^}}]*}}/"x": {edit}}}/\' work/fit.py'
        propose = f"{nightshift} propose night --diff change.diff --rationale 'x as {edit}' --json"
        yield f"git -C work diff > change.diff && {propose}"
        known = json.loads((yield from decided(nightshift)))
    while known["state"] == "running":
        known = read((yield f"sleep 3; {nightshift} status night --json"))
    yield f"{nightshift} report night"
    return str(known["headline"])


def test_an_agent_that_reads_the_skill_drives_a_campaign_of_five_edits(tmp_path: Path, home: Path, server: str) -> None:
    place, user = tmp_path / "project", tmp_path / "user"
    quadratic(place / "problem")
    assert FIT.count('{"x": args.x}') == 1
    with CodexModel(researcher()) as model:
        own = {"HOME": str(user), "CODEX_HOME": str(model.at_home(user / ".codex")), "PREFECT_API_URL": server}
        variables = {**os.environ, **own}
        subprocess.run([*command("skill", "install")], cwd=place, env=variables, check=True)
        done = subprocess.run(
            ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Improve ./problem."],
            cwd=place, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
    assert "nightshift: Improve the score of a training program" in json.dumps(model.requests[0]), (
        "the skill is offered"
    )
    assert (home / "night").is_dir(), (done.stdout, done.stderr)
    known = status("night")
    assert known["state"] == "finished", (known["reason"], done.stdout)
    assert len(known["trials"]) == 5 and {one["proposer"] for one in known["trials"][1:]} == {"inbox"}
    refused = [one["words"] for one in known["incidents"] if "was refused" in one["words"]]
    assert len(refused) == 1 and "no attribute 'y'" in refused[0], "the edit that cannot run"
    assert known["headline"] in done.stdout and known["champion"]["trial"] > 0
    assert (home / "night/report.html").is_file()


def proposer() -> Steps:
    task = yield "cat TASK.md"
    assert "proposal.json" in task, task
    yield 'sed -i \'s/{"x": args.x}/{"x": args.x - 1}/\' fit.py'
    yield """sed -i 's/"rationale": ""/"rationale": "One less is better."/; s/: null/: -1/' proposal.json"""
    return "I subtracted one."


def test_it_proposes_as_the_agent_of_a_campaign(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad")
    with CodexModel(proposer()) as model:
        done = nightshift(
            *("run", str(folder), "--name", "night", "--rule", "greedy", "--trials", "1"),
            *("--proposer", "agent", "--set", "proposer.command=codex"),
            server=server, CODEX_HOME=str(model.at_home(tmp_path / "codex")),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trial = status("night")["trials"][1]
    assert (trial["proposer"], trial["model"], trial["verdict"]) == ("agent", "codex", "keep"), trial
