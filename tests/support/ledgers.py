"""Campaigns on disk, as a spec makes them, and folders that a person has granted what they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import environments
from flows.spec import permissions
from flows.spec.campaign_spec import CampaignSpec
from tasks.sandbox import outputs
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import History, Params, Trial
from tests.support.histories import tried
from tests.support.toy import quadratic


def created(tmp_path: Path, name: str = "n", **parameters: Any) -> Ledger:
    """A new campaign in the quadratic environment."""
    folder = quadratic(tmp_path / "quad")
    return CampaignSpec.of(environment=str(folder), name=name, **parameters).open()


def trusted(folder: Path) -> Path:
    """The folder, with everything granted that it needs now."""
    permissions.grant(folder, permissions.needed(environments.load(folder)))
    return folder


def filled(ledger: Ledger, history: History) -> Ledger:
    """The ledger, with these decided trials and their proposals on disk, without what their runs leave."""
    for trial in history:
        place = ledger.place_of(trial)
        write_atomic(place.proposal, workspace.PROPOSAL.dump_json(trial.proposal))
        write_atomic(place.trial, workspace.TRIAL.dump_json(trial))
    return ledger


def keep(ledger: Ledger, score: float, params: Params, files: Mapping[str, bytes | Path]) -> Trial:
    """The ledger's next trial, kept, with its program and these files in out/, as a run leaves them; a path is a link."""
    trial = tried(
        ledger.history(), score, params=params, kind="keep", higher_is_better=ledger.environment.higher_is_better
    )
    place = ledger.place_of(trial)
    program = workspace.prepare(place, ledger.program, ledger.environment, trial.proposal, seed=1)
    for name, content in files.items():
        path = place.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(content) if isinstance(content, Path) else path.write_bytes(content)
    run = replace(trial.runs[0], program=program, checkpoint=outputs.checkpoint(place.out))
    filled(ledger, (replace(trial, runs=(run,)),))
    return ledger.history()[-1]


def stored(ledger: Ledger, *scores: float, weights: bytes = b"") -> History:
    """The trials of a ledger in the quadratic environment, each better than the one before, with their files."""
    files: dict[str, bytes | Path] = {"step-1/model.json": b"{}", "latest": Path("step-1")}
    if weights:
        files["step-1/weights.bin"] = weights
    for number, score in enumerate(scores):
        trial = keep(ledger, score, {"x": 2.5 - number / 2}, files)
        ledger.place_of(trial).diff.write_text("+sk-planted-0123456789\n")
    return ledger.history()
