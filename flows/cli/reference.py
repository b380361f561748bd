"""docs/options.md, the page of all options and verbs: `python -m flows.cli.reference > docs/options.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Literal, get_args, get_origin

from cyclopts import App
from pydantic.fields import FieldInfo

from flows.cli.app import VERBS, app, name_of
from flows.cli.options import FLAGS, Detach, Json, Server, Settings, Trust
from flows.cli.set_option import OF_PLUGINS
from flows.spec.spec import GROUPS, OPTIONS, TABLES, declared, flag

INTRODUCTION = """\
# Options and verbs

<!-- generated: python -m flows.cli.reference > docs/options.md -->

An option of a campaign is a flag of `run` and `resume`, a key of a spec.toml (with `_` for `-`, at the top or under
`[advanced]`), and a field of the form in the Prefect UI. Fixed options change scores or verdicts: they stay as they are
when a campaign is resumed.
"""
SHARED = {parameter.name[0]: parameter.help for _, parameter in map(get_args, (Settings, Trust, Server, Detach, Json))}
"""Flags of several verbs, with their help."""
CAMPAIGN = {flag(name) for name in FLAGS}
PREFIXES = {"overrides": ""} | {option: f"{prefix}." for prefix, option in OF_PLUGINS.items()}
"""How keys of tables begin in --set."""


def page() -> str:
    """The page, in Markdown."""
    parts = [INTRODUCTION]
    for heading in ("", *(title for title, _ in GROUPS.values())):
        rows = [_row(name, field) for name, field in OPTIONS.items() if declared(field).get("group", "") == heading]
        parts += [f"\n## {heading or 'A campaign'}\n", _table("option", "default", "fixed", "meaning", rows=rows)]
    parts += ["\n## Flags of several verbs\n", _table("flag", "meaning", rows=[(f"`{f}`", SHARED[f]) for f in SHARED])]
    for heading, verbs in VERBS.items():
        parts.append(f"\n## Verbs: {heading.lower()}\n")
        parts += [_verb(name, app[name]) for name in map(name_of, verbs)]
    return "".join(parts)


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return "\n" + "".join(f"| {line} |\n" for line in lines)


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    """An option of a campaign: its spelling, its default, whether it is fixed, and its help."""
    spelled = f"--set {PREFIXES[name]}KEY=VALUE" if name in TABLES else flag(name) if name in FLAGS else name.upper()
    default = f"`{field.default}`" if field.default and not field.is_required() else ""
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else declared(field).get("enum", ())
    listed = f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""
    return f"`{spelled}`", default, "yes" * bool(declared(field).get("fixed")), f"{field.description}{listed}"


def _verb(name: str, command: App) -> str:
    """A verb: its help, its own flags, and the verbs below it."""
    below = [verb for verb in command if not verb.startswith("-")]
    arguments = [] if below else command.assemble_argument_collection()
    positional = {each.name.removeprefix("--").upper(): each.required for each in arguments if each.index is not None}
    places = [place if required else f"[{place}]" for place, required in positional.items()]
    flags = {each.name: str(each.parameter.help) for each in arguments if each.index is None}
    text = f"\n### `{' '.join(['nightshift', name, *places])}`\n\n{inspect.cleandoc(command.help)}\n"
    if own := {f: flags[f] for f in flags if f not in CAMPAIGN | SHARED.keys()}:
        text += _table("flag", "meaning", rows=[(f"`{f}`", own[f]) for f in own])
    also = [f"`{f}`" for f in flags if f in CAMPAIGN | SHARED.keys()]
    if CAMPAIGN - {flag("name")} <= flags.keys():
        also = ["all options of a campaign", *(f"`{f}`" for f in flags if f in SHARED)]
    text += f"\nFurther: {', '.join(also)}.\n" * bool(also)
    return text + "".join(_verb(f"{name} {verb}", command[verb]) for verb in below)


if __name__ == "__main__":
    print(page(), end="")
