"""Ready settings: how a coding agent is started without a terminal, and how what it prints at its end is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class AgentReport:
    """An agent's own report at its end."""

    message: str
    """Its last words."""
    usage: Usage
    error: str = ""
    """That it failed, in its own words; empty when it says that it did not."""


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
        ("codex", "exec", PROMPT, "--json", "--sandbox", "workspace-write"),
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
