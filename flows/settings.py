"""`--set key=value`: one way to say a setting of the environment or of the proposer on the command line."""

from __future__ import annotations

import tomllib
from typing import Any

from environments.plugins import Refused
from environments.space import Value


def parse_settings(settings: list[str]) -> tuple[dict[str, Value], dict[str, Any]]:
    """`--set key=value` pairs as (overrides of the environment, options of the proposer).

    Keys that begin with `proposer.` are options. Values are TOML where they parse as such, else text.
    """
    overrides: dict[str, Value] = {}
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise Refused(f"--set {setting!r}: give key=value, such as budget_seconds=30")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        if key.startswith("proposer."):
            options[key.removeprefix("proposer.")] = value
        else:
            overrides[key] = value
    return overrides, options
