"""CampaignSpec: a Spec in an environment on a machine: what it loads, how long it takes, whether it can start."""

from __future__ import annotations

import math
import secrets
import shutil
import time
import tomllib
from typing import Annotated

import tomlkit
from filelock import FileLock
from prefect import runtime
from pydantic import AfterValidator

from environments import FILE, Environment, plugins
from environments.plugins import Refused
from environments.space import Value
from flows.spec import permissions
from flows.spec.spec import FIXED, Spec, end_of, lasting, reserved
from tasks import evaluate, imports, propose, train
from tasks.cancellers import Canceller
from tasks.machine.slots import Slots, slots_of
from tasks.numbers import duration
from tasks.proposers import Proposer
from tasks.remote import places
from tasks.rules import Rule
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import Isolation, check_given, choose
from tasks.stats.ablation import ablation_runs
from tasks.stats.certificate import REUSED, drift, searched
from tasks.stats.design import Design
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons_json
from tasks.store.ledger import Ledger, Settings, check_name
from tasks.store.workspace import baseline_files
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import capped
from tasks.system.spans import merged
from tasks.trial import History, baseline

RULES, CANCELLERS = "tasks.rules", "tasks.cancellers"
SPARE = 1.1
"""Factor on the time of a certificate, so that it is not missed by seconds."""


class CampaignSpec(Spec):
    """A spec of a campaign that has a name: what it takes here, and the campaign that it makes or goes on with."""

    name: Annotated[str, AfterValidator(check_name)]

    @property
    def isolation(self) -> Isolation:
        """The sandbox of this campaign's trials on this machine."""
        return Isolation(choose(self.advanced.isolation), self.advanced.allow_unsandboxed)

    @property
    def loaded_proposer(self) -> Proposer:
        return propose.load(self.proposer, self.advanced.options)

    @property
    def loaded_rule(self) -> Rule:
        return plugins.make(RULES, self.rule, Rule, self.advanced.rule_options)  # type: ignore[type-abstract]

    def loaded_canceller(self, environment: Environment) -> Canceller | None:
        """The early stopping of trials; stated options override those that the environment suggests."""
        if self.cancel == "none":
            return None
        plugins.require(self.cancel, (*plugins.names(CANCELLERS), "none"), "canceller")
        options = environment.cancel.get(self.cancel, {}) | self.advanced.cancel_options
        return plugins.make(CANCELLERS, self.cancel, Canceller, options)  # type: ignore[type-abstract]

    def slots(self, environment: Environment) -> Slots:
        """The slots of this machine for its runs; the machines where launched trials run have slots of their own."""
        return slots_of(environment) if self.launch == "here" else Slots.of_cores()

    def certificate_design(self, environment: Environment) -> Design | None:
        """The certificate at the end, as it is planned now; None where the rule takes none."""
        if not self.loaded_rule.certifies or environment.scores_are_reported:
            return None
        ledger = Ledger.open(self.name) if Ledger.exists(self.name) else None
        begun, made = (ledger.campaign.created, ledger.own_certificates()) if ledger else (time.time(), ())
        return reserved(vars(self), environment, begun, made)

    def time_for_a_trial(self, environment: Environment, history: History) -> float:
        """Most seconds of the next trial."""
        thinking = max((trial.proposal.seconds for trial in history), default=0.0)
        return self.machine_time_for_a_trial(environment, history, self.parallel) + thinking

    def machine_time_for_a_trial(self, environment: Environment, history: History, parallel: int = 1) -> float:
        """The same without proposing, on so many slots; on one: the time of all its slots together."""
        besides, rule = besides_training(environment, history), self.loaded_rule
        a_run = environment.budget_seconds + besides
        if not history:
            runs = rule.baseline_runs(self.replicates, environment.deterministic)
            return math.ceil(runs / parallel) * a_run
        controls = 0 if environment.allow_untrained else 2  # who would be champion starts without training, twice
        # Each of its runs in a turn of its own: it shares the slots with as many trials as there are slots.
        return self.replicates * a_run + besides * controls

    def time_for_the_certificate(
        self, environment: Environment, history: History, parallel: int | None = None
    ) -> float:
        """Seconds that are reserved from the start for the certificate and the ablation after it, on so many slots."""
        parallel, design = parallel or self.parallel, self.certificate_design(environment)
        in_turn = design.in_turn(parallel, _reusable(environment, history)) if design else 0
        changes = len(environment.space) + 1 if design else 0  # every parameter may differ, and the program
        return SPARE * self.time_for_runs(environment, history, in_turn, changes, parallel)

    def time_for_runs(
        self, environment: Environment, history: History, in_turn: int, changes: int, parallel: int
    ) -> float:
        """Most seconds of so many runs one after another, and of an ablation of so many changes, if it is asked for."""
        mine, each = ablation_runs(changes, environment.deterministic)
        if self.advanced.ablation:
            in_turn += math.ceil((mine + changes * each) / parallel)
        return in_turn * (environment.budget_seconds + besides_training(environment, history))

    def too_late(self, environment: Environment, history: History, spent: float, seconds: float) -> str:
        """Why there is no time for so many seconds and the certificate; empty if there is."""
        reserve = self.time_for_the_certificate(environment, history)
        need = seconds + reserve
        share = f", of which {duration(reserve)} are for the certificate" if reserve else ""
        takes = f"it may take {duration(need)}{share}"
        if spent + need > self.hours * 3600:
            return f": {duration(spent)} of {duration(self.hours * 3600)} used, {takes}"
        return f" before {self.until}: {takes}" if time.time() + need > end_of(vars(self)) else ""

    def check(self) -> None:
        """Refuse what can be seen to fail before a new or resumed campaign starts."""
        if shutil.which("git") is None:
            raise Refused("git is not installed: install it, since the lineage of a campaign is a git repository")
        is_new = not Ledger.exists(self.name)
        environment = self.new_environment() if is_new else self._resumed().environment
        _check_proposers(self, environment)
        if is_new:
            learned_from(self.advanced.learn_from, environment)
        self.loaded_canceller(environment)
        _check_machine(self, environment)
        if is_new and (late := self.too_late(environment, (), 0.0, self.time_for_a_trial(environment, ()))):
            remedy = "raise hours or until" + ", or use rule = greedy" * self.loaded_rule.certifies
            raise Refused(f"no time for the baseline{late}: {remedy}")
        if not is_new and self.hours * 3600 < (need := environment.budget_seconds + environment.startup_seconds):
            raise Refused(f"hours = {self.hours:g} is less than one trial may take ({duration(need)}): raise hours")

    def open(self) -> Ledger:
        """The campaign's ledger: a new one, or the existing one. Refused if its scores would not be comparable."""
        with FileLock(home() / ".create.lock"):  # of two that start one name, the second opens the first's
            if Ledger.exists(self.name):
                return self._resumed()
            environment, learns = self.new_environment(), self.advanced.learn_from
            return Ledger.create(
                self.name,
                environment,
                source=lasting(self.environment),
                settings=self.settings(secrets.randbelow(2**31) if self.advanced.seed is None else self.advanced.seed),
                isolation=self.isolation.level,
                spec=self.toml(),
                more={LEARNED: lessons_json(learned_from(learns, environment))} if learns else {},
            )

    def store(self, ledger: Ledger) -> None:
        """Write spec.toml and log what changed since the last life. The caller must hold the campaign's lock."""
        before, now = ledger.spec, tomllib.loads(self.toml())
        changed = {key: [before.get(key), now.get(key)] for key in before | now if before.get(key) != now.get(key)}
        if changed:
            write_atomic(ledger.path / "spec.toml", self.toml())
            ledger.event("guards", changed=changed)

    def toml(self) -> str:
        """The spec as a file for `nightshift run`."""
        return tomlkit.dumps(self.model_dump(exclude_none=True) | {"environment": lasting(self.environment)})

    def new_environment(self) -> Environment:
        """The environment as it would be frozen now, checked. Refused if it cannot be used."""
        return checked_environment(self.environment, self.advanced.overrides, here=self.launch == "here")

    def settings(self, seed: int) -> Settings:
        """The fixed options besides the environment, with the seed that was drawn if none was stated."""
        stated = self.model_dump() | self.advanced.model_dump() | {"seed": seed}
        return Settings(**{name: stated[name] for name in Settings.model_fields})

    def _resumed(self) -> Ledger:
        ledger = Ledger.open(self.name)
        for option, has, asked in differences(ledger, self):
            raise Refused(
                f"campaign {self.name!r} has {option} = {has!r}, asked for is {asked!r}: it changes scores or "
                "verdicts, so it is fixed. Leave it out, or start a campaign with another name"
            )
        ledger.verify()
        return ledger


def _check_proposers(spec: CampaignSpec, environment: Environment) -> None:
    """Refuse a proposer or fallback that cannot be run with these options."""
    proposer, fallback, advanced = spec.loaded_proposer, propose.load(spec.advanced.fallback, {}), spec.advanced
    if fallback.asks or fallback.edits:
        raise Refused(f"fallback = {advanced.fallback!r} may fail itself: name one without a model, such as tpe")
    if proposer.asks:
        from tasks.llm import prompts  # loads the statistics

        prompts.check(environment.folder)
    if not proposer.edits:
        return
    files = [name for _, name in baseline_files(environment)]  # none of one that is trained elsewhere
    if files and not {*files} & {*environment.editable}:  # edits would make files that nothing runs
        raise Refused(
            f"{environment.folder / FILE}: editable = {list(environment.editable)}, and none of these is a file of its "
            f"program ({capped(', '.join(files), 200)}): list those that a proposer may change"
        )
    level, reach = spec.isolation.level, "could reach your files: see `nightshift doctor`"
    if advanced.approval != "none" and level == "none":
        raise Refused(f"approval = {advanced.approval!r} at isolation none: a new program runs before it, and {reach}")
    if not spec.isolation.may_run("an edit"):
        edits = f"proposer {spec.proposer!r} edits programs, which at isolation {level} {reach}"
        raise Refused(f"{edits}, or pass --allow-unsandboxed")


def _check_machine(spec: CampaignSpec, environment: Environment) -> None:
    """Refuse what this machine, or the place where its trials run, does not offer."""
    if spec.launch == "here":
        check_given(spec.isolation.level, home(), outside(environment))
        slots = [part.name for part in spec.slots(environment).parts]
        if spec.parallel > len(slots):
            has = f"this machine has {len(slots)} for {environment.name} ({', '.join(slots)})"
            raise Refused(f"parallel = {spec.parallel} slots, but {has}: lower it")
    if environment.remote:
        if spec.launch != "here":
            fact = f"launch = {spec.launch!r}, but trainer {environment.trainer} trains elsewhere"
            raise Refused(f"{fact}: leave it out")
        place = places.load(environment.trainer, environment.remote.model_dump())
        if runtime.flow_run.id is not None:  # its login is in a block
            place.check()


def checked_environment(
    reference: str, overrides: dict[str, Value], trust: bool = False, here: bool = True
) -> Environment:
    """Load an environment, and check everything that can be checked without training.

    A Gymnasium environment is made and reset once. Refused before that if it asks for more than its own folder and
    nobody has agreed (flows/spec/permissions.py). (trust: agrees; here: its programs are started on this machine)
    """
    environment = permissions.require_named(reference, overrides, trust)
    check_environment(environment, here)
    return environment


def check_environment(environment: Environment, here: bool = True) -> None:
    """Refuse an environment whose judge or program cannot be started."""
    environment.check()
    train.check(environment)
    evaluate.check(environment)
    if here:
        imports.check_commands(environment)


def differences(ledger: Ledger, spec: CampaignSpec) -> list[tuple[str, object, object]]:
    """The fixed options in which a spec differs from the campaign: name, the campaign's value, the spec's."""
    campaign = ledger.campaign
    settings = spec.settings(campaign.seed if spec.advanced.seed is None else spec.advanced.seed)
    asked = settings.model_dump() | {"environment": lasting(spec.environment)}
    has = campaign.model_dump() | {"environment": lasting(campaign.source)}
    return [(name, has[name], asked[name]) for name in FIXED if has[name] != asked[name]]


def _reusable(environment: Environment, history: History) -> int:
    """The search's runs of the baseline that a certificate can count on; none where drift could not be told."""
    if environment.prepare:
        return 0
    if not baseline(history):
        return REUSED
    runs = searched(history)
    return 0 if drift(runs, runs, by_time=not environment.budget_steps) else len(runs)


def besides_training(environment: Environment, history: History) -> float:
    """The longest time in seconds that a run took besides training."""
    longest = []
    for trial in history:
        if "untrained" in trial.verdict.evidence:  # it holds a second start and judgement (tasks/control.py)
            continue
        runs = [*trial.runs, *(rerun.run for rerun in trial.reruns)]
        # Of runs side by side, which are judged side by side, the last is judged while none trains.
        turns = merged((run.started, run.started + max(run.wall_seconds, run.seconds)) for run in runs)
        # After a resume, less wall time may have been measured than training took.
        judged = max(trial.wall_seconds - sum(end - begin for begin, end in turns), 0.0) / len(turns)
        longest.append(judged + sum(max(run.wall_seconds - run.seconds, 0.0) for run in runs) / len(runs))
    return max(longest, default=environment.startup_seconds)
