"""Prefect automations that resume crashed runs and tell of their ends: automations.yaml, kept on the server.

Prefect stores several automations of one name, and an update forgets which runs it was waiting for. So each carries a
digest of its definition as a tag, and only those that differ are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.server.api import Api

FILE = Path(__file__).with_suffix(".yaml")
SILENT, RESUME = "nightshift-silent", "nightshift-resume"
"""Names of automations: a silent run is marked Crashed; a crashed run is resumed."""
DIGEST = "digest-"
"""Prefix of the tag."""


def put(url: str, auth: tuple[str, str] | None, periods: Mapping[str, float] | None = None) -> list[str]:
    """Create or update the automations of the file on a server; the names of those that were written.

    One that was switched off stays off. Of several with one name the first is kept.
    """
    written = []
    with Api(url, auth) as api:
        for each in wanted(periods):
            actions = [one for action in each["actions"] for one in _addressed(action, api)]
            automation = {**each, "actions": actions}
            name, text = each["name"], json.dumps(automation, sort_keys=True)
            tags = ["nightshift", DIGEST + hashlib.sha256(text.encode()).hexdigest()[:12]]
            stored = api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": [name]}}})
            for duplicate in stored[1:]:
                api.ask("DELETE", f"/automations/{duplicate['id']}")
            if not actions or (stored and set(tags) <= set(stored[0].get("tags", []))):
                continue
            automation["tags"] = tags
            if stored:
                automation["enabled"] = stored[0]["enabled"]
                api.ask("PUT", f"/automations/{stored[0]['id']}", automation)
            else:
                api.ask("POST", "/automations/", automation)
            written.append(name)
    return written


def wanted(periods: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """The automations of the file; `periods`: other seconds, by an automation's name."""
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    automations: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["automations"]
    for automation in automations:
        trigger = automation["trigger"]
        trigger["within"] = (periods or {}).get(automation["name"], trigger["within"])
    return automations


def is_off(api: Api, name: str) -> bool:
    """Whether an automation is stored, and was switched off."""
    stored = api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": [name]}}})
    return bool(stored) and not stored[0]["enabled"]


def _addressed(action: Mapping[str, Any], api: Api) -> list[dict[str, Any]]:
    """An action as Prefect's API takes it: a message goes to each block of the name that the file has."""
    if "block" not in action:
        return [dict(action)]
    rest = {key: value for key, value in action.items() if key != "block"}
    query = {
        "block_documents": {"name": {"any_": [action["block"]]}},
        "block_schemas": {"block_capabilities": {"all_": ["notify"]}},
    }
    documents = api.ask("POST", "/block_documents/filter", query)
    return [{**rest, "block_document_id": id_} for id_ in sorted(str(document["id"]) for document in documents)]
