"""The command that runs a campaign's search again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit

from flows.report.shareable import typed
from flows.spec.spec import OPTIONS, declared, flag
from tasks.store.ledger import Campaign

LEFT_TO_ITS_USER = ("environment", "name", "trials", "hours", "until", "tracking")
PREFIXES = {"options": "proposer.", "rule_options": "rule.", "cancel_options": "cancel."}
"""Of plug-ins' options in --set, by where a campaign keeps them."""


def run_again(campaign: Campaign, spec: Mapping[str, Any]) -> str:
    """`nightshift run` with all that decides what is searched and how, as far as it is not the default.

    Args:
        spec: The campaign's options, as `status --json` has them.
    """
    return " ".join(["nightshift run", typed(campaign.source), *_flags(spec), *_settings(campaign, spec["advanced"])])


def _flags(spec: Mapping[str, Any]) -> Iterator[str]:
    for name, field in OPTIONS.items():
        value = (spec | spec["advanced"]).get(name, field.default)
        decides = declared(field).get("fixed") or name in ("parallel", "launch", "allow_unsandboxed")
        if not decides or name in LEFT_TO_ITS_USER or value in (field.default, None, []):
            continue
        shown = ",".join(value) if isinstance(value, list) else str(value)
        if not isinstance(value, dict):  # a plug-in's options, below
            yield flag(name) if value is True else f"{flag(name)} {shlex.quote(shown)}"


def _settings(campaign: Campaign, advanced: Mapping[str, Any]) -> Iterator[str]:
    changed = dict(campaign.overrides)
    for kept, prefix in PREFIXES.items():
        changed |= {f"{prefix}{key}": value for key, value in advanced.get(kept, {}).items()}
    for key, value in changed.items():
        yield f"--set {shlex.quote(f'{key}={_toml(value)}')}"


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return str(tomlkit.item(value).as_string())
    table = tomlkit.inline_table()
    table.update(value)
    return str(table.as_string())
