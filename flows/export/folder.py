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
import shlex
import shutil
import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import environments
from environments.plugins import Refused
from flows import status
from flows.report.facts import Facts
from flows.report.shareable import shareable
from tasks.describe import caution, changes
from tasks.numbers import number
from tasks.recording import episode
from tasks.recording.episode import GIF
from tasks.sandbox import outputs
from tasks.stats.certificate import Certificate, shipped
from tasks.stats.permutation import quantile
from tasks.store.ledger import Ledger
from tasks.store.safe_read import copy_tree
from tasks.system import file_trees
from tasks.system.redact import scrub_text
from tasks.trial import Trial, baseline, best, measured

TEMPLATES = Path(__file__).parent / "templates"
COVERS = 0.95
"""Share of new runs that the prediction interval is made to hold."""


def champion(ledger: Ledger) -> Trial:
    """The certified champion, or else the best kept trial. Refused if that is the baseline, or there is none."""
    history, passed = ledger.history(), shipped(ledger.certificates())
    found = next((trial for trial in history if passed and trial.number == passed.champion), None) or best(history)
    if found is None or found.number == 0:
        why = "no trial has a score" if found is None else "nothing that was tried was kept"
        raise Refused(f"campaign {ledger.campaign.name!r} has no champion to take: {why}")
    return found


def certificate_of(ledger: Ledger, trial: Trial) -> Certificate | None:
    """The newest certificate that the trial passed in its own environment, if it is the one that ships."""
    passed = shipped(ledger.certificates())
    return passed if passed and passed.champion == trial.number else None


def check_folder(to: Path) -> None:
    """Raises Refused unless `to` is free for an export."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise Refused(f"--to {to}: it exists and is not an empty folder: name another")


def export(ledger: Ledger, to: Path) -> Path:
    """Write the champion that ships, or else the best kept trial, into a new folder; returns its absolute path.

    Raises:
        Refused: there is no champion, `to` is not empty, or files are gone, have changed, or hold a secret.
        OSError: `to` cannot be written; nothing is left of it.
    """
    trial = champion(ledger)
    check_folder(to)
    target = to.resolve()
    half_made = target.with_name(f".{target.name}.half-made")
    file_trees.remove(half_made)
    try:
        _fill(half_made, ledger, trial)
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            target.rmdir()  # an empty one
        half_made.rename(target)
    except BaseException:
        with suppress(OSError):
            file_trees.remove(half_made)
        raise
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


def _fill(folder: Path, ledger: Ledger, trial: Trial) -> None:
    place, judged = ledger.place_of(trial), trial.runs[0].checkpoint
    environment = folder / "environment" / ledger.campaign.environment
    copy_tree(ledger.path / "environment", environment)
    program = copy_tree(place.workspace, environment, without=(place.config.name,))
    if place.out.is_dir():
        copy_tree(place.out, folder / "checkpoint", without=(place.progress.name,))
        _copy_links(place.out, folder / "checkpoint")
    if not place.out.is_dir() or outputs.checkpoint(folder / "checkpoint") != judged:
        raise Refused(f"trial {trial.number}: {place.out} is not what was judged any more: was it pruned or changed?")
    _write_environment(ledger, trial, program, environment)
    patch = place.diff.read_text(errors="replace") if place.diff.is_file() else ""
    (folder / "champion.patch").write_text(scrub_text(patch))
    recording = episode.load(ledger.path) if (ledger.path / GIF).is_file() else None
    played = recording.episodes if recording else ()
    if shown := next((one for one in played if one.name == "champion" and one.trial == trial.number), None):
        shutil.copyfile(ledger.path / GIF, folder / GIF)
    facts = Facts.of(ledger).of_trial(trial)
    result = _result(facts, trial)
    (folder / "result.json").write_text(scrub_text(json.dumps(result, indent=2) + "\n"))
    runnable = [path for path in sorted(environment.rglob("*")) if path.is_file() and os.access(path, os.X_OK)]
    values = {
        **result, "problem": ledger.environment, "folder": environment.relative_to(folder).as_posix(), "shown": shown,
        "executable": [path.relative_to(folder).as_posix() for path in runnable], "edited": bool(trial.proposal.edit),
        "certified": certificate_of(ledger, trial) is not None, "origin": facts.origin,
        "changed": changes(trial.proposal, baseline(facts.history)),
    }  # fmt: skip
    (folder / "README.md").write_text(shareable(_render("README.md", **values)))
    (folder / "reproduce.sh").write_text(scrub_text(_render("reproduce.sh", **values)))
    (folder / "reproduce.sh").chmod(0o755)


def _copy_links(out: Path, to: Path) -> None:
    """Make the links of a judged checkpoint again: none leads out of it (tasks/sandbox/outputs.py), and they count."""
    for link in sorted(path for path in out.rglob("*") if path.is_symlink()):
        copy = to / link.relative_to(out)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(link.readlink())


def _write_environment(ledger: Ledger, trial: Trial, program: Sequence[str], folder: Path) -> None:
    """Rewrite environment.toml with the overrides, the names of the program's files, and the champion's values."""
    import tomlkit

    path = folder / environments.FILE
    table = environments.table_of(ledger.path / "environment", ledger.campaign.overrides, ledger.campaign.environment)
    table["program"] = list(program)
    for name, value in trial.proposal.params.items():
        if name in table.get("space", {}):
            table["space"][name]["default"] = value
        else:
            table.setdefault("fixed", {})[name] = value
    path.write_text(tomlkit.dumps(table))
    if environments.load(folder).defaults != trial.proposal.params:
        raise Refused(f"trial {trial.number}: its parameters do not fit the environment any more")


def _result(facts: Facts, trial: Trial) -> dict[str, Any]:
    campaign, document, run, own = facts.ledger.campaign, facts.document, trial.runs[0], facts.own
    scored = status.of_champion(facts.history, trial, own)
    if scored and trial != best(facts.history):
        scored["estimate"] = None  # the estimate is of the search's champion
    return {
        "campaign": campaign.name, "campaign_id": campaign.campaign_id, "trial": trial.number,
        "environment": campaign.environment, "metric": document["metric"], "direction": document["direction"],
        "verdict": facts.verdict, "proof": facts.proof,
        "limit": (caution(own[-1]) if own else "") or "Scores of a search overestimate its best", "champion": scored,
        "baseline": document["baseline"], "certificate": status.of_certificate(own[-1]) if own else None,
        "params": trial.proposal.params, "expected": prediction(facts, trial), "version": campaign.version,
        "machine": run.machine, "cores": facts.ledger.environment.cores, "seed": run.seed, "digest": campaign.digest,
        "program": run.program, "checkpoint": run.checkpoint,
    }  # fmt: skip


def _render(name: str, **values: Any) -> str:
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.filters["quote"] = shlex.quote
    return templates.get_template(name).render(number=number, **values)
