"""Wishes: what an environment asks for beyond its own folder, a sentence each, before any of its code runs.

An environment from somebody else may list paths of this machine, use the network, or bring code that runs outside the
sandbox. Whoever runs it says yes to these sentences once (flows/spec/trust.py). So they are exact: paths are real, with
links and `..` resolved, and no character can hide or reorder a part of them. An environment that reads only its own
folder, with the default limits and no network, wishes nothing.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import environments
from environments import FILE, Environment, judge_name, plugins
from environments.limits import Limits
from environments.plugins import Refused
from environments.space import Value
from tasks.proposers import Proposer
from tasks.recipes import execution
from tasks.sandbox import usage
from tasks.sandbox.confinement import outside
from tasks.store import workspace
from tasks.system.secret_places import is_hidden_at_home, secret_place

MOST, LONGEST = 24, 600
"""Wishes of one environment, and characters of one wish: nobody reads more before saying yes."""
LIMITS = ("processes", "file_gb", "out_gb", "out_files", "scratch_gb", "output_mb")
TIMES = ("ready_seconds", "poll_seconds", "answer_seconds", "away_seconds")
"""Settings of a place that nobody has to agree to."""
PROPOSERS = "tasks.proposers"
PLUGINS = "gymnasium.envs"
"""Entry points by which an installed package registers its environments with gymnasium."""

Wishes = tuple[str, ...]


def of(environment: Environment) -> Wishes:
    """What an environment asks for beyond its own folder; its files were checked (`Environment.check_files`).

    Raises:
        Refused: it asks for a place with keys or passwords, or for more than anybody reads.
    """
    source = f"{shown(str(environment.folder))}/{FILE}"
    return _readable(
        source, chain(_network(environment), _judged(environment), _limits(environment), _paths(environment))
    )


def of_spec(asked: Mapping[str, Any], path: Path) -> Wishes:
    """What a spec.toml asks for that confines trials less, sends records elsewhere, or starts an agent.

    Raises:
        Refused: as in `of`, or the environment cannot be read.
    """
    advanced = asked.get("advanced", {})
    advanced = advanced if isinstance(advanced, dict) else {}
    found = []
    if advanced.get("isolation", "auto") == "none":
        found.append("trials run without a sandbox, as you")
    if advanced.get("allow_unsandboxed"):
        found.append("edited programs run even without a sandbox, as you")
    if asked.get("tracking", "off") != "off":
        found.append(f"records are written to {shown(str(asked['tracking']))}")
    if _asks(proposer := str(asked.get("proposer", ""))):
        agent = "a coding agent runs outside the sandbox, as you"
        what = agent if proposer == "agent" else "a language model or an agent is asked"
        options = json.dumps(advanced.get("options", {}), ensure_ascii=False, default=str)
        found.append(f"{what}: proposer {proposer} with the options {shown(options)}")
    found += _overridden(str(asked.get("environment", "")), advanced.get("overrides", {}))
    return _readable(shown(str(path)), found)


def shown(text: str) -> str:
    """A text in which every character is seen: others than letters, digits and signs that go from left to right are
    escaped, and so is the backslash. Different texts stay different."""
    return "".join(char if _is_plain(char) else char.encode("unicode_escape").decode() for char in text)


def _is_plain(char: str) -> bool:
    if char.isascii():
        return char.isprintable() and char != "\\"
    return unicodedata.category(char) in ("Ll", "Lu", "Lt", "Lo", "Nd") and unicodedata.bidirectional(char) == "L"


def _readable(source: str, wishes: Iterable[str]) -> Wishes:
    """The wishes, each once, if a person can read them. Raises Refused."""
    found: dict[str, None] = {}
    for wish in wishes:
        found[wish] = None
        if len(found) > MOST:
            fact = f"asks for more than {MOST} things beyond its folder, which nobody reads"
            raise Refused(f"{source}: {fact}: name folders in place of the files in them")
        if len(wish) > LONGEST:
            fact = f"asks for something that takes {len(wish)} characters to say ({wish[:80]}...)"
            raise Refused(f"{source}: {fact}, and nobody reads more than {LONGEST}: use shorter paths")
    return tuple(found)


def _paths(environment: Environment) -> Iterator[str]:
    """Paths of this machine that it reads, and files that links in its folder lead to."""
    folder, recipe = environment.folder.resolve(), environment.prepare
    for path in outside(environment):
        who = "training and judging read" if str(path) in environment.readable else "judging reads"
        yield _reads(who, path, folder)
    for path in execution.paths_in(recipe.settings) if recipe else ():
        yield _reads("its recipe reads", path, folder)
    files = [*environment.content().values(), *(path for path, _ in workspace.baseline_files(environment))]
    for file in dict.fromkeys(files):
        if file.is_relative_to(environment.folder) and not file.resolve().is_relative_to(folder):
            name = shown(str(file.relative_to(environment.folder)))
            yield f"{_reads('it reads', file, folder)}, by the link {name}"


def _reads(who: str, path: Path, folder: Path) -> str:
    """The wish to read a path, by its real name. Raises Refused: it holds keys."""
    path = Path(os.path.realpath(path))  # unlike resolve(), it takes links in a circle
    if secret := secret_place(path):
        fact = f"{who} {shown(str(path))}, and {shown(secret)} is where keys and passwords are kept"
        raise Refused(
            f"{shown(str(folder))}/{FILE}: {fact}: keep what is to be read in a folder of its own, and list that"
        )
    hidden = ", in a hidden folder of your home: programs keep keys in such" if is_hidden_at_home(path) else ""
    return f"{who} {shown(str(path))}{hidden}"


def _network(environment: Environment) -> Iterator[str]:
    if environment.network:
        yield "training uses the network"
    if environment.remote:
        yield _sent(environment)
    if environment.judge.online:
        yield "judging uses the network"
    if environment.prepare and environment.prepare.network:
        yield "its recipe uses the network, and reads and fills your Hugging Face cache"


def _sent(environment: Environment) -> str:
    """Where trials go, with whose login, and at what price."""
    stated = environment.remote.model_dump(exclude_defaults=True) if environment.remote else {}
    words = json.dumps({key: value for key, value in stated.items() if key not in TIMES}, ensure_ascii=False)
    return f"its programs and parameters are sent to {shown(environment.trainer)} with {shown(words)}"


def _judged(environment: Environment) -> Iterator[str]:
    """What the engine itself does for the judge. A recipe runs in the sandbox, as training does: nobody is asked."""
    yield from BY_JUDGE[judge_name(environment.judge)](environment.judge)


def _control(judge: Any) -> Iterator[str]:
    module = judge.id.rpartition(":")[0]
    if module and not _is_of_gymnasium(module):
        yield f"the Python module {shown(module)} runs in the engine, outside the sandbox, as you"
    for section, kwargs in (("", judge.kwargs), *((name, source.kwargs) for name, source in judge.sources.items())):
        for key, value in _reaching_texts(kwargs):
            where = f"{section}.{key}" if section else key
            yield f"{shown(judge.id)} gets {shown(where)} = {shown(repr(value))} in the engine, outside the sandbox"


def _text(judge: Any) -> Iterator[str]:
    yield f"{shown(judge.taskset)} runs beside the engine, outside the sandbox, as you"
    if judge.backend == "openai":
        key = judge.endpoint.key_variable
        sent = f", with the value of your variable {shown(key)}" if key else ""
        yield f"judging asks {shown(judge.endpoint.base_url)}{sent}"


def _command(_: Any) -> Iterator[str]:
    yield from ()


def _reported(_: Any) -> Iterator[str]:
    yield "scores are those that the endpoint reports; nothing is measured here"


BY_JUDGE: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "command": _command, "control": _control, "reported": _reported, "text": _text,
}  # fmt: skip
"""Of each judge, what the engine runs or sends for it outside the sandbox."""


def _is_of_gymnasium(module: str) -> bool:
    """Whether a module belongs to gymnasium, or to an installed package that gymnasium itself imports."""
    top = module.partition(".")[0]
    registered = (entry.module.partition(".")[0] for entry in metadata.entry_points(group=PLUGINS))
    return top in ("gymnasium", *registered)


def _reaching_texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Texts in keyword arguments that may name a path or a module, with their keys."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _reaching_texts(below, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _reaching_texts(below, key)
    elif isinstance(value, str) and any(sign in value for sign in "/\\:"):
        yield key, value


def _limits(environment: Environment) -> Iterator[str]:
    usual = Limits()
    if usage.allowed(environment.limits) > usage.allowed(usual):
        yield f"the limit memory_gb is {environment.limits.memory_gb:g}, more than three quarters of the machine's"
    for name in LIMITS:
        asked, default = getattr(environment.limits, name), getattr(usual, name)
        if asked > default:
            yield f"the limit {name} is {asked:g}, where {default:g} is usual"


def _asks(proposer: str) -> bool:
    """Whether a proposer asks a model or an agent, whose command, address and key its options may name."""
    if proposer not in plugins.names(PROPOSERS):
        return False  # refused later, with the near miss
    return plugins.load(PROPOSERS, proposer, Proposer).asks  # type: ignore[type-abstract]


def _overridden(reference: str, overrides: object) -> Wishes:
    """What keys of a spec add to a bundled environment; another environment is asked about with them anyway."""
    if not overrides or not isinstance(overrides, dict) or not environments.is_bundled(environments.find(reference)):
        return ()
    keys: dict[str, Value] = overrides
    changed, usual = environments.named(reference, keys), environments.named(reference)
    changed.check_files()
    changed_wishes, known = of(changed), of(usual)
    return tuple(wish for wish in changed_wishes if wish not in known)
