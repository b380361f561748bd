"""`--set key=value`: a key of environment.toml or an option of a plug-in, from the command line."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

from environments.plugins import Refused
from environments.space import Value


@dataclass(frozen=True)
class SetOptions:
    """The values of `--set`, by what they belong to."""

    overrides: dict[str, Value] = field(default_factory=dict)
    """Of environment.toml."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the proposer."""
    rule_options: dict[str, Any] = field(default_factory=dict)
    cancel_options: dict[str, Any] = field(default_factory=dict)

    @property
    def stated(self) -> dict[str, Any]:
        """Those that are not empty, by the name of their option."""
        return {name: value for name, value in vars(self).items() if value}


def parse_settings(settings: list[str]) -> SetOptions:
    """Sort key=value pairs by the prefix of their key: `proposer.`, `rule.`, `cancel.`, or none for the environment.

    Values that are not valid TOML are texts.
    """
    parsed = SetOptions()
    options = {"proposer": parsed.options, "rule": parsed.rule_options, "cancel": parsed.cancel_options}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise Refused(f"--set {setting!r}: give key=value, such as budget_seconds=30")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        plugin, dot, name = key.partition(".")
        if dot and plugin in options:
            options[plugin][name] = value
        else:
            parsed.overrides[key] = value
    return parsed


def overrides_only(settings: list[str]) -> dict[str, Value]:
    """The keys of environment.toml, for a verb without a campaign.

    Raises:
        Refused: an option of a plug-in is among them, which nothing would read.
    """
    parsed = parse_settings(settings)
    for key in parsed.stated.keys() - {"overrides"}:
        raise Refused(f"--set: {key} belong to a campaign, and there is none here: leave them out")
    return parsed.overrides
