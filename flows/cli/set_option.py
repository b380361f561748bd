"""`--set key=value`: a key of environment.toml or an option of a plug-in, from the command line."""

from __future__ import annotations

import tomllib
from typing import Any

from environments.plugins import Refused
from environments.space import Value

OF_PLUGINS = {"proposer": "options", "rule": "rule_options", "cancel": "cancel_options"}
"""Which option of a campaign holds the values whose key begins so."""


def parse_settings(settings: list[str]) -> dict[str, dict[str, Any]]:
    """The stated values, by the option of a campaign that holds them: `overrides`, or one of OF_PLUGINS.

    Values that are not valid TOML are texts.
    """
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise Refused(f"--set {setting!r}: give key=value, such as budget_seconds=30")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        plugin, dot, name = key.partition(".")
        if dot and plugin in OF_PLUGINS:
            tables.setdefault(OF_PLUGINS[plugin], {})[name] = value
        else:
            tables.setdefault("overrides", {})[key] = value
    return tables


def overrides_only(settings: list[str]) -> dict[str, Value]:
    """The keys of environment.toml, for a verb without a campaign.

    Raises:
        Refused: an option of a plug-in is among them, which nothing would read.
    """
    tables = parse_settings(settings)
    for table in tables.keys() - {"overrides"}:
        raise Refused(f"--set: {table} belong to a campaign, and there is none here: leave them out")
    return tables.get("overrides", {})
