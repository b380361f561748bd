"""docs/options.md, the page of all options and verbs: `python -m flows.cli.reference > docs/options.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Literal, get_args, get_origin

from cyclopts import App
from pydantic.fields import FieldInfo

from flows.cli.app import VERBS, app
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
BY_SET = {"overrides": ""} | {option: f"{prefix}." for prefix, option in OF_PLUGINS.items()}
"""How the keys of a table begin in --set."""
CAMPAIGN = {flag(name) for name in FLAGS}
SHARED = {parameter.name[0]: parameter.help for _, parameter in map(get_args, (Settings, Trust, Server, Detach, Json))}


def page() -> str:
    """The page, in Markdown."""
    shared = _table("flag", "meaning", rows=((f"`{name}`", str(text)) for name, text in SHARED.items()))
    return "".join((INTRODUCTION, *_options(), "\n## Flags of several verbs\n", shared, *_verbs()))


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return "\n" + "".join(f"| {line} |\n" for line in lines)


def _options() -> Iterator[str]:
    """The options of a campaign by their headings, those without one first."""
    for heading in ("", *(title for title, _ in GROUPS.values())):
        those = [name for name, field in OPTIONS.items() if declared(field).get("group", "") == heading]
        rows = (_row(name, OPTIONS[name]) for name in those)
        yield f"\n## {heading or 'A campaign'}\n{_table('option', 'default', 'fixed', 'meaning', rows=rows)}"


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    spelled = f"--set {BY_SET[name]}KEY=VALUE" if name in TABLES else flag(name) if name in FLAGS else name.upper()
    default = f"`{field.default}`" if field.default and not field.is_required() else ""
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else declared(field).get("enum", ())
    listed = f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""
    return f"`{spelled}`", default, "yes" * bool(declared(field).get("fixed")), f"{field.description}{listed}"


def _verbs() -> Iterator[str]:
    for heading, modules in VERBS.items():
        yield f"\n## Verbs: {heading.lower()}\n"
        for verb in " ".join(modules.values()).split():
            yield from _verb(verb, app[verb])


def _verb(name: str, command: App) -> Iterator[str]:
    """A verb, its help, and the flags that are its own; then the verbs below it."""
    below = [verb for verb in command if not verb.startswith("-")]
    arguments = [] if below else command.assemble_argument_collection()
    title = ["nightshift", name]
    for each in arguments:
        if each.index is not None:
            place = each.name.removeprefix("--").upper()
            title.append(place if each.required else f"[{place}]")
    yield f"\n### `{' '.join(title)}`\n\n{inspect.cleandoc(command.help)}\n"
    flags = [each for each in arguments if each.index is None]
    also = [f"`{each.name}`" for each in flags if each.name in CAMPAIGN | SHARED.keys()]
    if CAMPAIGN - {"--name"} <= {each.name for each in flags}:
        also = ["all options of a campaign", *(each for each in also if each.strip("`") in SHARED)]
    if own := [each for each in flags if each.name not in CAMPAIGN | SHARED.keys()]:
        yield _table(
            "flag", "meaning", rows=((f"`{'`, `'.join(each.names)}`", str(each.parameter.help)) for each in own)
        )
    if also:
        yield f"\nFurther: {', '.join(also)}.\n"
    for verb in below:
        yield from _verb(f"{name} {verb}", command[verb])


if __name__ == "__main__":
    print(page(), end="")
