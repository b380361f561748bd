"""A campaign's status as one JSON document, read from its directory, whichever process runs it.

Everything that people see of a campaign is made from this document: terminal, live view, artifacts in Prefect.
"""

from __future__ import annotations

import glob
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from environments import earlier_trials, plugins, safe_open
from environments.score import Score
from flows.spec.spec import end_of, reserved
from tasks import describe
from tasks.describe import caution, headline, in_short, mean_of, outcome, setting
from tasks.numbers import number
from tasks.rules import Rule
from tasks.sandbox.progress import numbers, parse_report
from tasks.spending import money, slot_use, spent
from tasks.stats.certificate import Certificate, level, shipped
from tasks.stats.champion import run_sd, utility
from tasks.stats.design import Arm
from tasks.store import approval, campaign_lock, provenance, workspace
from tasks.store.ledger import Ledger, campaigns, check_name, ended_search
from tasks.store.workspace import TrialDir
from tasks.system.daemon import Daemon, own_servers
from tasks.system.redact import clean
from tasks.tracking import sync
from tasks.trial import History, Proposal, Trial, baseline, best, budgets_used, machine_of, measured

RULES = "tasks.rules"
IMPORTED_BEST = 10
"""Imported trials that are told one by one."""
SURE_SES = 2
"""Standard errors to either side within which an estimate is likely."""
RECENT = 10
"""Trials whose time tells how long the next ones take."""
TAIL_BYTES = 2**16
"""The end of a program's reports in which its newest one is looked for."""


@dataclass(frozen=True)
class CampaignEnd:
    """How a campaign that still holds its lock is about to end: finished, failed or stopped, and why."""

    state: str
    reason: str


def document(ledger: Ledger, ending: CampaignEnd | None = None) -> dict[str, Any]:
    """The campaign's status; the shape is documented in docs/results.md."""
    campaign, history, steps = ledger.campaign, ledger.history(), ledger.environment.budget_steps
    every, own = ledger.certificates(), ledger.own_certificates()
    how = ending.state if ending else state(ledger)
    spec, champion = ledger.spec, best(history)
    is_tested = bool(own) and (champion is None or own[-1].champion == champion.number)
    uncertified = None if how == "running" or is_tested else _uncertified(ledger)
    ships = _shipped(ledger, history, own, how)
    now = under_way(ledger, history) if how == "running" else {"under_way": [], "certifying": None}
    return {
        "campaign": campaign.name, "campaign_id": campaign.campaign_id, "environment": campaign.environment,
        "folder": str(ledger.path.absolute()),
        "metric": ledger.environment.metric, "direction": ledger.environment.direction,
        "step_budget": f"budget_steps = {steps} (self-reported)" if steps else "", "state": how,
        "reason": ending.reason if ending else ended_search(ledger).get("reason"),
        "headline": f"{campaign.name}: {headline(history, own)}",
        "result": result(ledger, history, own, uncertified, bool(ships["shipped_trial"]) and not own),
        "spec": spec, "seed": campaign.seed, "isolation": campaign.isolation,
        "machine": machine_of(history), "cores": ledger.environment.cores,
        "baseline": _scored(history, baseline(history)),
        "champion": of_champion(history, champion, own),
        **ships,
        "certificate": of_certificate(own[-1]) if own else None,
        "reserved": _reserved(ledger, history),
        "uncertified": uncertified,
        "ablation": _ablation(ledger, own),
        "transfers": [of_certificate(one) for one in every if one.elsewhere],
        "cancelled": {"due": sum(run.due is not None for trial in history for run in trial.runs)},
        "imported": _imported(ledger),
        "trials": list(rows(history, own)),
        **now,
        "ends": _ends(ledger, history, now["certifying"]) if how == "running" and history else None,
        **provenance.proposals(ledger, history),
        "spent": {
            "seconds": round(campaign_lock.spent(ledger), 1),
            "trials": len([trial for trial in history if trial.number > 0]),
            "slots": slot_use(ledger.events(), spec.get("parallel", 1) * campaign_lock.spent(ledger)),
            **money(ledger, history),
        },
        "waiting_to_record": sync.waiting(ledger, history),
        "urls": urls(ledger),
        "servers": own_servers(ledger.path.parent),
    }  # fmt: skip


def result(
    ledger: Ledger, history: History, own: Sequence[Certificate], uncertified: str | None, ships_unproven: bool
) -> dict[str, str]:
    """What was found in a sentence, and how far that can be believed. (ships_unproven: a rule made no certificate)"""
    champion, verdict = best(history), headline(history, own).removesuffix(f"; {describe.UNPROVEN}")
    if one := decisive(history, own):
        spread = f"{describe.NOT_COUNTED}: {one.not_reused}" if one.not_reused and not one.passed else ""
        proof = "; ".join(filter(None, (outcome(one), spread, caution(one))))
    elif ships_unproven:
        proof = f"it ships without a certificate: rule {ledger.campaign.rule} makes none"
    elif uncertified:
        proof = f"not certified, because {uncertified}; the baseline ships"
    elif champion is None:
        proof = "no trial has a score" if history else "no trial is decided yet"
    else:
        proof = f"{describe.UNPROVEN}; scores of a search overestimate its best"
        if champion.number and (likely := estimate(history, champion)):
            low, high = (likely["level"] + side * SURE_SES * likely["se"] for side in (-1, 1))
            proof += f", whose true mean is likely between {number(low)} and {number(high)}"
    return {"verdict": verdict[0].upper() + verdict[1:], "proof": proof}


def decisive(history: History, own: Sequence[Certificate]) -> Certificate | None:
    """The newest certificate, if it is of the present champion or passed; else that by which an earlier one ships."""
    newest, champion = own[-1] if own else None, best(history)
    is_its = newest is not None and champion is not None and newest.champion == champion.number
    return newest if newest is not None and (newest.passed or is_its) else shipped(own)


def _shipped(ledger: Ledger, history: History, own: Sequence[Certificate], how: str) -> dict[str, Any]:
    """What ships, once known: a certified trial, the baseline, or what a rule without certificates has kept.

    Under such a rule a champion whose certificate did not pass does not ship either.
    """
    champion, passed, trial = best(history), shipped(own), None
    is_untested = champion and all(one.champion != champion.number for one in own)
    if how == "running" or champion is None:
        pass  # not yet
    elif passed:
        trial = passed.champion
    elif how == "finished" and is_untested and not certifies(ledger.campaign.rule):
        trial = champion.number
    elif own or how in ("finished", "failed"):
        trial = 0
    return {"shipped": None if trial is None else "champion" if trial else "baseline", "shipped_trial": trial}


def _reserved(ledger: Ledger, history: History) -> dict[str, Any] | None:
    """The runs that time is reserved for from the start, and the looks at them; None if the rule certifies nothing."""
    spec, environment = ledger.spec, ledger.environment
    if not certifies(ledger.campaign.rule) or environment.scores_are_reported:
        return None
    champion = best(history)
    made = [one for one in ledger.own_certificates() if champion and one.champion != champion.number]
    design = reserved(spec, environment, ledger.campaign.created, made)
    return {"champion": design.champion, "baseline": design.baseline, "looks": [list(one) for one in design.groups]}


def _uncertified(ledger: Ledger) -> str | None:
    """Why the last life that searched made no certificate; None if it gave no reason."""
    searched = (one for one in ledger.events() if one["event"] in ("life", "uncertified") and "certify" not in one)
    return [None, *(one.get("reason") for one in searched)][-1]


def _ablation(ledger: Ledger, own: Sequence[Certificate]) -> list[str]:
    """The worth of each change of the newest certified champion, in words, where an ablation was asked for."""
    passed = shipped(own)
    ablation = ledger.ablation(passed.champion) if passed else None
    return ablation.sentences() if ablation else []


def certifies(rule: str) -> bool:
    """Whether a campaign under this rule ends with a certificate, as under every rule that there was once."""
    return rule not in plugins.names(RULES) or plugins.load(RULES, rule, Rule).certifies  # type: ignore[type-abstract]


def state(ledger: Ledger) -> str:
    """running, finished, failed, stopped, or interrupted (its last life was cut off)."""
    if campaign_lock.is_running(ledger):
        return "running"
    cut_off = bool(ledger.pending_attempts())  # a rerun
    return "interrupted" if cut_off else str(ended_search(ledger).get("state", "interrupted"))


def urls(ledger: Ledger) -> dict[str, str]:
    """The addresses of the campaign's trials in MLflow, and of its last life in Prefect."""
    pages = [event["page"] for event in ledger.events() if event["event"] == "life" and event.get("page")]
    links = {f"mlflow_{key}": value for key, value in sync.last(ledger).urls.items()}
    mlflow = Daemon(ledger.path.parent / ".prefect", "mlflow")
    if links.get("mlflow_command") == "nightshift up" and (up := mlflow.living()):
        links = {"mlflow_url": up.url + links["mlflow_path"]}
    return ({"prefect": pages[-1]} if pages else {}) | links


def summaries() -> list[dict[str, Any]]:
    """Every campaign of this home in a line, the newest last; of one that cannot be read, why."""
    lines = []
    for name in campaigns():
        try:
            check_name(name)  # any folder can hold a campaign.json, and a name becomes a link
            lines.append(summary(Ledger.open(name)))
        except (plugins.Refused, OSError, ValueError) as fault:
            words = f"cannot be read: {fault}"
            lines.append({"campaign": name, "state": "unreadable", "headline": words, "created": 0.0})
    return sorted(lines, key=lambda line: (line["created"], line["campaign"]))


def summary(ledger: Ledger) -> dict[str, Any]:
    """A campaign in a line, of the list and of the page of all campaigns."""
    history, own, name = ledger.history(), ledger.own_certificates(), ledger.campaign.name
    passed, so_far, gain = shipped(own), spent(ledger, history), None
    if passed and passed.comparison:
        gain = f"{describe.difference(passed, passed.comparison.gain)} ({describe.bound(passed) or 'no spread'})"
    return {
        "campaign": name, "environment": ledger.campaign.environment, "metric": ledger.environment.metric,
        "state": state(ledger), "headline": headline(history, own),
        "trials": len([trial for trial in history if trial.number > 0]),
        "baseline": _scored(history, baseline(history)), "champion": of_champion(history, best(history), own),
        "gain": gain, "created": ledger.campaign.created, "seconds": round(campaign_lock.spent(ledger), 1),
        "usd": so_far.usd if so_far.anything else None,
    }  # fmt: skip


def _scored(history: History, trial: Trial | None) -> dict[str, Any] | None:
    """A trial's mean over all of its runs."""
    if trial is None:
        return None
    known = [score for score in measured(history, trial.number) if score.value is not None]
    score = Score.over(known) if known else trial.score
    runs = len(known) or len(trial.runs)
    measurement = {"score": score.value, "se": score.se, "n": score.n, "runs": runs}
    return {"trial": trial.number, **measurement, "params": trial.proposal.params}


def of_champion(history: History, champion: Trial | None, own: Sequence[Certificate]) -> dict[str, Any] | None:
    """A champion as the status shows it; None without one."""
    if champion is None:
        return None
    believed = {"level": level(champion, own), "estimate": estimate(history, champion)}
    return (_scored(history, champion) or {}) | believed


def estimate(history: History, champion: Trial) -> dict[str, float] | None:
    """The estimate of the mean of the search's champion, in the metric's own sign; None for any other trial.

    None too where it is beyond any number, or no program ran twice with different scores, so that noise is a guess.
    """
    mean, sd, newest = mean_of(history, champion.number), run_sd(history), best(history)
    if newest is None or newest.number != champion.number or mean is None or not sd:
        return None
    numbers = {"level": mean, "se": sd / math.sqrt(len(utility(history, champion.number))), "run_sd": sd}
    return numbers if all(map(math.isfinite, numbers.values())) else None


def of_certificate(one: Certificate) -> dict[str, Any]:
    """One certificate."""
    test = one.comparison
    return {
        "environment": one.environment, "budget": one.conditions.budget,
        "where": setting(one.environment, one.conditions.budget),
        "changed": one.conditions.changed, "left_out": list(one.conditions.left_out),
        "look": one.look, "alpha": one.alpha, "trial": one.champion,
        "passed": one.passed, "reason": one.reason, "level": one.level,
        # The interval that belongs to the test: of a passed one, `low` is above 0.
        "low": one.bounds[0] if one.bounds else None,
        "high": one.bounds[1] if one.bounds else None,
        "gain": test and test.gain, "p": test and test.p, "expected": one.expected,
        "runs": len(one.scores("champion")),
        "planned": dict(zip(describe.ARMS, one.design.groups[-1], strict=True)),
        "looks": [list(group) for group in one.design.groups],
        "reused": [run.score.value for run in one.reused], "not_reused": one.not_reused,
        "same_units": one.same_units, "machines": list(one.machines),
        "champion": _arm(one, "champion"), "baseline": _arm(one, "baseline"),
        "guards": [asdict(guard) | {"loss": guard.loss, "holds": guard.holds} for guard in one.guards],
        "looked_before": one.looked_before, "words": outcome(one), "caution": caution(one),
    }  # fmt: skip


def _arm(one: Certificate, arm: Arm) -> dict[str, Any]:
    return {"mean": one.mean(arm), "values": [score.value for score in one.scores(arm)]}


def _imported(ledger: Ledger) -> dict[str, Any] | None:
    """The trials of another tool that proposers know, the best ones in full; None without any."""
    if not (every := earlier_trials.read(ledger.environment.folder)):
        return None
    sign = -1 if ledger.environment.higher_is_better else 1
    scored = sorted((sign * one.score, place, one) for place, one in enumerate(every, 1) if one.score is not None)
    top = f"the best {number(scored[0][2].score)}" if scored else "none with a score"
    return {
        "count": len(every),
        "scored": len(scored),
        "best": [
            {"number": place, "score_there": one.score, "params": dict(one.params), "note": " ".join(clean(one.note))}
            for _, place, one in scored[:IMPORTED_BEST]
        ],
        "words": f"{len(every)} imported trials, {top}: measured by another tool; proposers know them, "
        "nothing compares with them",
    }


def rows(history: History, own: Sequence[Certificate] = ()) -> Iterator[dict[str, Any]]:
    """The trials of the document, in their order."""
    champion: Trial | None = None
    scores: defaultdict[int, list[float]] = defaultdict(list)  # of every trial, those of its reruns so far included
    for trial in history:
        due = next((run.due for run in trial.runs if run.due), None)
        proposal = trial.proposal
        yield {
            "trial": trial.number, "attempt": trial.attempt, "verdict": trial.verdict.kind, "level": level(trial, own),
            "score": trial.score.value, "gain": _gain(trial, scores[champion.number] if champion else []),
            "se": trial.score.se, "n": trial.score.n, "also": trial.score.also,
            "runs": len(trial.runs), "values": list(trial.score.values),
            "reruns": [{"of": rerun.of, "score": rerun.score.value} for rerun in trial.reruns],
            "due": due and {"fraction": due.fraction, "reason": due.reason},
            "seconds": sum(run.seconds for run in trial.runs),
            "machine": trial.runs[-1].machine if trial.runs else "",
            "params": proposal.params,
            "tried": _tried(trial.number, proposal, champion),
            "description": proposal.rationale, "reason": trial.verdict.reason, "why": in_short(trial.verdict.reason),
            "notes": list(trial.notes), "proposer": proposal.proposer, "model": proposal.model,
            "category": proposal.category, "expected": proposal.expected, "instead_of": proposal.instead_of,
            "usd": trial.cost,
        }  # fmt: skip
        each = [(trial.number, one) for one in trial.score.each] + [(one.of, one.score) for one in trial.reruns]
        for of, score in each:
            scores[of] += [score.value] if score.value is not None else []
        champion = trial if trial.verdict.kind == "keep" else champion


def _gain(trial: Trial, champions: Sequence[float]) -> float | None:
    """By how much a score is better than the mean of the champion of that time; None where one of them is missing."""
    if trial.score.value is None or not champions:
        return None
    more = trial.score.value - statistics.fmean(champions)
    return more if trial.score.higher_is_better else -more


def _tried(number: int, proposal: Proposal, champion: Trial | None) -> str:
    """What a trial changes of the champion of that time."""
    if number == 0:
        return "the baseline"
    return ", ".join(describe.changes(proposal, champion.proposal if champion else None)) or "the champion again"


def under_way(ledger: Ledger, history: History) -> dict[str, Any]:
    """What a running campaign does now: the trials that are trained or judged, and the certificate that is made."""
    waits: dict[int, str] = {}  # for a slot
    certify: Mapping[str, Any] | None = None
    for event in ledger.events():
        match event["event"]:
            case "life":
                waits, certify = {}, None
            case "waiting":
                waits[event["number"]] = event["who"]
            case "slot":
                waits.pop(event["number"], None)
            case "certify" | "certified" as kind:
                certify = event if kind == "certify" else None
    numbers = {int(path.name) for path in ledger.trials.iterdir() if path.name.isdecimal()}
    numbers -= {trial.number for trial in history}
    numbers -= {one.number for one in approval.parked(ledger) if one.state != "approved"}
    numbers |= ledger.pending_attempts().keys()
    begun = [number for number in sorted(numbers) if ledger.place(number).proposal.is_file()]
    return {
        "under_way": [_trial_under_way(ledger, history, number, waits.get(number, "")) for number in begun],
        "certifying": _certifying(ledger, certify) if certify else None,
    }


def _trial_under_way(ledger: Ledger, history: History, number: int, waits_for: str) -> dict[str, Any]:
    """A trial that runs: the run of it that began last, and what that reported last."""
    first, environment = ledger.place(number), ledger.environment
    others = [TrialDir(path) for path in first.path.parent.glob(f"{first.path.name}-*")]
    begun = [(run.config.stat().st_mtime, run) for run in (first, *others) if run.config.is_file()]
    began, run = max(begun, key=lambda one: one[0], default=(math.inf, first))
    training = time.time() - began - environment.startup_seconds
    seconds, value = _newest_report(run.progress, environment.metric) or (training, None)
    phase = "training" if seconds > 0 else "waiting" if waits_for else "starting"
    proposal = workspace.PROPOSAL.validate_json(first.proposal.read_bytes())
    return {
        "trial": number, "run": run.path.name.removeprefix(first.path.name).removeprefix("-"),
        "phase": "judging" if run.judge_log.is_file() else phase, "waits_for": waits_for,
        "seconds": min(max(seconds, 0.0), environment.budget_seconds), "budget_seconds": environment.budget_seconds,
        "value": value, "tried": _tried(number, proposal, best(history)),
        "description": proposal.rationale, "proposer": proposal.proposer,
    }  # fmt: skip


def _newest_report(path: Path, metric: str) -> tuple[float, float | None] | None:
    """Seconds that a program has trained, as it says, and its last value of a metric; None before its first report."""
    try:
        with safe_open.open_file(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
    except OSError:  # not there yet, or no plain file
        return None
    elapsed = value = None
    for report in filter(None, map(parse_report, lines)):
        elapsed, value = numbers(report).get("elapsed", elapsed), numbers(report.get("metrics")).get(metric, value)
    return None if elapsed is None else (elapsed, value)


def _certifying(ledger: Ledger, event: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate that is made, as far as the directories of its runs show. (event: with which it began)"""
    folder = f"{glob.escape(str(event.get('folder', event['look'])))}-{event['champion']:04d}-*"
    begun = [path.stat().st_mtime for path in (ledger.path / "certificates").glob(folder)]
    return {
        "trial": event["champion"], "run": max(len(begun), 1), "runs": event.get("planned", 2 * event["runs"]),
        "seconds": max(time.time() - max(begun, default=time.time()), 0.0), "where": event.get("where", ""),
    }  # fmt: skip


def _ends(ledger: Ledger, history: History, certifying: Mapping[str, Any] | None) -> float:
    """Unix time at which a running campaign is expected to end, by the time of its last trials and by its limits."""
    spec, kept, now = ledger.spec, _reserved(ledger, history) or {}, time.time()
    trials, runs = max(spec["trials"] - budgets_used(history), 0.0), sum(kept.get(arm, 0) for arm in describe.ARMS)
    if certifying:
        trials, runs = 0.0, certifying["runs"] - certifying["run"] + 1
    seconds = statistics.median(one.wall_seconds + one.proposal.seconds for one in history[-RECENT:])
    left = seconds * (trials + runs / spec["replicates"]) / spec.get("parallel", 1)
    return float(min(now + left, now + max(spec["hours"] * 3600 - campaign_lock.spent(ledger), 0.0), end_of(spec)))
