"""Receipts: small files beside trials and certificates that say that MLflow has taken them, and what therefore waits.

A receipt names the content that was taken, so whatever changed since waits again. Nothing here talks to MLflow.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

from environments.plugins import Refused
from tasks.store.attempts import directory
from tasks.store.ledger import CERTIFICATE, Ledger
from tasks.system.files import read_small, write_atomic
from tasks.trial import History, Trial

RECEIPT = ".receipt"
"""Suffix of a certificate's receipt, instead of .json."""


def waiting(ledger: Ledger, history: History) -> int:
    """Number of records that wait: trials (or their traces), certificates, and the campaign's end."""
    traces = wants_traces(ledger)
    trials = [t for t in history if not is_tracked(ledger, t) or (traces and not is_traced(ledger, t))]
    return len(trials) + len(unsent(ledger)) + is_unclosed(ledger)


def is_unclosed(ledger: Ledger) -> bool:
    """Whether the campaign's end is not recorded yet."""
    said = [event for event in ledger.events() if event["event"] == "closed" or "end" in event]
    return bool(said) and said[-1]["event"] == "tracking"


def is_left_open(ledger: Ledger) -> bool:
    """Whether a campaign that is not running still runs in MLflow, since its process was cut off."""
    events = ledger.events()
    said = [event["event"] for event in events if event["event"] in ("tracked", "closed", "end") or "end" in event]
    return bool(said) and said[-1] == "tracked"


def store_of(ledger: Ledger) -> str | None:
    """Where the campaign's last life recorded; None if nowhere, or before that was noted."""
    said = [event.get("store") for event in ledger.events() if event["event"] == "tracked"]
    return said[-1] if said else None


def wants_traces(ledger: Ledger) -> bool:
    """Whether the campaign, as last started, records requests to language models."""
    path = ledger.path / "spec.toml"
    try:
        spec = tomllib.loads(path.read_text())
    except ValueError as broken:
        raise Refused(f"{path}: not TOML: {broken}") from broken
    return bool(spec.get("advanced", {}).get("traces", False))


def unsent(ledger: Ledger) -> list[Path]:
    """The certificates that are not recorded as they are now, in order."""
    found = (ledger.path / "certificates").glob("*.json")
    left = [path for path in found if not is_signed(str(path.with_suffix(RECEIPT)), str(path))]
    return sorted(left, key=lambda path: (CERTIFICATE.validate_json(path.read_bytes()).look, path.name))


def is_tracked(ledger: Ledger, trial: Trial) -> bool:
    """Whether the trial is recorded as it is now."""
    folder = f"{ledger.trials}/{directory(trial.number, trial.attempt)}"
    return is_signed(f"{folder}/tracked.json", f"{folder}/trial.json")


def is_traced(ledger: Ledger, trial: Trial) -> bool:
    """Whether the trial's requests to language models are recorded as they are now."""
    from tasks.tracking.traces import questions

    place = ledger.place_of(trial)
    return not questions(place.path) or is_signed(f"{place.path}/traced.json", str(place.trial))


def sign(receipt: Path, path: Path, run_id: str) -> None:
    """Write a receipt: the run that took a file as it is now."""
    write_atomic(receipt, json.dumps({"run_id": run_id, "of": fingerprint(str(path))}) + "\n")


def is_signed(receipt: str, path: str) -> bool:
    """Whether a receipt is of a file as it is now. Paths are texts, since it is asked of every trial."""
    try:
        signed = json.loads(read_small(receipt))["of"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # a power cut may leave an empty one
        return False
    return bool(signed == fingerprint(path))


def fingerprint(path: str) -> str:
    return hashlib.sha256(read_small(path)).hexdigest()[:16]
