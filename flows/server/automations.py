"""Prefect automations that mark silent runs Crashed and resume crashed runs: automations.yaml, kept on the server.

Prefect stores several automations of one name, and an update forgets which runs it was waiting for. So each carries a
digest of its definition as a tag, and only those that differ are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flows.server.api import Api
from tasks.system.home import CHECKOUT

FILE = CHECKOUT / "automations.yaml"
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
        text = json.dumps(automation, sort_keys=True)
        automation["tags"] = ["nightshift", DIGEST + hashlib.sha256(text.encode()).hexdigest()[:12]]
    return automations


def put(url: str, auth: tuple[str, str] | None, periods: Mapping[str, float] | None = None) -> list[str]:
    """Create or update the automations on a server; the names of those that were written.

    One that was switched off stays off. Of several with one name the first is kept.
    """
    written = []
    with Api(url, auth) as api:
        for automation in wanted(periods):
            name = automation["name"]
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
