"""The facts of a report, gathered from a campaign's directory."""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from flows import status
from flows.report import incidents, mattered, time_split, timeline, tonight
from flows.report.run_again import run_again
from flows.report.shareable import typed, without_secrets
from flows.report.shown_diff import DiffLine, diff_lines
from flows.spending.summary import parts
from flows.views.terminal import duration
from tasks.certifying.aggregate import aggregates
from tasks.certifying.certificate import Certificate, level, shipped
from tasks.describe import (
    SPREAD_ONLY,
    UNPROVEN,
    bound,
    caution,
    changes,
    confidence,
    cores_per_run,
    counts,
    difference,
    headline,
    mean_of,
    outcome,
    over_environments,
    short_value,
    where,
)
from tasks.numbers import number
from tasks.plots.forest import Forest, forest
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.task_messages import in_short
from tasks.trial import History, Trial, baseline, best, measured

REASON = 160
"""Characters of a reason in a table."""


@dataclass(frozen=True)
class Kept:
    """A trial that replaced the champion."""

    trial: Trial
    score: float | None
    """The mean of its runs, reruns included."""
    level: str
    effect: str
    """Gain over the champion before it, with its 95 % interval by the noise of the search."""
    changed: tuple[str, ...]
    diff: tuple[DiffLine, ...]


@dataclass(frozen=True)
class FailureGroup:
    """Trials that ended for the same reason."""

    kind: str
    reason: str
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Facts:
    ledger: Ledger
    document: Mapping[str, Any]
    """The campaign's status (flows/status.py)."""
    history: History
    own: tuple[Certificate, ...]
    """Certificates of its own environment, in their order."""

    @classmethod
    def of(cls, ledger: Ledger, ending: status.CampaignEnd | None = None) -> Facts:
        history = without_secrets(ledger.history())
        return cls(ledger, status.document(ledger, ending), history, status.certificates(ledger)[0])

    @property
    def name(self) -> str:
        return self.ledger.campaign.name

    @property
    def written(self) -> str:
        """Now, on this machine's clock: a page of a campaign that was killed since still says that it runs."""
        return time.strftime("%Y-%m-%d %H:%M")

    @property
    def is_running(self) -> bool:
        return bool(self.document["state"] == "running")

    @cached_property
    def verdict(self) -> str:
        """The result in a sentence, without the campaign's name."""
        words = headline(self.history, self.name, self.own).removeprefix(f"{self.name}: ")
        words = words.replace(UNPROVEN, "it ships without a certificate") if self._needs_none else words
        return words[0].upper() + words[1:]

    @cached_property
    def proof(self) -> str:
        """How far the verdict can be believed, with its interval."""
        if self.certificate:
            return outcome(self.certificate)
        if self._needs_none:
            return f"it ships without a certificate: rule {self.ledger.campaign.rule} makes none"
        if self.document["uncertified"]:
            return f"not certified, because {self.document['uncertified']}; the baseline ships"
        if self.champion is None:
            return "no trial has a score" if self.history else "no trial is decided yet"
        return f"{UNPROVEN}; scores of a search overestimate its best"

    @cached_property
    def elsewhere(self) -> Forest | None:
        """The certificates in other environments and for other budgets, side by side; None without one."""
        return forest(self.ledger.certificates())

    @cached_property
    def over_environments(self) -> tuple[str, ...]:
        """A sentence for each aggregate."""
        return tuple(_visible(over_environments(one)) for one in aggregates(self.ledger.certificates()))

    @cached_property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """(where, what of the champion could not be tried there) of each certificate elsewhere that lacks something."""
        every = [one for one in self.ledger.certificates() if one.conditions.left_out]
        return tuple((_visible(where(one)), _visible("; ".join(one.conditions.left_out))) for one in every)

    @cached_property
    def certificate(self) -> Certificate | None:
        """The newest, if it is of the present champion or passed; else the one by which an earlier champion ships."""
        newest, champion = self.own[-1] if self.own else None, best(self.history)
        is_its = newest is not None and champion is not None and newest.champion == champion.number
        return newest if newest is not None and (newest.passed or is_its) else shipped(self.own)

    @property
    def _needs_none(self) -> bool:
        """Whether a trial ships under a rule that makes no certificates."""
        return bool(self.document["shipped_trial"]) and not self.own

    @property
    def tone(self) -> str:
        if self.certificate:
            return "good" if self.certificate.passed else "caution"
        return "bad" if self.document["state"] == "failed" else "plain"

    @cached_property
    def champion(self) -> Trial | None:
        """The champion; the trial of the certificate, where there is one."""
        number = self.certificate.champion if self.certificate else None
        return next((trial for trial in self.history if trial.number == number), None) or best(self.history)

    @cached_property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """The five questions of a morning."""
        return (
            ("Is it real?", self._real()),
            ("What changed?", self._changed()),
            ("What did it cost?", ", ".join(self.costs)),
            ("What failed?", self._failed()),
            ("What next?", self._next()),
        )

    def _real(self) -> str:
        one = self.certificate
        if one is None:
            return f"Not known{' yet' * (not self._needs_none)}: {self.proof}."
        if not one.passed:
            return f"Not shown: {one.reason}{f'; {SPREAD_ONLY}: {one.not_reused}' if one.not_reused else ''}."
        but_for = f", but for {len(one.reused)} of the baseline" if one.reused else ""
        seen = f"{counts(one)} of champion and baseline, which the search has not seen{but_for}"
        return f"Yes, by {seen}. {caution(one).capitalize()}."

    def _changed(self) -> str:
        champion, first = self.champion, baseline(self.history)
        if champion is None:
            return f"Nothing: {self.proof}."
        if champion is first:
            return "Nothing: the baseline stands."
        return ", ".join(changes(champion, first, most=20)) or "Nothing: program and parameters are the baseline's."

    @cached_property
    def costs(self) -> tuple[str, ...]:
        count, (took, *more) = self.document["spent"]["trials"], self.prices
        made = self.ledger.certificates()
        fresh = sum(len(one.runs) - one.carried for one in made)
        proof = [f"{fresh} runs for {'certificates' if len(made) > 1 else 'the certificate'}"] if made else []
        return (took, f"{count} trial{'s' * (count != 1)}", *proof, *more)

    @cached_property
    def prices(self) -> tuple[str, ...]:
        """Time, money, GPU hours and model calls, as far as there were any."""
        return (duration(self.document["spent"]["seconds"]), *parts(self.document))

    def _failed(self) -> str:
        kinds = Counter(trial.verdict.kind for trial in self.history)
        parts = [f"{kinds['crash']} crashed"] if kinds["crash"] else []
        crashes = [failure for failure in self.failures if failure.kind == "crash"]
        if crashes:
            parts[-1] += f" ({capped(crashes[0].reason, 140)})"
        if kinds["cancelled"]:
            parts.append(f"{kinds['cancelled']} stopped early, as they were behind")
        scored = [trial for trial in self.history if trial.verdict.kind != "crash"]
        every = [score for trial in scored for score in (*trial.score.each, *(rerun.score for rerun in trial.reruns))]
        if lost := sum(score.value is None for score in every):
            parts.append(f"{lost} of several runs of a trial crashed")
        if lost := self._crashed_fresh():
            parts.append(f"{lost} fresh run{'s' * (lost > 1)} of the certificate crashed")
        away = any(subject == incidents.SUBJECTS["tracking"] for subject, _ in self.incidents)
        if away and (waiting := self.document["waiting_to_record"]):  # else the last one is just being sent
            parts.append(f"{waiting} record{'s wait' if waiting > 1 else ' waits'} for MLflow")
        return "; ".join(parts) or "Nothing."

    def _crashed_fresh(self) -> int:
        """Fresh runs of the newest certificate without a score."""
        return sum(fresh.score.value is None for fresh in (self.certificate.runs if self.certificate else ()))

    def _next(self) -> str:
        state, reason = self.document["state"], self.document["reason"]
        if self.is_running:
            return "It goes on."
        if state == "failed" and reason:  # with its remedy
            return f"{reason[0].upper()}{reason[1:]}."
        if state in ("stopped", "interrupted"):
            return f"nightshift resume {self.name} goes on."
        if self.certificate and self._crashed_fresh() and self.certificate.comparison is None:  # a crash has cost it
            sides = f"{self.name}/{self.certificate.champion} {self.name}/baseline"
            return f"nightshift compare {sides} compares them again, since a certificate takes no crash back."
        if self.ideas:
            return self.ideas[0].words
        if not self.document["spent"]["trials"]:
            return f"Run it again, since nothing was tried{f': {reason}' if reason else ''}."
        return "No suggestion."

    @cached_property
    def parameters(self) -> tuple[tuple[str, str, str, bool], ...]:
        """(name, the baseline's value, the champion's, whether they differ), the changed ones first."""
        champion, first = self.champion, baseline(self.history)
        if champion is None or first is None:
            return ()
        old, new = first.proposal.params, champion.proposal.params
        rows = [(name, short_value(old.get(name)), short_value(new[name]), old.get(name) != new[name]) for name in new]
        return tuple(sorted(rows, key=lambda row: not row[-1]))

    @cached_property
    def diff(self) -> tuple[DiffLine, ...]:
        """The champion's program against the baseline's."""
        return diff_lines(self.champion.proposal.edit) if self.champion and self.champion.proposal.edit else ()

    @cached_property
    def keeps(self) -> tuple[Kept, ...]:
        kept = [trial for trial in self.history if trial.verdict.kind == "keep" and trial.number > 0]
        return tuple(
            Kept(
                trial, mean_of(self.history, trial.number), level(trial, self.own) or "", self._effect(trial, before),
                tuple(changes(trial, before, 6)),
                diff_lines(trial.proposal.edit) if trial.proposal.edit != before.proposal.edit else (),
            )
            for before, trial in pairwise(filter(None, (baseline(self.history), *kept)))
        )[::-1]  # fmt: skip

    def _effect(self, trial: Trial, before: Trial) -> str:
        new, old = mean_of(self.history, trial.number), mean_of(self.history, before.number)
        if new is None or old is None:
            return "-"
        sd = trial.verdict.evidence.get("run_sd")
        runs = [max(len(measured(self.history, one.number)), 1) for one in (trial, before)]
        if sd is None or not math.isfinite(sd):
            return number(new - old, sign=True)
        half = 1.96 * sd * math.sqrt(sum(1 / count for count in runs))
        gain, low, high = (number(new - old + off, sign=True) for off in (0.0, -half, half))
        return f"{gain} ({low} to {high})"

    @cached_property
    def failures(self) -> tuple[FailureGroup, ...]:
        """Crashed and stopped trials by reason, the most frequent first; numbers in a reason do not tell two apart."""
        groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        for trial in self.history:
            if trial.verdict.kind in ("crash", "cancelled"):
                reason = in_a_line(trial.verdict.reason)
                pattern = re.sub(r"-?\d[\d.,e+-]*", "#", reason) if trial.verdict.kind == "crash" else ""
                groups[trial.verdict.kind, pattern].append(trial)
        found = [
            FailureGroup(kind, in_a_line(trials[-1].verdict.reason), tuple(trials))
            for (kind, _), trials in groups.items()
        ]
        return tuple(sorted(found, key=lambda one: (one.kind != "crash", -len(one.trials))))

    @cached_property
    def ideas(self) -> tuple[tonight.Idea, ...]:
        """None while it runs: making them would take time from the trials."""
        if self.is_running:
            return ()
        return tonight.ideas(self.ledger.environment, self.history, self._run, self.document, self._program)

    @cached_property
    def importances(self) -> tuple[mattered.Importance, ...] | str:
        """Or why there are none."""
        if self.is_running:
            return "Computed at the end of the campaign."
        return mattered.importances(self.ledger.environment, self.history)

    @cached_property
    def time(self) -> tuple[time_split.TimePart, ...]:
        spent = self.document["spent"]
        return time_split.time_split(spent["slots"], self.document["spec"].get("parallel", 1) * spent["seconds"])

    @cached_property
    def timeline(self) -> timeline.Tracks:
        return timeline.tracks(self.history, self.ledger.certificates(), self.ledger.events())

    @cached_property
    def incidents(self) -> tuple[tuple[str, str], ...]:
        """(subject, what happened), in order: interruptions and outages, then fallbacks and refused proposals."""
        befallen = tuple(incidents.incidents(self.ledger.events()))
        proposals = [(f"trial {one['trial']}: {one['kind']}", one["words"]) for one in self.document["incidents"]]
        return (*incidents.newest(befallen), *incidents.newest(proposals))

    @cached_property
    def reproduce(self) -> str:
        """The command that repeats the comparison."""
        if self.champion is None or self.champion.number == 0:
            return self._run
        runs = max(len(self.certificate.scores("champion")), 2) if self.certificate else 3
        free = " --allow-unsandboxed" * bool(self.document["spec"]["advanced"].get("allow_unsandboxed"))
        return f"nightshift compare {self.name}/{self.champion.number} {self.name}/baseline --runs {runs}{free}"

    @property
    def _program(self) -> str:
        """The option of `nightshift try` for the champion's program, after a space; empty for the baseline's."""
        champion = best(self.history)
        if champion is None or not champion.proposal.edit:
            return ""
        return f" --diff {typed(str(self.ledger.place_of(champion).diff))}"

    @property
    def _run(self) -> str:
        return run_again(self.ledger.campaign, self.document["spec"])

    @cached_property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Versions and settings that the result depends on."""
        campaign, spec = self.ledger.campaign, self.document["spec"]
        reported, trials = self.ledger.environment.scores_are_reported, spec["trials"]
        return (
            ("campaign", f"{campaign.name} ({campaign.campaign_id})"),
            ("environment", f"{campaign.environment}, from {campaign.source}"),
            ("begun with", f"Nightshift {campaign.version}"),
            ("machine", f"{self.document['machine'] or 'not recorded'}, {cores_per_run(self.ledger.environment)}"),
            ("isolation", campaign.isolation),
            *[("scores", "reported by the endpoint that trained, not measured here")] * reported,
            ("proposer", campaign.proposer),
            ("rule", campaign.rule),
            ("seed", str(campaign.seed)),
            (
                "budget",
                f"{self.ledger.environment.budget_seconds:g} s per run, {trials} trial{'s' * (trials > 1)}, "
                f"{spec['hours']:g} h",
            ),
            ("digest", campaign.digest),
        )

    @property
    def gain(self) -> str:
        """The gain of what ships, by its certificate; a dash without one."""
        one = shipped(self.own)
        return difference(one, one.comparison.gain) if one and one.passed and one.comparison else "-"

    @property
    def least(self) -> str:
        """The end of that gain's interval that counts, with its confidence; empty without one."""
        one = shipped(self.own)
        return f"{bound(one)} ({confidence(one)})" if one and one.passed and one.bounds else ""


def in_a_line(reason: str) -> str:
    """A reason, with the last line of a log that may follow it."""
    return capped(in_short("\n".join(clean(reason))), REASON)


def _visible(text: str) -> str:
    """A text with names of folders and parameters, which may hold characters that control or hide others."""
    return " ".join(clean(text))
