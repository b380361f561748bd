"""The programs Codex and Claude Code themselves, where they are installed, with a scripted model: by our skill, and as proposers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.toy import FIT, command, nightshift, quadratic, status
from tests.support.web import Handler, serving

# A scripted model, as each of the two programs asks one.

Steps = Generator[Any, str, str]


class ScriptedModel(Handler):
    """`steps` yields what the model asks for, is sent what came of it, and returns its last message."""

    steps: Steps
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        asked = json.loads(self.body())
        events = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in self.events(asked)]
        self.answer(200, "".join(events).encode(), Content_Type="text/event-stream")

    def events(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Those of the answer to one request."""
        raise NotImplementedError

    def step(self, asked: dict[str, Any], outputs: list[str]) -> tuple[Any, str]:
        """What is asked for next, after what came of everything before, or else the last words."""
        self.requests.append(asked)
        try:
            return self.steps.send(outputs[-1]) if outputs else next(self.steps), ""
        except StopIteration as over:
            return None, str(over.value)
        except (ValueError, KeyError, AssertionError) as over:  # an output that it did not expect
            return None, f"I give up: {over!r}"


class ClaudeModel(ScriptedModel):
    def events(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        wanted, said = None, "none"
        if asked.get("tools"):  # else it asks for a title of the conversation, and the like
            last = asked["messages"][-1]["content"]
            results = [one for one in last if isinstance(one, dict) and one.get("type") == "tool_result"]
            wanted, said = self.step(asked, [json.dumps(one["content"]) for one in results])
        block, reason, delta = {"type": "text", "text": ""}, "end_turn", {"type": "text_delta", "text": said}
        if wanted is not None:
            block = {"type": "tool_use", "id": f"t{len(self.requests)}", "name": wanted[0], "input": {}}
            reason, delta = "tool_use", {"type": "input_json_delta", "partial_json": json.dumps(wanted[1])}
        usage = {"input_tokens": 1000, "output_tokens": 500}
        begun = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "scripted", "usage": usage}
        return [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
            {"type": "message_stop"},
        ]


class CodexModel(ScriptedModel):
    def events(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        outputs = [str(one["output"]) for one in asked["input"] if one["type"] == "function_call_output"]
        wanted, said = self.step(asked, outputs)
        arguments = json.dumps({"cmd": wanted, "yield_time_ms": 30_000, "max_output_tokens": 20_000})
        call = {"type": "function_call", "name": "exec_command", "arguments": arguments}
        call["call_id"] = f"c{len(self.requests)}"
        words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "item": words if wanted is None else call},
            {"type": "response.completed", "response": {"id": "r", "usage": usage}},
        ]


def at_home(url: str, home: Path) -> str:
    """A home of Codex's whose settings name a scripted model, with nothing else in it."""
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "here"\n[model_providers.here]\nname = "here"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n'
    )
    return str(home)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

needs_codex = pytest.mark.skipif(
    shutil.which("codex") is None, reason="there is no program codex: npm install -g @openai/codex"
)
EDITS = ["args.y", "args.x - 1.0"]
"""In place of `args.x`, each in the champion's program: the first one cannot run."""


def waiting(nightshift: str, until: Callable[[dict[str, Any]], object]) -> Generator[str, str, dict[str, Any]]:
    """The status once it is so, asked for as the skill says."""
    while True:
        output = yield f"sleep 3; {nightshift} status night --json"
        known = json.loads(output[output.index("{") : output.rindex("}") + 1]) if '"trials"' in output else {}
        if known and until(known):  # else it has not begun
            return known


def is_idle(known: dict[str, Any]) -> bool:
    return bool(known["trials"]) and not known["inbox"] and not known["under_way"]


def researcher() -> Steps:
    """An agent that does what the skill says."""
    skill = yield "cat .agents/skills/nightshift/SKILL.md"
    found = re.search("it is `(.*)`", skill)
    assert found and "nightshift propose NAME --diff" in skill, skill
    nightshift = found[1]  # its shell is one of a login, in which no environment is active
    valid = yield f"{nightshift} env validate ./problem"
    assert "valid" in valid, valid
    yield f"{nightshift} run ./problem --name night --proposer inbox --trials 1 --hours 1 --detach"
    known = yield from waiting(nightshift, is_idle)
    yield f"git clone -q {known['folder']}/lineage.git work"
    for edit in EDITS:
        yield f'git -C work fetch -q && git -C work reset -q --hard origin/champion; sed -i \'s/"x": [^}}]*}}/"x": {edit}}}/\' work/fit.py'
        propose = f"{nightshift} propose night --diff change.diff --rationale 'x as {edit}' --json"
        yield f"git -C work diff > change.diff && {propose}"
        yield from waiting(nightshift, is_idle)
    known = yield from waiting(nightshift, lambda known: known["state"] != "running")
    yield f"{nightshift} report night"
    return str(known["headline"])


@needs_codex
def test_an_agent_that_reads_the_skill_drives_a_campaign(tmp_path: Path, home: Path, server: str) -> None:
    place, user, requests = tmp_path / "project", tmp_path / "user", list[dict[str, Any]]()
    quadratic(place / "problem")
    assert FIT.count('{"x": args.x}') == 1
    with serving(CodexModel, steps=researcher(), requests=requests) as url:
        own = {"HOME": str(user), "CODEX_HOME": at_home(url, user / ".codex"), "PREFECT_API_URL": server}
        variables = {**os.environ, **own}
        subprocess.run([*command("skill", "install")], cwd=place, env=variables, check=True)
        done = subprocess.run(
            ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Improve ./problem."],
            cwd=place, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
    assert "nightshift: Improve the score of a training program" in json.dumps(requests[0]), "the skill is offered"
    assert (home / "night").is_dir(), (done.stdout, done.stderr)
    known = status("night")
    assert known["state"] == "finished", (known["reason"], done.stdout)
    assert [one["proposer"] for one in known["trials"][1:]] == ["inbox"]
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


@needs_codex
def test_it_proposes_as_the_agent_of_a_campaign(tmp_path: Path, home: Path, server: str) -> None:
    with serving(CodexModel, steps=proposer(), requests=[]) as url:
        night(tmp_path, server, "codex", CODEX_HOME=at_home(url, tmp_path / "codex"))


def night(tmp_path: Path, server: str, name: str, **variables: str) -> dict[str, Any]:
    """The trial that an agent proposes, which is kept."""
    options = ("--name", "night", "--rule", "greedy", "--trials", "1", "--proposer", "agent")
    folder = quadratic(tmp_path / "quad")
    done = nightshift("run", str(folder), *options, "--set", f"proposer.command={name}", server=server, **variables)
    assert done.returncode == 0, done.stderr
    trial: dict[str, Any] = status("night")["trials"][1]
    assert (trial["proposer"], trial["model"], trial["verdict"]) == ("agent", name, "keep"), trial
    return trial


def editor(seen: list[str]) -> Steps:
    task = yield "Read", {"file_path": "TASK.md"}
    assert "proposal.json" in task, task
    program = yield "Read", {"file_path": "fit.py"}
    assert "args.x" in program, program
    seen.append((yield "Bash", {"command": "touch escaped", "description": "run a command"}))
    change = {"file_path": "fit.py", "old_string": '{"x": args.x}', "new_string": '{"x": args.x - 1}'}
    yield "Edit", change
    yield "Read", {"file_path": "proposal.json"}
    why = {"old_string": '"rationale": ""', "new_string": '"rationale": "One less is better."'}
    yield "Edit", {"file_path": "proposal.json", **why}
    return "I subtracted one."


@pytest.mark.skipif(
    shutil.which("claude") is None, reason="there is no program claude: npm install -g @anthropic-ai/claude-code"
)
def test_it_edits_and_says_why_and_what_it_costs_and_runs_no_command(tmp_path: Path, home: Path, server: str) -> None:
    seen = list[str]()
    with serving(ClaudeModel, steps=editor(seen), requests=[]) as url:
        own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "scripted-key-0000"}
        trial = night(tmp_path, server, "claude", CLAUDE_CONFIG_DIR=str(tmp_path / "claude"), **own)
    assert "One less is better." in json.dumps(trial)
    assert trial["usd"] and trial["usd"] > 0, "Claude Code states a price itself"
    assert seen and not list(tmp_path.rglob("escaped")), seen
    assert (tmp_path / "claude").is_dir(), "its own files are where its variable says"
