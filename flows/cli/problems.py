"""The verbs about environments: env list, new, import, validate, prepare; and the skill for coding agents."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import App, Parameter

import environments
from environments.plugins import Refused, require
from flows.cli import validation
from flows.cli.arguments import overrides_only
from flows.cli.options import Json, Settings, Trust
from flows.views import terminal
from tasks import preparing
from tasks.importing import Imported, imported
from tasks.stats import holdout_uses
from tasks.system import interrupt
from tasks.system.home import home

TEMPLATE = Path(__file__).with_name("template")
TEMPLATES = {
    "command": TEMPLATE, "grpo": TEMPLATE / "grpo",
    "sb3": TEMPLATE / "sb3/train.py", "rl-zoo": TEMPLATE / "rl-zoo/ppo.yml",
}  # fmt: skip
"""What a new environment is made of, by what it trains with: a folder is copied, a file is imported."""
ACCOUNT = "imported.md"
"""File with the account of a conversion, beside environment.toml."""
SKILL_SOURCE = Path(__file__).with_name("skill")
SKILL, WORD = "SKILL.md", "AGENTS.md"
env = App(name="env", help="List, create, import, check and prepare environments.", group_commands="Commands")
skill = App(name="skill", help="Teach a coding agent to use Nightshift.")


@env.command(name="list")
def env_list() -> int:
    """List the bundled environments.

    Example: nightshift env list
    """
    for one in map(environments.named, environments.bundled()):
        print(f"{one.name:<16}  {one.title}: {one.direction} {one.metric}, {one.budget_seconds:g} s with {one.trainer}")
        if one.lacks:
            print(f"{'':<16}  not ready: {one.lacks}")
    return 0


@env.command(name="new")
def env_new(folder: Path, /, *, kind: Annotated[str, Parameter("--from")] = "command") -> int:
    """Create FOLDER with a small environment that runs, to start your own from.

    Example: nightshift env new ./my-problem --from sb3

    Args:
        kind: What it trains with: command (the default), sb3, rl-zoo or grpo.
    """
    require(kind, TEMPLATES, "kind")
    source, typed = TEMPLATES[kind], shlex.quote(as_typed(folder))
    if source.is_file():
        import_environment(str(source), folder)
    else:
        _write(folder, {file.name: file for file in source.iterdir() if file.is_file()})
    print(f"wrote {folder}\nnext: nightshift env validate {typed} && nightshift run {typed} --trials 5")
    return 0


@env.command(name="import")
def env_import(place: str, /, *, to: Path | None = None, trust: Trust = False) -> int:
    """Make an environment of PLACE, a problem of another tool: a folder, a file or a storage URL.

    The original is read and stays as it is; nothing of it runs. The new folder is then checked as by env validate.

    Example: nightshift env import cleanrl/ppo.py --to ./ppo

    Args:
        to: The new folder. Default: here, by the original's name.
    """
    folder, made = import_environment(place, to)
    page = Path(folder, ACCOUNT)
    print(f"wrote {folder}; {page}:\n", *map(terminal.clean, page.read_text().splitlines()), "", sep="\n", flush=True)
    facts = validation.validate(folder, {}, trust)
    print(f"{validation.shown(facts, folder)}\nthen: {shlex.join(['nightshift', 'run', folder, *made.options])}")
    return 0


@env.command(name="validate")
def env_validate(environment: str, /, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Check ENVIRONMENT without training: its file, space, judge, trainer, command lines and what they import.

    A Gymnasium environment is made and reset once, outside the sandbox.

    Example: nightshift env validate ./my-problem
    """
    facts = validation.validate(environment, overrides_only(set_ or []), trust)
    terminal.tell(facts, validation.shown(facts, environment), json)
    return 0


@env.command(name="prepare")
def env_prepare(environment: str, /, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Make what ENVIRONMENT needs once, such as questions and a base model. Campaigns do this themselves.

    Example: nightshift env prepare arithmetic
    """
    from flows.spec.campaign_spec import checked_environment  # imports Prefect

    checked, typed = checked_environment(environment, overrides_only(set_ or []), trust), shlex.quote(environment)
    place = preparing.place(checked, home())
    if place is None:
        raise Refused(f"{checked.name} has no recipe, so there is nothing to prepare: nightshift try {typed}")
    known = preparing.read(place) is not None
    with interrupt.deferred():
        preparing.prepare(checked, home(), partial(print, file=sys.stderr))
    made = preparing.read(place)
    assert made is not None, "it was made"
    seen = holdout_uses.uses(place) if made.questions.get("report") else ()
    level = holdout_uses.pool_level(seen) if made.questions.get("report") else None
    facts = {
        "environment": checked.name, "folder": str(place), "made_now": not known, **vars(made),
        "files": len(made.files), "bytes": made.bytes, "looks": [asdict(use) for use in seen], "next_level": level,
    }  # fmt: skip
    lines = [f"{checked.name} {'was prepared already' if known else 'is prepared'}: {preparing.in_words(made)}"]
    if level is not None:
        lines.append(f"certificates that used its report questions: {len(seen)}; the next: at {level:.2g} at most")
    terminal.tell(facts, "\n".join([*lines, f"see {place}; next: nightshift try {typed}"]), json)
    return 0


def import_environment(place: str, to: Path | None) -> tuple[str, Imported]:
    """Convert what lies at `place` and write the folder; returns it as it is typed, and what was made. Raises Refused:
    `place` is not recognised or cannot be converted, or the folder exists or lies in the original.
    """
    made = imported(place)
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", made.name).strip("-.") or "imported"
    is_here = Path(plain).resolve() == Path(place).resolve()  # the original itself has the name
    folder = to or Path(f"{plain}-nightshift" if is_here else plain)
    if Path(place).is_dir() and folder.resolve().is_relative_to(Path(place).resolve()):
        raise Refused(f"{folder} would lie in {place}, and an original stays as it is: name another place with --to")
    _write(folder, {ACCOUNT: _account(made), **made.files})
    return as_typed(folder), made


def _write(folder: Path, files: Mapping[str, str | Path]) -> None:
    """Fill a folder beside the new one and rename it, so that it is there as a whole or not at all. Refused if it is
    there. (files: texts, or what to copy)
    """
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} exists already: name a new folder")
    target = folder.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
        root = Path(aside) / target.name
        for name, content in {WORD: SKILL_SOURCE / WORD, **files}.items():
            path = root / name
            assert path.resolve().is_relative_to(root), f"{name} leaves the folder"
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content, "utf-8")
            else:
                shutil.copy(content, path)
        root.rename(target)


def _account(made: Imported) -> str:
    """The account as a page."""
    lines = [f"# Imported\n\nFrom {made.origin}, by `nightshift env import`. The original was not changed."]
    if made.options:
        lines.append(f"\nOptions of `nightshift run` that fit: `{shlex.join(made.options)}`")
    lines += [f"\n**{warning}**" for warning in made.warnings]
    rows = [f"- {' '.join(term.theirs.split())}: {' '.join(term.ours.split())}" for term in made.left]
    lines += ["\n## Not carried, or otherwise here\n", *rows] if rows else []
    return "\n".join(lines) + "\n"


def as_typed(folder: Path) -> str:
    """A folder as the name of an environment: ./ in front, since a bundled one may be called so too."""
    return str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"


@skill.command(name="install")
def skill_install(*, to: Path | None = None) -> int:
    """Write the skill for coding agents into this project, as DIR/nightshift/SKILL.md.

    Example: nightshift skill install --to ~/.codex/skills

    Args:
        to: Folder of skills. Default: .claude/skills if .claude is there, else .agents/skills.
    """
    folder = to or Path(".claude/skills" if Path(".claude").is_dir() else ".agents/skills")
    place = folder.expanduser() / "nightshift"
    command = Path(sys.executable).with_name("nightshift")  # agents start shells in which no environment is active
    place.mkdir(parents=True, exist_ok=True)
    text = (SKILL_SOURCE / SKILL).read_text()
    (place / SKILL).write_text(f"{text}\nWhere a shell does not find `nightshift`, it is `{command}`.\n")
    print(f"wrote {place / SKILL}")
    return 0
