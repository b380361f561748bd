"""CampaignSpec: the specification of a campaign, built from the flow's flat parameters and checked before it starts.

Options that change scores or verdicts are fixed for the campaign's whole life (flows/spec/options.py); the others may
change when it is resumed.
"""

from __future__ import annotations

import datetime
import math
import secrets
import shutil
import time
import tomllib
from typing import Any

import tomlkit
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from environments import Environment, plugins
from environments.plugins import Refused
from environments.remote import RemoteSettings
from flows.spec.advanced import Advanced
from flows.spec.clock_time import next_time, runs_in_time
from flows.spec.environment import CANCELLERS, check_editable, checked_environment, source
from flows.spec.form import spread
from flows.spec.options import FIXED, CampaignOptions
from tasks import propose
from tasks.cancellers import Canceller
from tasks.certifying.ablation import ablation_runs
from tasks.certifying.group_design import Design, design_of
from tasks.decide import SIMPLER_KEEPS
from tasks.deciding.champion_estimate import has_edits
from tasks.deciding.fidelity import Fidelity
from tasks.deciding.simplicity import kept_in_a_row
from tasks.llm import prompts
from tasks.machine.slots import Slots, slots_of
from tasks.proposers import Proposer
from tasks.proposing.validation import problem_of
from tasks.recipes import preparing
from tasks.remote import places
from tasks.rules import Rule
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import Isolation, check_given, choose
from tasks.store import calibration
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons_json
from tasks.store.ledger import CALIBRATED, FIDELITY, RERUNS, SHORT, Ledger, Settings, check_name, machine
from tasks.system.clock import merged
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import URL_PASSWORD
from tasks.trial import History

RULES = "tasks.rules"
SPARE = 1.1
"""Factor on the time of a certificate, so that it is not missed by seconds."""


class CampaignSpec(CampaignOptions, BaseModel):
    """The specification of a campaign; every field is a parameter of the flow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    advanced: Advanced = Advanced()

    @classmethod
    def of(cls, **asked: Any) -> CampaignSpec:
        """A spec from the flow's parameters. Refused if some are invalid, with a line for each."""
        try:
            return cls(**asked)
        except ValidationError as error:
            raise plugins.explain(error, "campaign", cls) from error

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, asked: Any) -> Any:
        return spread(asked) if isinstance(asked, dict) else asked

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
                "holds a password, and would be stored and shown: set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD instead, or save a Tracking block"
            )
        return tracking

    @property
    def deadline(self) -> float | None:
        """`until` as Unix time, in seconds."""
        return datetime.datetime.fromisoformat(self.until).timestamp() if self.until else None

    @property
    def isolation(self) -> Isolation:
        """The sandbox of this campaign's trials on this machine."""
        return Isolation(choose(self.advanced.isolation), self.advanced.allow_unsandboxed)

    @property
    def loaded_proposer(self) -> Proposer:
        return propose.load(self.proposer, self.advanced.options)

    @property
    def loaded_fallback(self) -> Proposer:
        return propose.load(self.advanced.fallback, {})

    @property
    def loaded_rule(self) -> Rule:
        return plugins.make(RULES, self.rule, Rule, self.advanced.rule_options)  # type: ignore[type-abstract]

    def loaded_canceller(self, environment: Environment) -> Canceller | None:
        """The early stopping of trials; stated options override those that the environment suggests."""
        if self.cancel == "none":
            if self.advanced.cancel_options:
                raise Refused("cancel = 'none' takes no options: leave them out, or name a canceller")
            return None
        plugins.require(self.cancel, (*plugins.names(CANCELLERS), "none"), "canceller")
        options = environment.cancel.get(self.cancel, {}) | self.advanced.cancel_options
        return plugins.make(CANCELLERS, self.cancel, Canceller, options)  # type: ignore[type-abstract]

    def slots(self, environment: Environment) -> Slots:
        """The slots of this machine for its runs."""
        if self.launch != "here":  # the machines where trials run have slots of their own
            return Slots.of_cores(home())
        return slots_of(environment, home())

    def certificate_design(self, environment: Environment, history: History) -> Design | None:
        """The certificate at the end, as it is planned now; None where the rule takes none."""
        if not self.loaded_rule.certifies or environment.scores_are_reported:
            return None
        runs = self.runs_in_time(environment)
        return design_of(self.trials, environment.deterministic, edits=has_edits(history), runs=runs)

    def runs_in_time(self, environment: Environment) -> float:
        """Training runs that its time may hold."""
        begun = Ledger.open(self.name).campaign.created if self.until and Ledger.exists(self.name) else time.time()
        return runs_in_time(vars(self), begun, environment.budget_seconds)

    def time_for_a_trial(self, environment: Environment, history: History) -> float:
        """Most seconds of the next trial: full training budgets, and the longest that any run took besides."""
        thinking = max((trial.proposal.seconds for trial in history), default=0.0)
        return self.machine_time_for_a_trial(environment, history, self.parallel) + thinking

    def machine_time_for_a_trial(self, environment: Environment, history: History, parallel: int = 1) -> float:
        """The same without proposing, on so many slots; on one: the time of all its slots together."""
        besides, rule = besides_training(environment, history), self.loaded_rule
        a_run = environment.budget_seconds + besides
        if not history:
            runs = rule.baseline_runs(self.replicates, environment.deterministic)
            return math.ceil(runs / parallel) * a_run
        reruns = rule.most_reruns + (kept_in_a_row(history) >= SIMPLER_KEEPS)
        controls = 0 if environment.allow_untrained else 2  # who would be champion starts without training, twice
        # Each of its runs in a turn of its own: it shares the slots with as many trials as there are slots.
        return (self.replicates + reruns) * a_run + besides * controls

    def time_for_the_certificate(
        self, environment: Environment, history: History, parallel: int | None = None
    ) -> float:
        """Seconds that are reserved from the start for the certificate and the ablation after it.

        Args:
            parallel: Slots; None: the campaign's. On one: the time of all its slots together.
        """
        parallel, design = parallel or self.parallel, self.certificate_design(environment, history)
        in_turn = design.in_turn(parallel) if design else 0
        if in_turn and self.advanced.ablation:
            changes = len(environment.space) + 1  # every parameter may differ, and the program
            mine, each = ablation_runs(changes, environment.deterministic)
            in_turn += math.ceil((mine + changes * each) / parallel)
        return SPARE * in_turn * (environment.budget_seconds + besides_training(environment, history))

    def check(self) -> None:
        """Refuse what can be seen to fail before a new or resumed campaign starts."""
        if shutil.which("git") is None:
            raise Refused("git is not installed: install it, since the lineage of a campaign is a git repository")
        _ = self.loaded_rule
        known, environment = Ledger.exists(self.name), self.loaded_environment()
        self._check_proposers(environment)
        if not known:
            learned_from(self.advanced.learn_from, environment)
        self.loaded_canceller(environment)
        if self.launch == "here":
            check_given(self.isolation.level, home(), outside(environment))
        self._check_time(environment, known)
        self._check_slots(environment)
        preparing.check_disk(environment, home())
        if environment.remote:
            self._check_place(environment, environment.remote)

    def _check_place(self, environment: Environment, settings: RemoteSettings) -> None:
        """Refuse a place on another machine that cannot train. Logins are in blocks, so the flow asks it."""
        if self.launch != "here":
            raise Refused(f"launch = {self.launch!r}, but trainer {environment.trainer} trains elsewhere: leave it out")
        place = places.load(environment.trainer, settings.model_dump())
        from prefect import runtime

        if runtime.flow_run.id is not None:
            place.check()

    def loaded_environment(self) -> Environment:
        """The campaign's frozen environment, or that of a new one. Refused as in `check`."""
        return self._resumed().environment if Ledger.exists(self.name) else self.new_environment()

    def _check_slots(self, environment: Environment) -> None:
        """Refuse more cores than there are, and more parallel trials than slots."""
        if self.launch != "here":
            return
        slots = [part.name for part in self.slots(environment).parts]
        if self.parallel > len(slots):
            each = f" of {environment.cores} cores each" if environment.cores > 1 else ""
            has = f"{len(slots)} slot{'s' * (len(slots) > 1)} for {environment.name} ({', '.join(slots)}){each}"
            raise Refused(f"parallel = {self.parallel}, but this machine has {has}: lower it, or use a larger machine")

    def _check_proposers(self, environment: Environment) -> None:
        """Refuse a proposer or fallback that cannot be run with these options."""
        fallback = self.loaded_fallback
        if fallback.asks or fallback.edits:
            raise Refused(
                f"fallback = {self.advanced.fallback!r} may fail itself: name a proposer without a model, such as tpe"
            )
        if self.advanced.fidelity != "none" and (why := self._unranked()):
            raise Refused(f"fidelity = {self.advanced.fidelity}: {why}: name another, or leave it out")
        if self.loaded_proposer.asks:
            prompts.check(problem_of(environment).prompts)
        if self.loaded_proposer.edits:
            check_editable(environment)
        if self.loaded_proposer.edits and self.advanced.approval != "none" and self.isolation.level == "none":
            raise Refused(
                f"approval = {self.advanced.approval!r} at isolation none: a new program runs for seconds before "
                "approval is asked, and could reach your files: see `nightshift doctor`"
            )
        if self.loaded_proposer.edits and not self.isolation.may_run("an edit"):
            raise Refused(
                f"proposer {self.proposer!r} edits programs, which at isolation {self.isolation.level} could reach "
                "your files: see `nightshift doctor`, or pass --allow-unsandboxed"
            )

    def _check_time(self, environment: Environment, known: bool) -> None:
        """Refuse a time limit that is too short for one trial and the certificate."""
        need, what = environment.budget_seconds + environment.startup_seconds, "one trial"
        if not known:
            reserve = self.time_for_the_certificate(environment, ())
            need = self.time_for_a_trial(environment, ()) + reserve
            what = "the baseline and the certificate" if reserve else "the baseline"
        remedy = ", or use rule = greedy, which certifies nothing" if "certificate" in what else ""
        if self.hours * 3600 < need:
            has = f"{self.hours:g} ({self.hours * 3600:.0f} s)"
            raise Refused(f"hours = {has} is less than {what} may take ({need:g} s): raise hours{remedy}")
        if not known and self.deadline and self.deadline < time.time() + need:
            raise Refused(f"until = {self.until} comes before {what} can end ({need:g} s): give a later time")

    def open(self) -> Ledger:
        """The campaign's ledger: a new one, or the existing one. Refused if its scores would not be comparable."""
        with FileLock(home() / ".create.lock"):  # of two that start one name, the second opens the first's
            ledger = self._resumed() if Ledger.exists(self.name) else self._create()
            if self.advanced.fidelity != "none" and not (ledger.path / SHORT).is_file():
                share = float(self.advanced.fidelity)
                chosen = Fidelity(share, f"fidelity = {share:g}: new points run for {share:.0%} of the budget")
                ledger.event("fidelity", share=chosen.share, words=chosen.words)
                write_atomic(ledger.path / SHORT, FIDELITY.dump_json(chosen).decode() + "\n")
            return ledger

    def _unranked(self) -> str:
        """Which proposer of this campaign cannot run short budgets first; empty if all can."""
        for name, proposer in ((self.proposer, self.loaded_proposer), (self.advanced.fallback, self.loaded_fallback)):
            if not proposer.ranks:
                return f"proposer {name} cannot search by scores of short runs (docs/proposers.md says which can)"
        return ""

    def store(self, ledger: Ledger) -> None:
        """Write spec.toml and log what changed since the last life. The caller must hold the campaign's lock."""
        path = ledger.path / "spec.toml"
        before, now = tomllib.loads(path.read_text()), tomllib.loads(self.toml())
        if before != now:
            write_atomic(path, self.toml())
            both = {key: [before.get(key), now.get(key)] for key in before | now}
            ledger.event("guards", changed={key: pair for key, pair in both.items() if pair[0] != pair[1]})

    def toml(self) -> str:
        """The spec as a file for `nightshift run`."""
        fields = {key: value for key, value in self.model_dump(exclude_none=True).items() if value != {}}
        return tomlkit.dumps(fields | {"environment": source(self.environment)})

    def new_environment(self) -> Environment:
        """The environment as it would be frozen now, checked. Refused if it cannot be used."""
        return checked_environment(self.environment, self.advanced.overrides)

    def _create(self) -> Ledger:
        environment, learns = self.new_environment(), self.advanced.learn_from
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
        known = calibration.find(home(), digest, machine()) if fits else None
        if known and len(known.runs) >= calibration.FEWEST:  # one that was interrupted may have fewer
            write_atomic(
                ledger.path / CALIBRATED, RERUNS.dump_json(calibration.reruns(known), indent=2).decode() + "\n"
            )
        return ledger

    def settings(self, seed: int) -> Settings:
        """The fixed options besides the environment, with the seed that was drawn if none was stated."""
        stated = self.model_dump() | self.advanced.model_dump() | {"seed": seed}
        return Settings(**{name: stated[name] for name in Settings.model_fields})

    def _resumed(self) -> Ledger:
        ledger = Ledger.open(self.name)
        for option, has, asked in differences(ledger, self):
            raise Refused(
                f"campaign {self.name!r} has {option} = {has!r}, asked for is {asked!r}: it changes scores or "
                f"verdicts, so it is fixed. Leave it out, or start a campaign with another name"
            )
        ledger.verify()
        return ledger


def differences(ledger: Ledger, spec: CampaignSpec) -> list[tuple[str, object, object]]:
    """The fixed options in which a spec differs from the campaign: name, the campaign's value, the spec's."""
    campaign = ledger.campaign
    settings = spec.settings(campaign.seed if spec.seed is None else spec.seed)
    asked = settings.model_dump() | {"environment": source(spec.environment)}
    has = campaign.model_dump() | {"environment": campaign.source}
    return [(name, has[name], asked[name]) for name in FIXED if has[name] != asked[name]]


def besides_training(environment: Environment, history: History) -> float:
    """The longest time in seconds that a run took besides training."""
    longest = []
    for trial in history:
        if "untrained" in trial.verdict.evidence:  # it holds a second start and judgement (tasks/control.py)
            continue
        runs = [*trial.runs, *(rerun.run for rerun in trial.reruns if not rerun.calibrated)]
        # Of runs side by side, which are judged side by side, the last is judged while none trains.
        turns = merged((run.started, run.started + max(run.wall_seconds, run.seconds)) for run in runs)
        # After a resume, less wall time may have been measured than training took.
        judged = max(trial.wall_seconds - sum(end - begin for begin, end in turns), 0.0) / len(turns)
        longest.append(judged + sum(max(run.wall_seconds - run.seconds, 0.0) for run in runs) / len(runs))
    return max(longest, default=environment.startup_seconds)
