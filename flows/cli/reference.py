"""docs/options.md, the page of all options and verbs: `python -m flows.cli.reference > docs/options.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, get_args, get_origin

from cyclopts import App
from pydantic.fields import FieldInfo

from flows.cli.app import app
from flows.cli.arguments import OF_PLUGINS
from flows.cli.options import FLAGS
from flows.spec.spec import GROUPS, OPTIONS, TABLES, declared, flag

INTRODUCTION = """\
# Options and verbs

<!-- generated: python -m flows.cli.reference > docs/options.md -->

An option of a campaign is a flag of `run` and `resume`, a key of a spec.toml (with `_` for `-`, at the top or under
`[advanced]`), and a field of the form in the Prefect UI. Fixed options change scores or verdicts: they stay as they are
when a campaign is resumed.
"""
VERBS = "`nightshift VERB --help` has the flags of a verb, with an example.\n"
PREFIXES = {"overrides": ""} | {option: f"{prefix}." for prefix, option in OF_PLUGINS.items()}
"""How keys of tables begin in --set."""


def page() -> str:
    """The page, in Markdown."""
    parts = [INTRODUCTION]
    for heading in ("", *GROUPS):
        rows = [_row(name, field) for name, field in OPTIONS.items() if declared(field).get("group", "") == heading]
        parts += [f"\n## {heading or 'A campaign'}\n", _table("option", "default", "fixed", "meaning", rows=rows)]
    return "".join([*parts, "\n## Verbs\n\n", VERBS, _table("verb", "", rows=_verbs(app, "nightshift"))])


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return "\n" + "".join(f"| {line} |\n" for line in lines)


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    """An option of a campaign: its spelling, its default, whether it is fixed, and its help with its values."""
    spelled = f"--set {PREFIXES[name]}KEY=VALUE" if name in TABLES else flag(name) if name in FLAGS else name.upper()
    default = f"`{field.default}`" if field.default and not field.is_required() else ""
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else declared(field).get("enum", ())
    listed = f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""
    return f"`{spelled}`", default, "yes" * bool(declared(field).get("fixed")), f"{field.description}{listed}"


def _verbs(command: App, name: str) -> Iterator[tuple[str, str]]:
    """The verbs below a command, each with the first line of its help."""
    below = [verb for verb in command if not verb.startswith("-")]
    for verb in below:
        yield from _verbs(command[verb], f"{name} {verb}")
    if not below:
        yield f"`{name}`", command.help.partition("\n")[0]


if __name__ == "__main__":
    print(page(), end="")
