"""A coding agent as the proposer: Claude Code, Codex, or any command that edits files.

It works in a fresh folder apart from the campaign (tasks/agents/working.py), without a sandbox, since it needs the
network and its own login. The files and parameters that it leaves are a suggestion, checked like any other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field, TypeAdapter, model_validator

from environments.plugins import Refused
from tasks.agents import working
from tasks.agents.working import EVERYBODYS, MODEL, SETTINGS, AgentReport, Setting
from tasks.editing.edits import EditFailed, diff_of
from tasks.llm.answers import Misread, ideas
from tasks.llm.prompts import data, render
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion, Unavailable, Unusable
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.system.redact import one_line, scrub_text
from tasks.trial import NOTHING_BOUGHT

PROMPT = (
    f"{working.TASK} in this folder says what is asked of you. Read it whole, then do it: edit the files in this "
    f"folder, and fill in {working.PROPOSAL}. Nobody can answer questions."
)
REASON_CHARACTERS, QUOTED_LINES = 400, 150


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
    environment: tuple[str, ...] | None = None
    """Names of variables that it gets besides PATH, HOME and their like; absent: those of the known agent, such as its
    key."""

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
        if not isinstance(self.command, str) and (left.usd is not None or left.tokens is not None):
            raise Refused(
                "proposer agent: a command of your own does not say what it costs, so max_usd and max_tokens cannot be "
                "kept: leave them out, and limit its time with wall_seconds"
            )

    @property
    def _setting(self) -> Setting:
        return SETTINGS[self.command] if isinstance(self.command, str) else Setting(self.command)

    @property
    def _name(self) -> str:
        return Path(self._setting.argv[0]).name

    def _key(self, brief: Brief) -> str:
        """The key under which this request's outcome is stored; the remaining time is no part of it."""
        trials = [trial.number for trial in brief.history], sorted(brief.pending), sorted(brief.files.items())
        reasons = [refusal.reason for refusal in brief.refusals]
        asked = repr((self, brief.seed, trials, brief.rejected, reasons)).encode(errors="replace")
        return f"{len(reasons) + 1:02d}-{hashlib.sha256(asked).hexdigest()[:8]}"

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
            parts = {"reason": data(last.reason, QUOTED_LINES), "before": data(last.text, QUOTED_LINES)}
        task = render("agent", brief, **parts)
        try:
            handed = working.lay_out(work, brief, task)
        except EditFailed as clash:
            raise Unavailable(f"{self._name}: {clash}") from clash
        left = self.wall_seconds if brief.left.seconds is None else brief.left.seconds
        seconds = max(min(self.wall_seconds, left), 1.0)
        names = (*EVERYBODYS, *(self._setting.variables if self.environment is None else self.environment))
        variables = {name: os.environ[name] for name in names if name in os.environ}
        argv = [str(Path(program).absolute()), *self._setting.command(PROMPT, self.model)[1:]]
        try:
            failure, printed = working.run(argv, cwd=work, log=log, variables=variables, seconds=seconds)
        finally:
            for path in (work / working.TASK, log):
                if place and path.is_file() and not path.is_symlink():
                    write_atomic(place / path.name, scrub_text(path.read_text(errors="replace")))
        said = self._setting.hear(printed)
        said = replace(said, message=scrub_text(said.message))  # with half a character it could not be stored
        if failure := said.error or failure:
            how = "says that it failed: " if said.error else ""
            raise Unavailable(f"{self._name} {how}{one_line(failure, REASON_CHARACTERS)}", said.usage)
        try:
            files, proposal = working.read_back(work, handed, brief.problem.editable)
        except EditFailed as spoiled:
            return replace(said, error=str(spoiled))
        return replace(said, files=files, proposal=proposal)

    def _suggestion(self, brief: Brief, said: AgentReport) -> Suggestion:
        files = said.files
        if said.error:
            raise Unusable(f"{self._name}: {said.error}", said.message, said.usage)
        try:
            parsed, faults = ideas(said.proposal, brief)
        except Misread as wrong:
            parsed, faults = [], [str(wrong)]
        if not parsed:
            raise Unusable(f"{self._name}: {working.PROPOSAL}: {'; '.join(faults)}", said.message, said.usage)
        if not files and parsed[0].params == brief.start:
            raise Unusable(f"{self._name}: it changed nothing", said.message, said.usage)
        try:
            edit = diff_of(brief.files, {**brief.files, **files})
        except EditFailed as wrong:
            edit = str(wrong)
        return replace(
            parsed[0], files=files or None, text="\n\n".join(filter(None, (said.message, edit))), usage=said.usage,
            model=f"{self._name} {self.model}".rstrip(),
        )  # fmt: skip
