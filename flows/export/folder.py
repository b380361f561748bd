"""A champion as a folder that needs no campaign:

README.md           model card: what it is, how far it is proven, its limits
environment/NAME/   the frozen environment, with the champion's program and parameters as its baseline
checkpoint/         the checkpoint of the judged run
champion.patch      program and parameters against the campaign's baseline
episode.gif         an episode of it beside the baseline, where one was recorded
result.json         scores, certificate, versions, digests, and the interval for a new run
reproduce.sh        trains and judges it once more, and says whether the score lies in that interval

An environment is called as its folder, so NAME is the name that it had in the campaign.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments.plugins import Refused
from flows import status
from flows.report import page
from flows.report.facts import Facts
from tasks.describe import caution, changes
from tasks.recording import episode
from tasks.recording.episode import GIF
from tasks.sandbox import outputs
from tasks.stats.certificate import shipped
from tasks.stats.permutation import quantile
from tasks.store.ledger import Ledger
from tasks.store.safe_read import copy_tree
from tasks.store.workspace import program_digest
from tasks.system.redact import scrub_text
from tasks.trial import Trial, baseline, best, measured

COVERS = 0.95
"""Share of new runs that the prediction interval is made to hold."""


def champion(ledger: Ledger) -> tuple[Trial, Facts]:
    """The champion to take, and what is known of it: the certified one, or else the best kept trial. Refused if that is
    the baseline, or there is none.
    """
    history, passed = ledger.history(), shipped(ledger.certificates())
    found = next((trial for trial in history if passed and trial.number == passed.champion), None) or best(history)
    if found is None or found.number == 0:
        why = "no trial has a score" if found is None else "nothing that was tried was kept"
        raise Refused(f"campaign {ledger.campaign.name!r} has no champion to take: {why}")
    return found, Facts.of(ledger, trial=found)


def export(ledger: Ledger, to: Path) -> Path:
    """Write the champion that ships, or else the best kept trial, into a new folder; returns its absolute path.

    Raises:
        Refused: there is no champion, `to` is not empty, or files are gone, have changed, or hold a secret.
        OSError: `to` cannot be written; nothing is left of it.
    """
    trial, facts = champion(ledger)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise Refused(f"--to {to}: it exists and is not an empty folder: name another")
    target = to.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    into = target if target.exists() else target.parent
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=into) as scratch:
        made = Path(scratch, "champion")
        _fill(made, facts, trial)
        if into == target:  # an empty folder, which may be a mount, or where the user stands
            for path in made.iterdir():
                path.rename(target / path.name)
        else:
            made.rename(target)
    return target


def prediction(facts: Facts, trial: Trial) -> dict[str, Any] | None:
    """The interval in which the score of a new run is expected, by Student's t; None with fewer than two scores."""
    fresh = [score.value for one in facts.own[-1:] for score in one.scores("champion") if score.value is not None]
    values = fresh or [score.value for score in measured(facts.history, trial.number) if score.value is not None]
    count = len(values)
    if count < 2:
        return None
    half = quantile((1 + COVERS) / 2, count - 1) * statistics.stdev(values) * (1 + 1 / count) ** 0.5
    low, high = statistics.mean(values) - half, statistics.mean(values) + half
    return {"low": low, "high": high, "runs": count, "share": COVERS, "fresh": bool(fresh)}


def _fill(folder: Path, facts: Facts, trial: Trial) -> None:
    ledger, place, judged = facts.ledger, facts.ledger.place_of(trial), trial.runs[0].checkpoint
    environment = folder / "environment" / ledger.campaign.environment
    copy_tree(ledger.path / "environment", environment)
    program = copy_tree(place.workspace, environment, without=(place.config.name,))
    if place.out.is_dir():
        copy_tree(place.out, folder / "checkpoint", without=(place.progress.name,))
        _copy_links(place.out, folder / "checkpoint")
    is_same = trial.runs[0].program in (None, program_digest(place))
    if not is_same or not place.out.is_dir() or outputs.checkpoint(folder / "checkpoint") != judged:
        raise Refused(f"trial {trial.number}: {place.path} is not what was judged any more: was it pruned or changed?")
    table = environments.table_of(ledger.path / "environment", ledger.campaign.overrides, ledger.campaign.environment)
    (environment / environments.FILE).write_text(with_champion(table, trial, program))
    patch = place.diff.read_text(errors="replace") if place.diff.is_file() else ""
    (folder / "champion.patch").write_text(scrub_text(patch))
    recording = episode.load(ledger.path)
    shown = recording is not None and recording["champion"] == trial.number and (ledger.path / GIF).is_file()
    if shown:
        shutil.copyfile(ledger.path / GIF, folder / GIF)
    result = _result(facts, trial)
    (folder / "result.json").write_text(scrub_text(json.dumps(result, indent=2) + "\n"))
    runnable = [path for path in sorted(environment.rglob("*")) if path.is_file() and os.access(path, os.X_OK)]
    first = baseline(facts.history)
    values = {
        **result, "problem": ledger.environment, "folder": environment.relative_to(folder).as_posix(), "shown": shown,
        "executable": [path.relative_to(folder).as_posix() for path in runnable], "edited": bool(trial.proposal.edit),
        "certified": shipped(facts.own) is not None, "origin": facts.origin,
        "changed": changes(trial.proposal, first.proposal if first else None),
    }  # fmt: skip
    for name in ("README.md", "reproduce.sh"):
        (folder / name).write_text(page.render(name, **values))
    (folder / "reproduce.sh").chmod(0o755)


def _copy_links(out: Path, to: Path) -> None:
    """Make the links of a judged checkpoint again: none leads out of it (tasks/sandbox/outputs.py), and they count."""
    for link in sorted(path for path in out.rglob("*") if path.is_symlink()):
        copy = to / link.relative_to(out)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(link.readlink())


def with_champion(table: MutableMapping[str, Any], trial: Trial, program: Sequence[str]) -> str:
    """The text of an environment.toml with the champion's values as defaults, and the files of its program, if any."""
    for name, value in trial.proposal.params.items():
        if name in table.get("space", {}):
            table["space"][name]["default"] = value
        else:
            table.setdefault("fixed", {})[name] = value
    if program:
        table["program"] = list(program)
    return tomlkit.dumps(table)


def _result(facts: Facts, trial: Trial) -> dict[str, Any]:
    campaign, document, run, own = facts.ledger.campaign, facts.document, trial.runs[0], facts.own
    same = ("campaign", "campaign_id", "environment", "metric", "direction", "baseline", "cores")
    return {
        **{key: document[key] for key in same}, **document["result"],
        "trial": trial.number, "limit": (caution(own[-1]) if own else "") or "Scores of a search overestimate its best",
        "champion": status.of_champion(facts.history, trial, own),
        "certificate": status.of_certificate(own[-1]) if own else None,
        "params": trial.proposal.params, "expected": prediction(facts, trial), "version": campaign.version,
        "machine": run.machine, "seed": run.seed, "digest": campaign.digest,
        "program": run.program, "checkpoint": run.checkpoint,
    }  # fmt: skip
