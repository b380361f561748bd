"""Prefect automations that resume crashed runs and tell of their ends: automations.yaml, kept on the server.

An update forgets which runs an automation was waiting for. So each carries a digest of its definition as a tag, and
only those that differ are written.
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


def put(url: str, auth: tuple[str, str] | None, periods: Mapping[str, float] | None = None) -> list[str]:
    """Create or update the automations of the file on a server; the names of those that were written.

    One that was switched off stays off. (periods: other seconds, by an automation's name)
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    written = []
    with Api(url, auth) as api:
        for each in yaml.safe_load(FILE.read_text())["automations"]:
            name = each["name"]
            each["trigger"]["within"] = (periods or {}).get(name, each["trigger"]["within"])
            each["actions"] = [one for action in each["actions"] for one in _addressed(action, api)]
            digest = hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()[:12]
            tags, before = ["nightshift", f"digest-{digest}"], stored(api, name)
            if not each["actions"] or (before and set(tags) <= set(before.get("tags", []))):
                continue
            if before:
                api.ask("PUT", f"/automations/{before['id']}", {**each, "tags": tags, "enabled": before["enabled"]})
            else:
                api.ask("POST", "/automations/", {**each, "tags": tags})
            written.append(name)
    return written


def stored(api: Api, name: str) -> dict[str, Any] | None:
    """An automation as the server has it; None if it has none of that name."""
    every = api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": [name]}}})
    return every[0] if every else None


def _addressed(action: Mapping[str, Any], api: Api) -> list[dict[str, Any]]:
    """An action as Prefect's API takes it: a message goes to each block of the name that the file has."""
    rest = dict(action)
    if not (name := rest.pop("block", None)):
        return [rest]
    query = {
        "block_documents": {"name": {"any_": [name]}},
        "block_schemas": {"block_capabilities": {"all_": ["notify"]}},
    }
    documents = api.ask("POST", "/block_documents/filter", query)
    return [{**rest, "block_document_id": id_} for id_ in sorted(str(document["id"]) for document in documents)]
