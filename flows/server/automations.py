"""What the Prefect server does by itself when a run falls silent or crashes: automations.yaml, put there and kept.

Prefect stores as many automations of one name as it is sent, and every change forgets which runs were being waited
for. So each carries a digest of what the file says as a tag, and only what differs is written.
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
"""Silence is a crash; a crash is resumed."""
DIGEST = "digest-"
"""What the tag begins with."""


def wanted(periods: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """The automations of the file, as Prefect's API takes them.

    Args:
        periods: Seconds in place of what the file says, by the automation's name.
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["automations"]
    for one in found:
        one["trigger"]["within"] = (periods or {}).get(one["name"], one["trigger"]["within"])
        text = json.dumps(one, sort_keys=True)
        one["tags"] = ["nightshift", DIGEST + hashlib.sha256(text.encode()).hexdigest()[:12]]
    return found


def put(url: str, auth: tuple[str, str] | None, periods: Mapping[str, float] | None = None) -> list[str]:
    """Make the automations on a server, or bring them up to date; the names of those that were written.

    What a person has switched off stays off. Of several with one name the first is kept.

    Raises:
        httpx.HTTPError: the server does not answer, or refuses one.
    """
    written = []
    with Api(url, auth) as api:
        for one in wanted(periods):
            chosen = {"automations": {"name": {"any_": [one["name"]]}}}
            known = api.ask("POST", "/automations/filter", chosen)
            for double in known[1:]:
                api.ask("DELETE", f"/automations/{double['id']}")
            if known and set(one["tags"]) <= set(known[0].get("tags", [])):
                continue
            if known:
                api.ask("PUT", f"/automations/{known[0]['id']}", {**one, "enabled": known[0]["enabled"]})
            else:
                api.ask("POST", "/automations/", one)
            written.append(one["name"])
    return written
