"""The MLflow run of a campaign: best score so far, summary metrics, and the note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tasks.certifying.certificate import Certificate
from tasks.describe import mean_of
from tasks.system.clock import covered
from tasks.tracking.certificates import certificate_tags, own, proof
from tasks.tracking.trial_run import NOTE_CHARACTERS, CampaignRecord, MetricPoint, milliseconds, point, shown
from tasks.trial import History, Trial, baseline, best, trials_before


def decided(campaign: CampaignRecord, trial: Trial) -> int:
    """Time of the verdict in milliseconds, which is part of the identity of what is logged with it."""
    started = trial.runs[0].started if trial.runs else campaign.created
    return milliseconds(started + trial.wall_seconds)


def progress_points(campaign: CampaignRecord, trial: Trial, history: History) -> list[MetricPoint]:
    """The best score after `trial` was decided: one point of a curve over trial numbers."""
    known = (*trials_before(history, trial), trial)
    champion = best(known)
    moment = decided(campaign, trial)
    points = []
    if champion is not None:
        points = point("champion/score", mean_of(known, champion.number), moment, trial.number)
    return points + (point("baseline/score", trial.score.value, moment) if trial.number == 0 else [])


def _searched(history: History) -> list[tuple[float, float]]:
    """Begin and end of each trial, in Unix time."""
    begun = [(trial.runs[0].started, trial.wall_seconds) for trial in history if trial.runs]
    return [(began, began + seconds) for began, seconds in begun]


def _certified(certificates: Sequence[Certificate]) -> list[tuple[float, float]]:
    fresh = [one.run for certificate in certificates for one in certificate.runs[certificate.carried :]]
    return [(run.started, run.started + run.wall_seconds) for run in fresh]


def summary_points(
    campaign: CampaignRecord, history: History, certificates: Sequence[Certificate] = ()
) -> list[MetricPoint]:
    """Metrics that compare campaigns. `gain` is positive if the champion is better, whichever way the metric points."""
    if not history:
        return []
    # MLflow shows the newest value.
    moment = max(decided(campaign, trial) for trial in history)
    first, champion = baseline(history), best(history)
    spared = [trial for trial in history if any(run.due and run.due.spared for run in trial.runs)]
    kinds = Counter(trial.verdict.kind for trial in history)
    values: dict[str, float] = {
        "trials": sum(trial.number > 0 for trial in history),
        "crashes": kinds["crash"],
        "cancelled": kinds["cancelled"],
        "spared": len(spared),
        "spared/kept": sum(trial.verdict.kind == "keep" for trial in spared),
        "hours": round(covered([*_searched(history), *_certified(certificates)]) / 3600, 4),
    }
    if champion and (means := _means(history)):
        gain = means[1] - means[0] if champion.score.higher_is_better else means[0] - means[1]
        values["gain"] = float(f"{gain:.9g}")
    points = progress_points(campaign, first, history) if first else []
    if champion and any(trial.attempt > 1 for trial in history):
        last = max(trial.number for trial in history)
        points += point("champion/score", mean_of(history, champion.number), moment, last)
    return [*points, *(found for key, value in values.items() for found in point(key, value, moment))]


def state_tags(
    campaign: CampaignRecord, history: History, certificates: Sequence[Certificate], state: str = "running"
) -> dict[str, str]:
    """The campaign's note, champion and certification, as tags."""
    champion = best(history)
    number = {"champion": str(champion.number)} if champion else {}
    note = campaign_note(campaign, history, certificates, state)
    return {"mlflow.note.content": note, **number, **certificate_tags(campaign, certificates)}


def campaign_note(
    campaign: CampaignRecord, history: History, certificates: Sequence[Certificate], state: str = "running"
) -> str:
    """The note in Markdown, of which MLflow shows five lines: certificate and best score first, then costs."""
    kinds = [trial.verdict.kind for trial in history if trial.number > 0]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    plural = "" if len(kinds) == 1 else "s"
    spent = f"{state}: {len(kinds)} trial{plural} besides the baseline" + (f" ({counts})" if counts else "")
    parts = [proof(campaign, certificates), _outcome(campaign, history, certificates), spent]
    return ("\n\n".join(filter(None, parts)) + _changes(history))[:NOTE_CHARACTERS]


def _outcome(campaign: CampaignRecord, history: History, certificates: Sequence[Certificate]) -> str:
    champion = best(history)
    if champion is None or (value := mean_of(history, champion.number)) is None:
        return "**No trial has a score yet.**"
    direction = "higher" if campaign.higher_is_better else "lower"
    score = f"{campaign.metric} {value:.6g}"
    if champion.number == 0:
        return f"**The baseline stands**: {score} ({direction} is better); nothing that was tried was kept."
    against = ""
    if means := _means(history):
        against = f" against the baseline's {means[0]:.6g} ({means[1] - means[0]:+.4g})"
    told = _worth(champion, own(campaign, certificates))
    return f"**Champion: trial {champion.number}**, {score}{against}; {direction} is better.{told}"


def _means(history: History) -> tuple[float, float] | None:
    """The mean scores of baseline and champion, reruns included; None where one has none."""
    champion = best(history)
    before, now = mean_of(history, 0), mean_of(history, champion.number) if champion else None
    return None if before is None or now is None else (before, now)


def _worth(champion: Trial, certificates: Sequence[Certificate]) -> str:
    """How well the champion's score is supported, without a certificate."""
    if any(one.champion == champion.number for one in certificates):
        return " That is what the search saw, and luck flatters it."
    caution = {
        "provisional": " Provisional: not tested on fresh runs, and the best of several is flattered by luck.",
        "confirmed": " Confirmed: it held up when it ran again, and is not tested on fresh runs yet.",
    }
    return caution.get(champion.verdict.level or "", "")


def _changes(history: History) -> str:
    """A table of the champion's parameters that differ from the baseline's."""
    first, champion = baseline(history), best(history)
    if first is None or champion is None or champion.number == 0:
        return ""
    before, now = shown(first.proposal.params), shown(champion.proposal.params)
    rows = [
        f"| {_cell(name)} | {_cell(before.get(name, ''))} | {_cell(value)} |"
        for name, value in now.items()
        if before.get(name) != value
    ]
    edited = "\n\nIts program is changed too: see diff.patch of its run." if champion.proposal.edit else ""
    table = ["| parameter | baseline | champion |", "|---|---|---|", *rows]
    return ("\n\n" + "\n".join(table) if rows else "") + edited


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:80]
