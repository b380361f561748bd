"""CampaignSpec: what a campaign is asked to be, built from the flow's flat parameters and checked before it starts.

Some of it changes what a score means (environment, overrides, proposer, options, seed) and is fixed for the
campaign's whole life; the rest are guards, which may change when it is resumed.
"""

from __future__ import annotations

import datetime
import re
import secrets
import shutil
import time
import tomllib
from pathlib import Path
from typing import Any

import tomlkit
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

import environments
from environments import Environment, plugins
from environments.plugins import Refused
from environments.space import Value
from flows.spec import parameters
from flows.spec.advanced import Advanced
from flows.spec.time_budget import time_for_a_trial, time_for_the_certificate
from tasks import evaluate, propose, train
from tasks.cancellers import Canceller
from tasks.deciding.certificate import runs_of
from tasks.llm import prompts
from tasks.machine.slot_layout import here, saved_layout
from tasks.machine.slots import Slots
from tasks.proposers import Proposer
from tasks.proposing.validation import problem_of
from tasks.recipes import preparing
from tasks.rules import Rule
from tasks.sandbox.confinement import listed
from tasks.sandbox.isolation import Isolation, check_given, choose
from tasks.store import calibration
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons_json
from tasks.store.ledger import CALIBRATED, RERUNS, Ledger, Settings, check_name, machine
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import URL_PASSWORD

RULES, CANCELLERS = "tasks.rules", "tasks.cancellers"
FIXED = ("environment", *Settings.model_fields)


class CampaignSpec(BaseModel):
    """A campaign as asked for; every field is a parameter of the flow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    environment: parameters.Environment
    name: str
    proposer: parameters.Proposer = "tpe"
    rule: parameters.Rule = "certify"
    cancel: parameters.Cancel = "curve"
    replicates: parameters.Replicates = 1
    trials: parameters.Trials = 20
    hours: parameters.Hours = 8.0
    until: parameters.Until = None
    parallel: parameters.Parallel = 1
    launch: parameters.Launch = "here"
    seed: parameters.Seed = None
    tracking: parameters.Tracking = None
    advanced: Advanced = Advanced()

    @classmethod
    def of(cls, **asked: Any) -> CampaignSpec:
        """A spec from the flow's parameters.

        Raises:
            Refused: one line for each parameter that is wrong.
        """
        try:
            return cls(**asked)
        except ValidationError as error:
            raise plugins.explain(error, "campaign", (*cls.model_fields, *Advanced.model_fields)) from error

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        return check_name(name)

    @field_validator("until")
    @classmethod
    def _dated(cls, until: str | None) -> str | None:
        return until and next_time(until).isoformat()

    @field_validator("tracking")
    @classmethod
    def _without_password(cls, tracking: str | None) -> str | None:
        if tracking and URL_PASSWORD.search(tracking):
            raise ValueError(
                "holds a password, and is stored and shown: leave it out there, and set MLFLOW_TRACKING_USERNAME "
                "and MLFLOW_TRACKING_PASSWORD, or save a Tracking block"
            )
        return tracking

    @property
    def deadline(self) -> float | None:
        """`until` as Unix time, in seconds."""
        return datetime.datetime.fromisoformat(self.until).timestamp() if self.until else None

    @property
    def isolation(self) -> Isolation:
        """How trials are confined on this machine.

        Raises:
            Refused: not in the way that was asked for.
        """
        return Isolation(choose(self.advanced.isolation), self.advanced.allow_unsandboxed)

    @property
    def loaded_proposer(self) -> Proposer:
        return propose.load(self.proposer, self.advanced.options)

    @property
    def loaded_rule(self) -> Rule:
        return plugins.make(RULES, self.rule, Rule, self.advanced.rule_options)  # type: ignore[type-abstract]

    def loaded_canceller(self, environment: Environment) -> Canceller | None:
        """What cancels trials, with the options that the environment suggests under those that were stated."""
        if self.cancel == "none":
            if self.advanced.cancel_options:
                raise Refused("cancel = 'none' takes no options: leave them out, or name what is to cancel")
            return None
        plugins.require(self.cancel, (*plugins.names(CANCELLERS), "none"), "canceller")
        options = environment.cancel.get(self.cancel, {}) | self.advanced.cancel_options
        return plugins.make(CANCELLERS, self.cancel, Canceller, options)  # type: ignore[type-abstract]

    def slots(self, environment: Environment) -> Slots:
        """Where this campaign's trainings run on this machine, divided as the Machine block of the server says.

        Raises:
            Refused: the block names a GPU that is not there, or device is cuda and the driver does not answer.
        """
        if self.launch != "here":  # the slots are those of the machines that it is launched on
            return Slots(home())
        return here(home(), environment, saved_layout())

    def certificate_runs(self, environment: Environment) -> int:
        """Runs of each arm of the certificate; 0 where the rule does without."""
        return runs_of(self.trials, environment.deterministic) if self.loaded_rule.certifies else 0

    def check(self) -> None:
        """Everything that can be known wrong before anything starts, whether the campaign is new or resumed.

        Raises:
            Refused: what is wrong, with the value and the remedy.
        """
        if shutil.which("git") is None:
            raise Refused("git is not installed: the lineage of a campaign is kept in a git repository")
        _ = self.loaded_rule
        known = Ledger.exists(self.name)
        environment = self._resumed().environment if known else self._asked_for()
        self._check_proposers(environment)
        if not known:
            learned_from(self.advanced.learn_from, environment)
        self.loaded_canceller(environment)
        if self.launch == "here":
            check_given(self.isolation.level, home(), listed(environment))
        self._check_time(environment, known)
        self._check_slots(environment)
        preparing.check_disk(environment, home())

    def _check_slots(self, environment: Environment) -> None:
        """Refuse more trials at once than there are slots; known in the flow alone, whose server keeps the block."""
        if self.launch != "here":
            return
        from prefect import runtime

        if runtime.flow_run.id is None:
            return
        slots = [part.name for part in self.slots(environment).parts]
        if self.parallel > len(slots):
            has = f"{len(slots)} slot{'s' * (len(slots) > 1)} for {environment.name} ({', '.join(slots)})"
            raise Refused(
                f"parallel = {self.parallel}, but this machine has {has}: ask for fewer, or save a Machine block that "
                "divides it in another way"
            )

    def _check_proposers(self, environment: Environment) -> None:
        """Refuse a proposer that cannot be run as it is asked for."""
        fallback = propose.load(self.advanced.fallback, {})
        if fallback.asks or fallback.edits:
            raise Refused(
                f"fallback = {self.advanced.fallback!r} may fail itself: take one that asks nobody, such as tpe"
            )
        if self.loaded_proposer.asks:
            prompts.check(problem_of(environment).prompts)
        if self.loaded_proposer.edits and self.advanced.approval != "none" and self.isolation.level == "none":
            raise Refused(
                f"approval = {self.advanced.approval!r} at isolation none: a new program runs for seconds before "
                "anybody is asked, and nothing would keep it from your files: see `nightshift doctor`"
            )
        if self.loaded_proposer.edits and not self.isolation.may_run("an edit"):
            raise Refused(
                f"proposer {self.proposer!r} edits programs, and at isolation {self.isolation.level} nothing would "
                "keep them from your files: see `nightshift doctor`, or say --allow-unsandboxed"
            )

    def _check_time(self, environment: Environment, known: bool) -> None:
        """Refuse a night in which not even one trial, and what proves it, can be done."""
        need, what = environment.budget_seconds + environment.startup_seconds, "one trial"
        if not known:
            proof = time_for_the_certificate(self, environment, ())
            need = time_for_a_trial(self, environment, ()) + proof
            what = "the baseline and the certificate" if proof else "the baseline"
        remedy = ", or take rule = greedy, which proves nothing" if "certificate" in what else ""
        if self.hours * 3600 < need:
            has = f"{self.hours:g} ({self.hours * 3600:.0f} s)"
            raise Refused(f"hours = {has} is less than {what} may take ({need:g} s): raise hours{remedy}")
        if not known and self.deadline and self.deadline < time.time() + need:
            raise Refused(
                f"until = {self.until} is over before {what} ({need:g} s) can be done: give a later one"
            )

    def open(self) -> Ledger:
        """The campaign's ledger: a new one, or the existing one if nothing that is fixed differs.

        Raises:
            Refused: a fixed setting differs, or scores would no longer mean the same.
        """
        with FileLock(
            home() / ".create.lock"
        ):  # two that begin a campaign of one name: the second opens the first's
            return self._resumed() if Ledger.exists(self.name) else self._create()

    def store(self, ledger: Ledger) -> None:
        """Write spec.toml, and note what has changed since the last life. Only who holds the campaign may do this."""
        path = ledger.path / "spec.toml"
        before, now = tomllib.loads(path.read_text()), tomllib.loads(self.toml())
        if before != now:
            write_atomic(path, self.toml())
            changed = {
                key: [before.get(key), now.get(key)]
                for key in before | now
                if before.get(key) != now.get(key)
            }
            ledger.event("guards", changed=changed)

    def toml(self) -> str:
        """The spec as a file that `nightshift run` takes."""
        fields = {key: value for key, value in self.model_dump(exclude_none=True).items() if value != {}}
        return tomlkit.dumps(fields | {"environment": source(self.environment)})

    def _asked_for(self) -> Environment:
        return checked_environment(self.environment, self.advanced.overrides)

    def _create(self) -> Ledger:
        environment, learns = self._asked_for(), self.advanced.learn_from
        ledger = Ledger.create(
            self.name,
            environment,
            source=source(self.environment),
            settings=self.settings(secrets.randbelow(2**31) if self.seed is None else self.seed),
            isolation=self.isolation.level,
            spec=self.toml(),
            more={LEARNED: lessons_json(learned_from(learns, environment))} if learns else {},
        )
        digest = calibration.digest(ledger.path, ledger.environment)
        fits = self.loaded_rule.replicates_baseline and self.launch == "here"  # it is this machine's
        if fits and (known := calibration.find(home(), digest, machine())):
            write_atomic(
                ledger.path / CALIBRATED,
                RERUNS.dump_json(calibration.reruns(known), indent=2).decode() + "\n",
            )
        return ledger

    def settings(self, seed: int) -> Settings:
        """What is fixed for the campaign's whole life."""
        stated = self.model_dump(include={"proposer", "rule", "cancel", "replicates"})
        more = self.advanced.model_dump(include=set(Settings.model_fields))
        return Settings(**stated, **more, seed=seed)

    def _resumed(self) -> Ledger:
        ledger = Ledger.open(self.name)
        for what, was, asked in differences(ledger, self):
            raise Refused(
                f"campaign {self.name!r} has {what} = {was!r}, asked for is {asked!r}: that changes scores or "
                f"verdicts, so it is fixed. Leave it out, or begin a campaign of another name"
            )
        ledger.verify()
        return ledger


def checked_environment(reference: str, overrides: dict[str, Value]) -> Environment:
    """An environment as it stands now, with everything checked that can be without running it.

    Raises:
        Refused: what is wrong with it.
    """
    environment = environments.named(reference, overrides)
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    return environment


def differences(ledger: Ledger, spec: CampaignSpec) -> list[tuple[str, object, object]]:
    """The fixed settings in which a spec differs from the campaign: what, as it was, as asked for."""
    was = ledger.campaign
    settings = spec.settings(was.seed if spec.seed is None else spec.seed)
    asked = {"environment": source(spec.environment), **settings.model_dump()}
    has = {"environment": was.source, **{name: getattr(was, name) for name in FIXED[1:]}}
    return [(name, has[name], asked[name]) for name in FIXED if has[name] != asked[name]]


def source(reference: str) -> str:
    """An environment's reference in its lasting form: a bundled one's name, or an absolute path."""
    return reference if reference in environments.bundled() else str(Path(reference).expanduser().resolve())


def next_time(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """`07:30` is the next time (after `now`) that the clock shows it; a full ISO date and time stands for itself.

    Raises:
        ValueError: it is neither.
    """
    now = now or datetime.datetime.now().astimezone()
    if re.fullmatch(r"\d{1,2}:\d{2}", text):
        hour, minute = map(int, text.split(":"))
        try:
            # Without a zone until the end: the night may be one in which the clocks change.
            then = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
        except ValueError:
            raise ValueError("is no time of day, give HH:MM such as 07:30") from None
        tomorrow = then + datetime.timedelta(days=1)
        return then.astimezone() if then.astimezone() > now else tomorrow.astimezone()
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ValueError("must be a time of day such as 07:30, or an ISO date and time") from None
