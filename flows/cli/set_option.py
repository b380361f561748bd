"""`--set key=value`: one way to say a setting of the environment or of a plug-in on the command line."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

from environments.plugins import Refused
from environments.space import Value


@dataclass(frozen=True)
class SetOptions:
    """What `--set` said."""

    overrides: dict[str, Value] = field(default_factory=dict)
    """Of environment.toml."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the proposer."""
    rule_options: dict[str, Any] = field(default_factory=dict)
    cancel_options: dict[str, Any] = field(default_factory=dict)

    @property
    def stated(self) -> dict[str, Any]:
        """What is not empty, by the name of its parameter."""
        return {name: value for name, value in vars(self).items() if value}


def parse_settings(settings: list[str]) -> SetOptions:
    """`--set key=value` pairs, told apart by what their keys begin with: `proposer.`, `rule.`, `cancel.`, or neither.

    Values are TOML where they parse as such, else text.
    """
    found = SetOptions()
    options = {"proposer": found.options, "rule": found.rule_options, "cancel": found.cancel_options}
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
            found.overrides[key] = value
    return found


def overrides_only(settings: list[str]) -> dict[str, Value]:
    """`--set` where there is no campaign: keys of environment.toml alone.

    Raises:
        Refused: an option of a plug-in, which nothing would read.
    """
    found = parse_settings(settings)
    for key in found.stated.keys() - {"overrides"}:
        raise Refused(f"--set: {key} belong to a campaign, and there is none here: leave them out")
    return found.overrides
