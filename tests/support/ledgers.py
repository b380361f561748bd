"""Campaigns on disk, as a spec makes them, and folders that a person has granted what they need."""

from __future__ import annotations

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
from tasks.trial import History
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
    """The ledger, with these decided trials on disk, without their files."""
    for trial in history:
        write_atomic(ledger.place_of(trial).trial, workspace.TRIAL.dump_json(trial).decode())
    return ledger


def stored(ledger: Ledger, *scores: float, weights: bytes = b"") -> History:
    """The ledger's trials, each better than the one before, with their files."""
    history: History = ()
    for number, score in enumerate(scores):
        x = 2.5 - number / 2
        trial = tried(history, score, params={"x": x}, kind="keep", higher_is_better=False)
        place = ledger.place_of(trial)
        workspace.prepare(place, ledger.program, ledger.environment, trial.proposal, seed=1)
        (place.out / "step-1").mkdir()
        (place.out / "step-1" / "model.json").write_text("{}")
        if weights:
            (place.out / "step-1" / "weights.bin").write_bytes(weights)
        (place.out / "latest").symlink_to("step-1")
        place.diff.write_text("+sk-planted-0123456789\n")
        run = replace(trial.runs[0], checkpoint=outputs.checkpoint(place.out))
        history += (replace(trial, runs=(run,)),)
        place.trial.write_bytes(workspace.TRIAL.dump_json(history[-1]))
    return history
