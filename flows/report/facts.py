"""What a report says of a campaign: the status document (flows/status.py) and the values behind it, in words."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flows import status
from flows.report import figures, ideas
from flows.report.shareable import without_secrets
from flows.views.terminal import duration
from tasks.describe import changes, in_short
from tasks.spending import parts
from tasks.stats.certificate import Certificate
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import History, Trial, baseline, best

REASON, INCIDENTS = 160, 60
"""Characters of a reason in a table, and incidents that are shown."""
TOLD = ("orphans", "prefect", "tracking", "machine", "rerun", "guards", "launch", "view")
"""Events that are told as they are."""
NUMBER = re.compile(r"-?\d[\d.,e+-]*")


@dataclass(frozen=True)
class Facts:
    ledger: Ledger
    document: Mapping[str, Any]
    """The campaign's status."""
    history: History
    own: tuple[Certificate, ...]
    """Certificates of its own environment, in their order."""
    elsewhere: tuple[Certificate, ...]

    @classmethod
    def of(cls, ledger: Ledger, ending: status.CampaignEnd | None = None) -> Facts:
        document, history = status.document(ledger, ending), without_secrets(ledger.history())
        return cls(ledger, document, history, *status.certificates(ledger))

    def of_trial(self, trial: Trial) -> Facts:
        """The same facts, of the certificates only those of one trial."""
        own = tuple(one for one in self.own if one.champion == trial.number and one.runs)
        is_unproven = not own and not status.certifies(self.ledger.campaign.rule)
        result = status.result(self.ledger, self.history, own, self.document["uncertified"], is_unproven)
        return replace(self, document={**self.document, "result": result}, own=own)

    @property
    def name(self) -> str:
        return self.ledger.campaign.name

    @property
    def is_running(self) -> bool:
        return bool(self.document["state"] == "running")

    @property
    def verdict(self) -> str:
        return str(self.document["result"]["verdict"])

    @property
    def proof(self) -> str:
        return str(self.document["result"]["proof"])

    @cached_property
    def certificate(self) -> Certificate | None:
        return status.decisive(self.history, self.own)

    @property
    def tone(self) -> str:
        """A class of the style sheet."""
        if self.certificate:
            return "good" if self.certificate.passed else "caution"
        return "bad" if self.document["state"] == "failed" else "plain"

    @cached_property
    def champion(self) -> Trial | None:
        """The champion; the trial of the certificate, where there is one."""
        number = self.certificate.champion if self.certificate else None
        return next((trial for trial in self.history if trial.number == number), None) or best(self.history)

    @cached_property
    def trials(self) -> tuple[tuple[Trial, Mapping[str, Any]], ...]:
        """Each trial with its row of the document, the newest first."""
        rows = self.document["trials"]  # which were read first: a trial may have been decided since
        return tuple(zip(self.history, rows, strict=False))[::-1]

    @cached_property
    def answers(self) -> dict[str, str]:
        """What a morning asks besides the verdict, in short."""
        cost = ", ".join(self.costs)
        return {"What changed?": self._changed(), "What did it cost?": cost, "What next?": self._next()}

    def _changed(self) -> str:
        champion, first = self.champion, baseline(self.history)
        if champion is None or champion is first:
            return "Nothing: the baseline stands." if champion else f"Nothing: {self.proof}."
        return ", ".join(changes(champion.proposal, first)) or "Nothing: program and parameters are the baseline's."

    def _next(self) -> str:
        state, reason = self.document["state"], self.document["reason"]
        if self.is_running:
            return "It goes on."
        if state == "failed" and reason:  # with its remedy
            return f"{reason[0].upper()}{reason[1:]}."
        if state in ("stopped", "interrupted"):
            return f"nightshift resume {self.name} goes on."
        return self.ideas[0].words if self.ideas else "No suggestion."

    @cached_property
    def costs(self) -> tuple[str, ...]:
        """Time, trials, fresh runs, money, GPU hours and model calls, as far as there were any."""
        spent, fresh = self.document["spent"], sum(len(one.runs) - one.carried for one in (*self.own, *self.elsewhere))
        trials = f"{spent['trials']} trial{'s' * (spent['trials'] != 1)}"
        return (duration(spent["seconds"]), trials, *[f"{fresh} fresh runs"] * bool(fresh), *parts(self.document))

    @cached_property
    def failures(self) -> tuple[tuple[str, str, tuple[Trial, ...]], ...]:
        """(how, the last one's reason, trials): crashes by reason whatever its numbers, and what was stopped early."""
        groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        for trial in self.history:
            if (kind := trial.verdict.kind) in ("crash", "cancelled"):
                reason = NUMBER.sub("#", in_a_line(trial.verdict.reason)) if kind == "crash" else ""
                groups[kind, reason].append(trial)
        return tuple((kind, in_a_line(some[-1].verdict.reason), tuple(some)) for (kind, _), some in groups.items())

    @cached_property
    def incidents(self) -> tuple[tuple[str, str], ...]:
        """(subject, what happened): interruptions and outages, then fallbacks and refused proposals."""
        proposals = [(f"trial {one['trial']}: {one['kind']}", one["words"]) for one in self.document["incidents"]]
        return (*_befallen(self.ledger.events()), *proposals)[-INCIDENTS:]

    @cached_property
    def ideas(self) -> tuple[ideas.Idea, ...]:
        """None while it runs: making them would take time from the trials."""
        champion = best(self.history)
        program = champion.proposal.edit if champion else None
        edit = f" --diff {shlex.quote(str(self.ledger.place_of(champion).diff))}" if champion and program else ""
        attempt = f"nightshift try --in {self.name}{edit}"
        environment = self.ledger.environment
        return () if self.is_running else ideas.ideas(environment, self.history, self.run_again, attempt)

    @cached_property
    def importances(self) -> dict[str, float] | str:
        """Or why there are none."""
        if self.is_running:
            return "Computed at the end of the campaign."
        return figures.importances(self.ledger.environment, self.history)

    @property
    def run_again(self) -> str:
        """The command that runs the same search under another name, with the campaign's own specification."""
        return f"nightshift run {shlex.quote(str(self.ledger.path / 'spec.toml'))} --name {self.name}-again"

    @cached_property
    def reproduce(self) -> str:
        """The command that repeats the comparison."""
        if self.champion is None or self.champion.number == 0:
            return self.run_again
        runs = max(len(self.certificate.scores("champion")), 2) if self.certificate else 3
        free = " --allow-unsandboxed" * bool(self.document["spec"].get("advanced", {}).get("allow_unsandboxed"))
        return f"nightshift compare {self.name}/{self.champion.number} {self.name}/baseline --runs {runs}{free}"

    @cached_property
    def origin(self) -> dict[str, str]:
        """Versions and settings that the result depends on."""
        campaign, spec, environment = self.ledger.campaign, self.document["spec"], self.ledger.environment
        cores = f"{environment.cores} cores per run" if environment.cores else "shared cores"
        reported = {"scores": "reported by the endpoint that trained, not measured here"}
        return {
            "campaign": f"{campaign.name} ({campaign.campaign_id})",
            "environment": f"{campaign.environment}, from {campaign.source}",
            "begun with": f"Nightshift {campaign.version}",
            "machine": f"{self.document['machine'] or 'not recorded'}, {cores}",
            "isolation": campaign.isolation,
            **(reported if environment.scores_are_reported else {}),
            "proposer": campaign.proposer, "rule": campaign.rule, "seed": str(campaign.seed),
            "budget": f"{environment.budget_seconds:g} s per run, {spec['trials']} trials, {spec['hours']:g} h",
            "trained with": f"{environment.trainer} on {environment.device}",
            "digest": campaign.digest,
        }  # fmt: skip


def in_a_line(reason: str) -> str:
    """A reason, with the last line of a log that may follow it."""
    return capped(in_short("\n".join(clean(reason))), REASON)


def visible(text: object) -> str:
    """A text in a line, without characters that control or hide others."""
    return " ".join(clean(str(text)))


def _befallen(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(subject, what happened) of interruptions and outages, in the order of the events."""
    ended: Mapping[str, Any] = {"state": "finished"}  # how the process before ended; empty: it did not say
    for event in events:
        kind = event["event"]
        if kind == "life":
            if ended.get("state") != "finished":
                what = f"it stopped: {ended['reason']}" if ended else "its process was killed or interrupted"
                yield "resumed", capped(visible(f"{duration(event.get('spent_before', 0.0))} in, {what}"), 2 * REASON)
            ended = {}
        elif kind in ("end", "continued"):  # continued by the next flow run
            ended = event if kind == "end" else {"state": "finished"}
        elif kind in TOLD and event.get("what") != "begun":  # a launch
            facts = (f"{key}: {value}" for key, value in event.items() if key not in ("time", "event", "pid"))
            yield kind, capped(visible(event.get("words", ", ".join(facts))), 2 * REASON)
