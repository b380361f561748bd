"""What a report says of a campaign: the status document (flows/status.py) and the values behind it, in words."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows import status
from flows.report import figures
from tasks.describe import changes, in_short, short_value
from tasks.numbers import duration
from tasks.plots import progress
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.spending import parts
from tasks.stats.certificate import Certificate
from tasks.store.earlier_campaigns import HISTORY
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean, known_secrets, one_line, scrub, without_passwords
from tasks.trial import History, Trial, baseline, best

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REASON, INCIDENTS = 160, 60
"""Characters of a reason in a table, and incidents that are shown."""
TOLD = ("orphans", "prefect", "remote", "tracking", "machine", "rerun", "guards", "launch", "view")
"""Events that are told as they are."""
NUMBER = re.compile(r"-?\d[\d.,e+-]*")
FEWEST = 6
"""Scored trials that TPE needs to suggest something."""


@dataclass(frozen=True)
class Facts:
    ledger: Ledger
    document: Mapping[str, Any]
    """The campaign's status."""
    history: History
    own: tuple[Certificate, ...]
    """Certificates of its own environment, in their order."""
    certificate: Certificate | None
    """The one that decides."""
    champion: Trial | None
    """The trial of the certificate, where there is one."""

    @classmethod
    def of(cls, ledger: Ledger, ending: status.CampaignEnd | None = None, trial: Trial | None = None) -> Facts:
        """Those of a campaign, whose end may be near; of one trial, as if it alone had certificates."""
        document, history = status.document(ledger, ending), without_secrets(ledger.history())
        own = ledger.own_certificates()
        if trial:
            own = tuple(one for one in own if one.champion == trial.number and one.runs)
            is_unproven = not own and not status.certifies(ledger.campaign.rule)
            document |= {"result": status.result(ledger, history, own, document["uncertified"], is_unproven)}
        certificate = status.decisive(history, own)
        number = certificate.champion if certificate else None
        champion = next((one for one in history if one.number == number), None) or best(history)
        return cls(ledger, document, history, own, certificate, champion)

    @property
    def is_running(self) -> bool:
        return bool(self.document["state"] == "running")

    @cached_property
    def answers(self) -> dict[str, str]:
        """What a morning asks besides the verdict, in short."""
        cost = ", ".join(self.costs)
        return {"What changed?": self._changed(), "What did it cost?": cost, "What next?": self._next()}

    def _changed(self) -> str:
        champion, first = self.champion, baseline(self.history)
        old = first.proposal if first else None
        changed = changes(champion.proposal, old) if champion and champion is not first else []
        return ", ".join(changed) or "Nothing: program and parameters are the baseline's."

    def _next(self) -> str:
        state, reason = self.document["state"], self.document["reason"]
        if self.is_running:
            return "It goes on."
        if state == "failed" and reason:  # with its remedy
            return f"{reason[0].upper()}{reason[1:]}."
        if state in ("stopped", "interrupted"):
            return f"nightshift resume {self.ledger.campaign.name} goes on."
        return self.idea.get("words", "No suggestion.")

    @property
    def costs(self) -> tuple[str, ...]:
        """Time, trials, fresh runs, money, GPU hours and model calls, as far as there were any."""
        spent, fresh = self.document["spent"], sum(len(one.runs) - one.carried for one in self.ledger.certificates())
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
    def idea(self) -> dict[str, str]:
        """{words, why, command}: what TPE would try next with the champion's program, a guess. Empty while it runs: it
        would take time from trials.
        """
        champion, scored = best(self.history), sum(trial.score.value is not None for trial in self.history)
        if self.is_running or champion is None or scored < FEWEST:
            return {}
        if (suggestion := Tpe().propose(Brief(self.ledger.environment.space, self.history))) is None:
            return {}
        diff = _quoted(self.ledger.place_of(champion).diff)
        attempt = f"nightshift try --in {self.ledger.campaign.name}{f' --diff {diff}' * bool(champion.proposal.edit)}"
        return {
            "words": ", ".join(f"{name} = {short_value(value)}" for name, value in suggestion.params.items()),
            "why": f"Not tried yet: {suggestion.rationale}.",
            "command": f"{attempt} --params {shlex.quote(json.dumps(suggestion.params))}",
        }

    @cached_property
    def progress(self) -> Figure:
        """The campaign in one figure."""
        of = self.ledger.environment
        return progress.draw(self.history, of.metric, of.higher_is_better, self.own)

    @cached_property
    def importances(self) -> dict[str, float]:
        """None while it runs."""
        return {} if self.is_running else figures.importances(self.ledger.environment, self.history)

    @property
    def reproduce(self) -> str:
        """The command that repeats the comparison; without a champion, the search under another name."""
        name = self.ledger.campaign.name
        if self.champion is None or self.champion.number == 0:
            until = f" --until {moment[11:16]}" if (moment := self.document["spec"].get("until")) else ""
            return f"nightshift run {_quoted(self.ledger.path / 'spec.toml')} --name {name}-again{until}"
        free = " --allow-unsandboxed" * bool(self.document["spec"].get("advanced", {}).get("allow_unsandboxed"))
        return f"nightshift compare {name}/{self.champion.number} {name}/baseline{free}"

    @property
    def origin(self) -> dict[str, str]:
        """Versions and settings that the result depends on."""
        campaign, spec, environment = self.ledger.campaign, self.document["spec"], self.ledger.environment
        cores = f"{environment.cores} cores per run" if environment.cores else "shared cores"
        reported = {"scores": "reported by the endpoint that trained, not measured here"}
        same = {key: str(getattr(campaign, key)) for key in ("isolation", "proposer", "rule", "seed", "digest")}
        return {
            "campaign": f"{campaign.name} ({campaign.campaign_id}), begun with Nightshift {campaign.version}",
            "environment": f"{campaign.environment}, from {campaign.source}",
            "machine": f"{self.document['machine'] or 'not recorded'}, {cores}",
            "budget": f"{environment.budget_seconds:g} s per run, {spec['trials']} trials, {spec['hours']:g} h",
            "trained with": f"{environment.trainer} on {environment.device}",
            **same,
            **(reported if environment.scores_are_reported else {}),
        }


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
                yield "resumed", one_line(f"{duration(event.get('spent_before', 0.0))} in, {what}", 2 * REASON)
            ended = {}
        elif kind in ("end", "continued"):  # version 0.6 went on in another flow run
            ended = event if kind == "end" else {"state": "finished"}
        elif kind in TOLD and event.get("what") not in ("asked", "begun"):  # as every launch is
            facts = (f"{key}: {value}" for key, value in event.items() if key not in ("time", "event", "pid"))
            yield kind, one_line(event.get("words", ", ".join(facts)), 2 * REASON)


def shareable(text: str) -> str:
    """The text without secrets, and with `~` for the user's own folder, whose name may be a person's."""
    own = os.environ.get("HOME", "").rstrip("/")  # empty where it is unset or the root
    return without_passwords(re.sub(rf"(?<![\w.~-]){re.escape(own)}(?![\w.-])", "~", text) if own else text)


def _quoted(path: Path) -> str:
    """A path for a shell, which reads no `~` within quotes."""
    own = Path(os.environ.get("HOME") or "/")
    return f"~/{shlex.quote(str(path.relative_to(own)))}" if path.is_relative_to(own) else shlex.quote(str(path))


def without_secrets(history: History) -> History:
    """The history with `[secret NAME]` in place of each secret, before a long value is cut in the middle of one."""
    secrets = {form: re.sub(r"\W", "_", name) for form, name in known_secrets().items()}
    stored = HISTORY.dump_json(history)
    shown = scrub(stored, secrets)
    return history if shown == stored else HISTORY.validate_json(shown)
