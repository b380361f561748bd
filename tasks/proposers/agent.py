"""A coding agent as the proposer: Claude Code, Codex, or any command that edits files.

It works in a fresh folder apart from the campaign: it may change the champion's files and proposal.json, and reads
TASK.md; all else is its scratch. What it leaves is a suggestion, checked like any other. It runs without a sandbox,
since it needs the network and its own login, but below a supervisor (tasks/sandbox/supervisor.py): it cannot outlive
its engine, and at its end all of its processes are killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, TypeAdapter, model_validator

from environments.limits import Limits
from environments.plugins import Refused
from tasks.editing import patches
from tasks.editing.edits import EditFailed, diff_of
from tasks.editing.patches import text_of
from tasks.llm.answers import Misread, ideas
from tasks.llm.prompts import WIDTH, render
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion, Unavailable, Unusable
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.program import NotAProgram, Program, Stopped
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.system.orphans import MARKER
from tasks.system.redact import known_secrets, one_line, quote, scrub_text, secrets_in
from tasks.trial import NOTHING_BOUGHT, Usage

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
INSTRUCTION = (
    f"{TASK} in this folder says what is asked of you. Read it whole, then do it: edit the files in this folder, and "
    f"fill in {PROPOSAL}. Nobody can answer questions."
)
REASON_CHARACTERS, QUOTED_LINES = 400, 150
LIMITS = Limits(scratch_gb=4, output_mb=16)
VIEW = VisiblePaths((), (), network=True, gpu=True)
"""`gpu`: like the drivers of one, the engines of these agents reserve far more address space than they use."""
KEPT = 4 * 2**20
"""Bytes of the end of its standard output that are kept: its last words."""
LOOK_SECONDS = 0.05


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
    variables: tuple[str, ...] = ()
    """Its own: key, address, where its settings are."""
    hear: Callable[[str], AgentReport] = hear_anything
    """Its last words, from all that it printed on its standard output."""
    keeps: tuple[str, ...] = ()
    """The limits of a campaign that can be kept, since it says what it takes."""
    remedy: str = "install it, or write its whole path"


SETTINGS: Mapping[str, Setting] = {
    "claude": Setting(
        # The prompt comes first: the options with tools take every word that follows for another tool.
        (
            *("claude", "-p", PROMPT, "--output-format", "json", "--permission-mode", "acceptEdits"),
            *("--allowedTools", "Read,Edit,MultiEdit,Write,Glob,Grep"),
            *("--disallowedTools", "Bash,WebFetch,WebSearch"),
        ),
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ),
        hear=hear_claude,
        keeps=("max_usd", "max_tokens"),
        remedy="install Claude Code (npm install -g @anthropic-ai/claude-code) and log in once",
    ),
    "codex": Setting(
        ("codex", "exec", PROMPT, "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        variables=("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME"),
        hear=hear_codex,
        keeps=("max_tokens",),
        remedy="install Codex (npm install -g @openai/codex) and log in once",
    ),
}
"""The agents that are known by name. Neither may run commands of its own outside of a sandbox."""


REPORT = TypeAdapter(AgentReport)


class Agent(Proposer):
    """A coding agent that edits the champion's files and parameters."""

    edits: ClassVar[bool] = True
    asks: ClassVar[bool] = True

    command: str | tuple[str, ...] = "claude"
    """`claude`, `codex`, or a command line as a list; there `{prompt}` and `{model}`, each a whole argument, are
    replaced."""
    model: str = ""
    """The agent's name of the model to use; empty: its own setting."""
    wall_seconds: float = Field(default=900.0, ge=1, le=86_400)
    """The time for one suggestion."""
    environment: tuple[str, ...] = ()
    """Names of variables that it gets besides PATH, HOME, their like and, for a known agent, its own, as its key."""

    @model_validator(mode="after")
    def _can_be_started(self) -> Agent:
        if isinstance(self.command, str) and self.command not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise ValueError(f"command must be one of {known}, or the whole command line as a list of arguments")
        if not self.command or not self.command[0]:
            raise ValueError("command must name a program")
        if self.model and not isinstance(self.command, str) and MODEL not in self.command:
            raise ValueError(f"model is {self.model!r}, and the command has no argument {MODEL}: add one")
        return self

    def propose(self, brief: Brief) -> Suggestion:
        spent = sum((one.usage for one in brief.refusals), NOTHING_BOUGHT)  # since its turn began
        for limit, used, what in ((brief.left.usd, spent.usd, "USD"), (brief.left.tokens, spent.tokens, "tokens")):
            if limit is not None and (used is None or limit <= used):
                raise Unavailable(f"the campaign has spent its limit of {what}, or what was spent is not known")
        place = brief.traces / "agent" / self._key(brief) if brief.traces else None
        stored = place / "outcome.json" if place else None
        if stored and stored.is_file():
            return self._suggestion(brief, REPORT.validate_json(stored.read_bytes()))
        room = Path(tempfile.mkdtemp(prefix="nightshift-agent-"))
        try:
            outcome = self._ask(brief, room, place)
        finally:
            file_trees.remove(room)
        if stored:
            write_atomic(stored, REPORT.dump_json(outcome, indent=1).decode() + "\n")
        return self._suggestion(brief, outcome)

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        program = self._setting.argv[0]
        if shutil.which(program) is None:
            raise Refused(f"proposer agent: no program {program!r} on PATH: {self._setting.remedy}")
        asked = {"max_usd": left.usd, "max_tokens": left.tokens}
        unkept = [name for name, limit in asked.items() if limit is not None and name not in self._setting.keeps]
        if unkept:
            raise Refused(
                f"proposer agent: {program} does not say what it takes, so {' and '.join(unkept)} cannot be kept: "
                "limit its time with wall_seconds instead"
            )

    @property
    def _setting(self) -> Setting:
        return SETTINGS[self.command] if isinstance(self.command, str) else Setting(self.command)

    @property
    def _name(self) -> str:
        return Path(self._setting.argv[0]).name

    def _key(self, brief: Brief) -> str:
        """The key under which this request's outcome is stored. The time that is left, and why others were refused, are
        no part of it: they are others after a kill.
        """
        trials = [trial.number for trial in brief.history], sorted(brief.pending), sorted(brief.files.items())
        turn = len(brief.refusals) + 1
        asked = repr((self, brief.seed, trials, brief.rejected, turn)).encode(errors="replace")
        return f"{turn:02d}-{hashlib.sha256(asked).hexdigest()[:8]}"

    def _ask(self, brief: Brief, room: Path, place: Path | None) -> AgentReport:
        """Run it in the folder `room`, and copy the task and its output to `place`."""
        program = shutil.which(self._setting.argv[0])
        if program is None:  # it has gone since the preflight
            raise Unavailable(f"{self._name}: no program {self._setting.argv[0]!r} on PATH")
        work, log = room / "work", room / "log.txt"
        work.mkdir()
        parts = dict[str, object]()
        if brief.refusals:
            last = brief.refusals[-1]
            parts = {"reason": quote(last.reason, WIDTH, QUOTED_LINES), "before": quote(last.text, WIDTH, QUOTED_LINES)}
        task = render("agent", brief, **parts)
        try:
            handed = lay_out(work, brief, task)
        except EditFailed as clash:
            raise Unavailable(f"{self._name}: {clash}") from clash
        left = self.wall_seconds if brief.left.seconds is None else brief.left.seconds
        seconds = max(min(self.wall_seconds, left), 1.0)
        names = (*EVERYBODYS, *self._setting.variables, *self.environment)
        variables = {name: os.environ[name] for name in names if name in os.environ}
        # Each agent that is known by name takes it last on its command line.
        named = ("--model", self.model) if self.model and isinstance(self.command, str) else ()
        values = {PROMPT: INSTRUCTION, MODEL: self.model}
        argv = [str(Path(program).absolute()), *(values.get(word, word) for word in self._setting.argv[1:]), *named]
        try:
            failure, printed = run(argv, cwd=work, log=log, variables=variables, seconds=seconds)
        finally:
            for path in (work / TASK, log):
                if place and path.is_file() and not path.is_symlink():
                    write_atomic(place / path.name, scrub_text(path.read_text(errors="replace")))
        said = self._setting.hear(printed)
        said = replace(said, message=scrub_text(said.message))  # with half a character it could not be stored
        if failure := said.error or failure:
            how = "says that it failed: " if said.error else ""
            raise Unavailable(f"{self._name} {how}{one_line(failure, REASON_CHARACTERS)}", said.usage)
        try:
            files, proposal = read_back(work, handed, brief.problem.editable)
        except EditFailed as spoiled:
            return replace(said, error=str(spoiled))
        return replace(said, files=files, proposal=proposal)

    def _suggestion(self, brief: Brief, said: AgentReport) -> Suggestion:
        files = said.files
        if said.error:
            raise Unusable(f"{self._name}: {said.error}", said.message, said.usage)
        try:
            idea, *_ = ideas(said.proposal, brief)
        except Misread as wrong:
            raise Unusable(f"{self._name}: {PROPOSAL}: {wrong}", said.message, said.usage) from wrong
        if not files and idea.params == brief.start:
            raise Unusable(f"{self._name}: it changed nothing", said.message, said.usage)
        try:
            edit = diff_of(brief.files, {**brief.files, **files})
        except EditFailed as wrong:
            edit = str(wrong)
        return replace(
            idea, files=files or None, text="\n\n".join(filter(None, (said.message, edit))), usage=said.usage,
            model=f"{self._name} {self.model}".rstrip(),
        )  # fmt: skip


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
    heard = bytearray()
    try:
        with Program(
            argv, cwd=cwd, log=log, marker=marker, level="none", view=VIEW, limits=LIMITS, pipes=True,
            variables={**variables, **own},
        ) as program:  # fmt: skip
            program.listen(heard)
            if (status := program.wait(seconds)) is None:
                failure = f"did not end within {seconds:g} s"
            else:
                failure = f"{program.describe(status)}\n{program.tail()}".rstrip() if status else ""
    except (Stopped, NotAProgram) as wrong:
        failure = f"was stopped: {wrong}" if isinstance(wrong, Stopped) else str(wrong)
    return failure, scrub_text(heard[-KEPT:].decode(errors="replace"))


def _count(counts: Any, name: str) -> int:
    """A number of tokens, as an agent tells it; 0 when it does not."""
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if type(value) is int and value > 0 else 0


def _price(value: Any) -> float | None:
    """USD, as an agent tells it; None when it does not."""
    return float(value) if type(value) in (int, float) and 0 <= value < 1e6 else None
