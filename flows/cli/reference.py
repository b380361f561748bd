"""The table of options in docs/command-line.md: `python -m flows.cli.reference` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args, get_origin

from flows.cli.options import FLAGS, Detach, Json, Server, Settings, Trust
from flows.spec.certify_options import CERTIFY
from flows.spec.options import Declared

PAGE = Path(__file__).resolve().parents[2] / "docs/command-line.md"
BEGIN, END = "<!-- options: generated -->\n", "<!-- end -->"
BEGIN_CERTIFY, HEAD_CERTIFY = "<!-- certify: generated -->\n", "| option | meaning |\n|---|---|\n"
HEAD = "| option | default | fixed | meaning |\n|---|---|---|---|\n"


def updated(page: str) -> str:
    """A page with the options of `run` and `resume`, and those of `certify`, between their markers."""
    rows = [_row(each) for each in FLAGS.values()]
    for _, option in map(get_args, (Settings, Trust, Server, Detach, Json)):
        rows.append(f"| `{option.name[0]}` | | | {option.help} |\n")
    certify = [f"| `{each.flag}` | {each.option.help} |\n" for each in CERTIFY.values()]
    page = _between(BEGIN, page, f"{HEAD}{''.join(rows)}")
    return _between(BEGIN_CERTIFY, page, f"{HEAD_CERTIFY}{''.join(certify)}")


def _between(begin: str, page: str, table: str) -> str:
    """A page with a table from a marker to the next end."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{table}{END}{rest.partition(END)[2]}"


def _row(each: Declared) -> str:
    listed = each.option.choices or (get_args(each.kind) if get_origin(each.kind) is Literal else ())
    choices = f" One of {', '.join(f'`{choice}`' for choice in listed)}." if listed else ""
    default = f"`{each.shown_default}`" if each.default else ""
    fixed = "yes" if each.option.fixed else ""
    return f"| `{each.flag}` | {default} | {fixed} | {each.option.help}{choices} |\n"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
