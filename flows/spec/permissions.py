"""Permissions: what an environment needs beyond its own folder, a sentence each, and for which folders it was granted.

They are known before any of its code runs, and `--trust` grants them. Paths in them are real, with links and `..`
resolved, and every character is seen. The grants are in one file of the home, as the sentences that were shown. A grant
holds for its folder or spec file, and for all sentences of one question together, so for fewer of them as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import FileLock

import environments
from environments import FILE, Environment, plugins
from environments.plugins import Refused
from environments.space import Value
from tasks import preparing
from tasks.proposers import Proposer
from tasks.sandbox.confinement import LEVELS, outside
from tasks.sandbox.interpreter import interpreter_of
from tasks.store import workspace
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.secret_places import secret_place

GRANTS = ".trusted.json"
"""The sets of permissions that were granted together, by folder or spec file."""
PROPOSERS = "tasks.proposers"
REACHING = re.compile(r'"[^"]*[/\\:][^"]*"')
"""Texts in a JSON document, written with `=` after its keys, that may name a path or a module."""

Permissions = tuple[str, ...]


def of(environment: Environment) -> Permissions:
    """What an environment needs beyond its own folder, once its files were checked (`Environment.check_files`).

    Refused if it reads a place with keys or passwords.
    """
    parts = (_network(environment), _judged(environment), _paths(environment))
    return tuple(dict.fromkeys(chain(*parts)))


def needed(environment: Environment) -> Permissions:
    """What an environment needs a person for; nothing where it comes with Nightshift. Raises Refused, as in `of`."""
    return () if environments.is_bundled(environment.folder) else of(environment)


def require(environment: Environment, trust: bool = False) -> None:
    """Refuse an environment that needs what nobody has granted. (trust: grants it)"""
    _require(environment.folder, needed(environment), trust)


def require_named(reference: str, overrides: Mapping[str, Value], trust: bool) -> Environment:
    """The same of an environment by its name or folder, with keys of environment.toml over it."""
    environment = environments.named(reference, overrides)
    environment.check_files()
    require(environment, trust)
    return environment


def require_spec(stated: Mapping[str, Any], path: Path, trust: bool) -> None:
    """The same of a spec.toml, which may come with somebody's environment; that of a campaign was asked about."""
    if not path.resolve().is_relative_to(home().resolve()):
        _require(path, tuple(of_spec(stated)), trust)


def _require(subject: Path, need: Permissions, trust: bool) -> None:
    if not need or any(set(need) <= set(granted) for granted in _grants().get(os.path.realpath(subject), [])):
        return
    if not trust:
        raise Refused(
            f"{printable(str(subject))} needs more than an environment has by itself: {'; '.join(need)}. Nothing was "
            "started. Look through it, and if you agree, say so once with --trust (for an import or a deployment: "
            "`nightshift env validate FOLDER --trust`)"
        )
    print(f"{printable(str(subject))} may from now on: {'; '.join(need)}", file=sys.stderr)
    grant(subject, need)


def grant(subject: Path, need: Permissions) -> None:
    """Remember that all of that was granted."""
    with FileLock(home() / f"{GRANTS}.lock"):
        grants = _grants()
        grants.setdefault(os.path.realpath(subject), []).append(sorted(need))
        write_atomic(home() / GRANTS, json.dumps(grants, indent=2) + "\n")


def _grants() -> dict[str, list[list[str]]]:
    path = home() / GRANTS
    try:
        return dict(json.loads(path.read_text())) if path.is_file() else {}
    except ValueError as damaged:
        raise Refused(f"{path}: {damaged}: remove it, and say --trust again where you are asked") from damaged


def printable(text: str) -> str:
    """A text in which every character is seen: all but printable ASCII, and the backslash, is escaped."""
    return text.encode("unicode_escape").decode()


def _network(environment: Environment) -> Iterator[str]:
    if environment.network:
        yield "training uses the network"
    if environment.remote:
        stated = json.dumps(environment.remote.model_dump(exclude_defaults=True), ensure_ascii=False)
        yield f"its programs and parameters are sent to {printable(environment.trainer)} with {printable(stated)}"
    if environment.judge.online:
        yield "judging uses the network"
    if environment.prepare and environment.prepare.network:
        yield "its recipe uses the network, and reads and fills your Hugging Face cache"


def _judged(environment: Environment) -> Iterator[str]:
    """What the engine runs or sends for the judge outside the sandbox."""
    judge: Any = environment.judge
    match plugins.name_of(judge):
        case "control":
            module = judge.id.rpartition(":")[0]
            if module:
                yield f"the Python module {printable(module)} runs in the engine, outside the sandbox, as you"
            for arguments in (judge.kwargs, *(source.kwargs for source in judge.sources.values())):
                for text in REACHING.findall(json.dumps(arguments, default=str, separators=(",", "="))):
                    yield f"{printable(judge.id)} gets {text} in the engine, outside the sandbox"
        case "text":
            yield f"{printable(judge.taskset)} runs beside the engine, outside the sandbox, as you"
            if judge.backend == "openai":
                key = judge.endpoint.key_variable
                sent = f", with the value of your variable {printable(key)}" if key else ""
                yield f"judging asks {printable(judge.endpoint.base_url)}{sent}"
        case "reported":
            yield "scores are those that the endpoint reports; nothing is measured here"
        case "command":  # it runs in the sandbox
            pass
        case other:
            yield f"what the judge {other} runs outside the sandbox, as you, is not known"


def _paths(environment: Environment) -> Iterator[str]:
    """Paths of this machine that it reads, and files that links in its folder lead to."""
    folder, recipe = environment.folder.resolve(), environment.prepare
    if environment.python:
        own = interpreter_of(environment.python)
        read = ", ".join(printable(str(path)) for path in (*own.prefixes, *own.editable))
        yield f"programs are started by {printable(str(own.executable))}, and read {read}"
    for path in outside(environment):
        who = "training and judging read" if str(path) in environment.readable else "judging reads"
        yield _reads(who, path, folder)
    for path in preparing.paths_in(recipe.settings) if recipe else ():
        yield _reads("its recipe reads", path, folder)
    program = (path for path, _ in workspace.baseline_files(environment))
    for file in (*environments.files(environment.folder), *program):
        if file.is_relative_to(environment.folder) and not file.resolve().is_relative_to(folder):
            name = printable(str(file.relative_to(environment.folder)))
            yield f"{_reads('it reads', file, folder)}, by the link {name}"


def _reads(who: str, path: Path, folder: Path) -> str:
    """The sentence that a path is read, by its real name. Raises Refused: it holds keys."""
    path = Path(os.path.realpath(path))  # unlike resolve(), it takes links in a circle
    if secret := secret_place(path):
        fact = f"{who} {printable(str(path))}, and {printable(secret)} is where keys and passwords are kept"
        raise Refused(
            f"{printable(str(folder))}/{FILE}: {fact}: keep what is to be read in a folder of its own, and list that"
        )
    return f"{who} {printable(str(path))}"


def of_spec(stated: Mapping[str, Any]) -> Iterator[str]:
    """What a spec.toml needs that confines trials less, sends records elsewhere, or asks a model or an agent; and what
    its keys of environment.toml add to a bundled environment. Another one is asked about with them anyway.

    Refused as in `of`, or where the environment cannot be read.
    """
    advanced, reference, proposer = stated["advanced"], str(stated["environment"]), stated.get("proposer")
    if (level := advanced.get("isolation", "auto")) not in ("auto", LEVELS[0]):
        yield "trials run without a sandbox, as you" if level == "none" else f"trials run at isolation {level}"
    if advanced.get("allow_unsandboxed"):
        yield "edited programs run even without a sandbox, as you"
    if stated.get("tracking", "off") != "off":
        yield f"records are written to {printable(str(stated['tracking']))}"
    # A proposer that there is not is refused later, with the near miss.
    if proposer in plugins.names(PROPOSERS) and plugins.load(PROPOSERS, proposer, Proposer).asks:  # type: ignore[type-abstract]
        agent = "a coding agent runs outside the sandbox, as you"
        what = agent if proposer == "agent" else "a language model or an agent is asked"
        options = json.dumps(advanced.get("options", {}), ensure_ascii=False, default=str)
        yield f"{what}: proposer {proposer} with the options {printable(options)}"
    if (overrides := advanced.get("overrides")) and environments.is_bundled(environments.find(reference)):
        changed = environments.named(reference, overrides)
        changed.check_files()
        usual = of(environments.named(reference))
        yield from (sentence for sentence in of(changed) if sentence not in usual)
