"""A coding agent at work: its folder before, its run, the result that is read from the folder, the known agents.

It may change the champion's files and proposal.json, and reads TASK.md; all else is its scratch. It runs without a
sandbox, since it needs the network and its own login, but below a supervisor (tasks/sandbox/supervisor.py): it cannot
outlive its engine, and at its end all of its processes are killed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.limits import Limits
from tasks.editing import patches
from tasks.editing.patches import text_of
from tasks.proposing.brief import Brief
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.program import NotAProgram, Program, Stopped
from tasks.sandbox.reader import EditFailed
from tasks.system.clock import clock
from tasks.system.orphans import MARKER
from tasks.system.redact import known_secrets, scrub_text, secrets_in
from tasks.trial import Usage

EVERYBODYS = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""Variables that every agent is handed, as far as they are set: how to find programs, its own login and the network."""
PROMPT, MODEL = "{prompt}", "{model}"
"""Placeholders in a user's command; each must be a whole argument."""
TASK, PROPOSAL = "TASK.md", "proposal.json"
LIMITS = Limits(scratch_gb=4, output_mb=16)
VIEW = VisiblePaths((), (), network=True, gpu=True)
"""`gpu`: like the drivers of one, the engines of these agents reserve far more address space than they use."""
KEPT = 4 * 2**20
"""Bytes of the end of its standard output that are kept: its last words."""
LOOK_SECONDS = 0.05


def lay_out(folder: Path, brief: Brief, task: str) -> dict[str, str]:
    """Write everything into an empty folder; the texts of the files, by name. EditFailed: one has a name of ours."""
    if taken := {TASK, PROPOSAL} & {*brief.files, *brief.problem.editable}:
        raise EditFailed(f"the environment's file {min(taken)!r} has no place beside ours: rename it")
    empty = {"rationale": "", "category": "", "expected": None, "params": brief.start}
    handed = {**brief.files, TASK: task, PROPOSAL: json.dumps(empty, indent=1) + "\n"}
    patches.lay_out(folder, handed)
    (folder / TASK).chmod(0o444)
    return handed


def read_back(folder: Path, handed: Mapping[str, str], editable: Sequence[str]) -> tuple[dict[str, str], str]:
    """The result of an agent whose processes have all ended; EditFailed where it changed what it may not.

    Returns:
        The whole texts of the editable files that it changed, and its proposal.json: parameters, reason, kind and
        prediction, in the form in which a language model gives them.
    """
    left = {name: text_of(folder, name) for name in (TASK, PROPOSAL, *editable)}
    changed = {name: text for name, text in left.items() if text is not None and text != handed.get(name)}
    if left[TASK] != handed[TASK]:
        raise EditFailed(f"it changed {TASK!r}, which is not editable; editable: {', '.join((*editable, PROPOSAL))}")
    for name, text in changed.items():
        had = handed.get(name, "").encode()
        written = {which for form, which in secrets_in(text.encode(), known_secrets()).items() if form not in had}
        if written:
            words = ", ".join(sorted(written))
            raise EditFailed(f"it wrote the value of {words} into {name!r}: no secret belongs in a file")
    if gone := [name for name in editable if left[name] is None and name in handed]:
        raise EditFailed(f"it removed {gone[0]!r}: the program's files may change, but must stay")
    return {name: text for name, text in changed.items() if name != PROPOSAL}, left[PROPOSAL] or ""


def run(argv: Sequence[str], *, cwd: Path, log: Path, variables: Mapping[str, str], seconds: float) -> tuple[str, str]:
    """Run an agent to its end, or for so many seconds. When this returns, nothing of it is left.

    Args:
        argv: The path of its program first.
        log: What it prints goes there, capped and without secrets; its temporary files go beside it.

    Returns:
        The reason of a failure, empty when it ended with status 0, and the end of its standard output, without secrets.

    Raises:
        CannotStart: the machine has no process, memory, file or disk left for it.
        KeyboardInterrupt: somebody asked the engine to end.
    """
    marker = f"agent/{secrets.token_hex(8)}"
    own = {"TMPDIR": f"{log}.tmp", "NO_COLOR": "1", MARKER: marker}  # see tasks/sandbox/program.py
    heard = b""
    try:
        with Program(
            argv, cwd=cwd, log=log, marker=marker, level="none", view=VIEW, limits=LIMITS, pipes=True,
            variables={**variables, **own},
        ) as program:  # fmt: skip
            assert program.process.stdin is not None
            program.process.stdin.close()
            deadline = clock() + seconds
            status = None
            while status is None and clock() < deadline:
                status = program.poll(LOOK_SECONDS)
                heard = _listen(program, heard)
            if status is None:
                failure = f"did not end within {seconds:g} s"
            else:
                failure = f"{program.describe(status)}\n{program.tail()}".rstrip() if status else ""
    except (Stopped, NotAProgram) as wrong:
        failure = f"was stopped: {wrong}" if isinstance(wrong, Stopped) else str(wrong)
    return failure, scrub_text(heard.decode(errors="replace"))


def _listen(program: Program, heard: bytes) -> bytes:
    """The kept end of its standard output."""
    pipe = program.process.stdout
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    while chunk := pipe.read(2**18):
        heard = (heard + chunk)[-KEPT:]
        program.note(chunk)
    return heard


@dataclass(frozen=True)
class AgentReport:
    """An agent's own report at its end, and what it has left."""

    message: str
    """Its last words."""
    usage: Usage
    error: str = ""
    """That it failed, in its own words, or why what it has left cannot be used; empty when neither is so."""
    files: dict[str, str] = field(default_factory=dict)
    """The whole texts of the files that it has changed, by name."""
    proposal: str = ""
    """Its proposal.json."""


def hear_anything(printed: str) -> AgentReport:
    """Of a user's command, whose cost is unknown."""
    return AgentReport(printed.strip(), Usage(1, usd=None))


def hear_claude(printed: str) -> AgentReport:
    """One JSON document: the result, or with it all events before it."""
    try:
        document = json.loads(printed)
    except (ValueError, RecursionError):
        return hear_anything(printed)
    events = [one for one in (document if isinstance(document, list) else [document]) if isinstance(one, dict)]
    # A failure is called a result without having one, and says all the same what it took.
    result = next((event for event in reversed(events) if "result" in event or event.get("type") == "result"), None)
    if result is None:
        return hear_anything(printed)
    message, counts = str(result.get("result", "")).strip(), result.get("usage")
    read = [_count(counts, f"{kind}input_tokens") for kind in ("", "cache_creation_", "cache_read_")]
    usage = Usage(1, sum(read), _count(counts, "output_tokens"), _price(result.get("total_cost_usd")))
    failed = result.get("is_error") is True or "result" not in result
    return AgentReport(message, usage, (message or str(result.get("subtype"))) if failed else "")


def hear_codex(printed: str) -> AgentReport:
    """A JSON event a line, of which a long output may have lost its beginning. What it costs is not among them."""
    message, failure, done, inputs, outputs = "", "", False, 0, 0
    for line in printed.splitlines():
        try:
            event = json.loads(line)
            kind, item = event["type"], event.get("item")
        except (ValueError, RecursionError, TypeError, KeyError):
            continue
        if kind == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
            message = str(item.get("text", "")).strip()
        elif kind == "turn.completed":
            done, inputs = True, inputs + _count(event.get("usage"), "input_tokens")
            outputs += _count(event.get("usage"), "output_tokens")
        elif kind in ("turn.failed", "error"):
            error = event.get("error", event.get("message", ""))
            failure = str(error.get("message", error) if isinstance(error, dict) else error)
    # It also tells of errors that it has got over: what counts is whether the turn was completed.
    usage = Usage(1, inputs, outputs, None)
    return AgentReport(message or printed.strip()[-2000:], usage, "" if done else failure)


@dataclass(frozen=True)
class Setting:
    """One agent's command line."""

    argv: tuple[str, ...]
    """Up to the prompt, and after it; see `PROMPT`."""
    model_option: tuple[str, ...] = ()
    """The arguments that name the model, last on the command line."""
    variables: tuple[str, ...] = ()
    """Its own: key, address, where its settings are."""
    hear: Callable[[str], AgentReport] = hear_anything
    """Its last words, from all that it printed on its standard output."""
    remedy: str = "install it, or write its whole path"

    def command(self, prompt: str, model: str) -> list[str]:
        """The whole command line."""
        values = {PROMPT: prompt, MODEL: model}
        words = (*self.argv, *(self.model_option if model else ()))
        return [values.get(word, word) for word in words]


SETTINGS: Mapping[str, Setting] = {
    "claude": Setting(
        # The prompt comes first: the options with tools take every word that follows for another tool.
        (
            *("claude", "-p", PROMPT, "--output-format", "json", "--permission-mode", "acceptEdits"),
            *("--allowedTools", "Read,Edit,MultiEdit,Write,Glob,Grep"),
            *("--disallowedTools", "Bash,WebFetch,WebSearch"),
        ),
        model_option=("--model", MODEL),
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ),
        hear=hear_claude,
        remedy="install Claude Code (npm install -g @anthropic-ai/claude-code) and log in once",
    ),
    "codex": Setting(
        ("codex", "exec", PROMPT, "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        model_option=("--model", MODEL),
        variables=("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME"),
        hear=hear_codex,
        remedy="install Codex (npm install -g @openai/codex) and log in once",
    ),
}
"""The agents that are known by name. Neither may run commands of its own outside of a sandbox."""


def _count(counts: Any, name: str) -> int:
    """A number of tokens, as an agent tells it; 0 when it does not."""
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if type(value) is int and value > 0 else 0


def _price(value: object) -> float | None:
    """USD, as an agent tells it; None when it does not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e6 else None
