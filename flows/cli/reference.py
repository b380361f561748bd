"""docs/options.md, the page of all options and verbs: `python -m flows.cli.reference > docs/options.md`."""

from __future__ import annotations

from collections.abc import Iterator

from cyclopts import App

from flows.cli.app import app

INTRODUCTION = """\
# Options and verbs

<!-- generated: python -m flows.cli.reference > docs/options.md -->

An option of a campaign is a flag of `run` and `resume`, a key of a spec.toml (with `_` for `-`, at the top or under
`[advanced]`), and a field of the form in the Prefect UI. Fixed options change scores or verdicts: they stay as they are
when a campaign is resumed.

## nightshift run

"""
VERBS = """
## Verbs

`nightshift VERB --help` has the flags of a verb, with an example.

| verb |  |
| --- | --- |
"""


def page() -> str:
    """The page, in Markdown."""
    help = app["run"].generate_docs().rstrip("\n")
    options = help[help.index("**Arguments**") :]  # what comes before depends on how this is called
    return "".join([INTRODUCTION, options, "\n", VERBS, *_verbs(app, "nightshift")])


def _verbs(command: App, name: str) -> Iterator[str]:
    """A row for each verb below a command, with the first line of its help."""
    below = [verb for verb in command if not verb.startswith("-")]
    for verb in below:
        yield from _verbs(command[verb], f"{name} {verb}")
    if not below:
        first = command.help.partition("\n")[0]
        yield f"| `{name}` | {first} |\n"


if __name__ == "__main__":
    print(page(), end="")
