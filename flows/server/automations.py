"""Prefect automations that mark silent runs Crashed and resume crashed runs: automations.yaml, kept on the server.

Prefect stores several automations of one name, and an update forgets which runs it was waiting for. So each carries a
digest of its definition as a tag, and only those that differ are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.server.api import Api

FILE = Path(__file__).with_suffix(".yaml")
SILENT, RESUME = "nightshift-silent", "nightshift-resume"
"""Names of automations: a silent run is marked Crashed; a crashed run is resumed."""
DIGEST = "digest-"
"""Prefix of the tag."""


def wanted(periods: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """The automations of the file, as Prefect's API takes them; `periods`: other seconds, by an automation's name."""
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    automations: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["automations"]
    for automation in automations:
        trigger = automation["trigger"]
        trigger["within"] = (periods or {}).get(automation["name"], trigger["within"])
    return automations


def put(url: str, auth: tuple[str, str] | None, periods: Mapping[str, float] | None = None) -> list[str]:
    """Create or update the automations of the file on a server; the names of those that were written."""
    return write(wanted(periods), url, auth)


def is_off(api: Api, name: str) -> bool:
    """Whether an automation is stored, and was switched off."""
    stored = api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": [name]}}})
    return bool(stored) and not stored[0]["enabled"]


def write(automations: Sequence[Mapping[str, Any]], url: str, auth: tuple[str, str] | None) -> list[str]:
    """Create or update automations on a server; the names of those that were written.

    One that was switched off stays off. Of several with one name the first is kept.
    """
    written = []
    with Api(url, auth) as api:
        for each in automations:
            name, text = each["name"], json.dumps(each, sort_keys=True)
            tags = ["nightshift", DIGEST + hashlib.sha256(text.encode()).hexdigest()[:12]]
            automation = {**each, "tags": tags}
            stored = api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": [name]}}})
            for duplicate in stored[1:]:
                api.ask("DELETE", f"/automations/{duplicate['id']}")
            if stored and set(automation["tags"]) <= set(stored[0].get("tags", [])):
                continue
            if stored:
                enabled = {"enabled": stored[0]["enabled"]}
                api.ask("PUT", f"/automations/{stored[0]['id']}", automation | enabled)
            else:
                api.ask("POST", "/automations/", automation)
            written.append(name)
    return written
