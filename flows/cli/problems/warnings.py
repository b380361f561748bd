"""Warnings of `env validate`: what is allowed in an environment but is likely a mistake, each with its remedy."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from environments import FILE, Environment, toml_file
from tasks.store import workspace

SHELL = re.compile(r"&&?|\|\|?|;|\d?>>?(&\d)?|\d?<<?|.+;|\$\w+|\$\{\w+\}|\$\(.*|`.*|~/.*")
"""Words that only a shell understands."""
SHELLS, BUILTINS = ("sh", "bash", "dash", "zsh", "fish"), ("cd", "export", "source", "set", "ulimit", "exec", "eval")
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*))", re.MULTILINE
)
PLACEHOLDER = re.compile(r"(?<!\{)\{(\w+)\}")
SEED = re.compile(r"(\w+[_.])?(random_)?(seed|random_state)", re.IGNORECASE)
MOST_BYTES = 2**20
"""Of a program's file that is looked through."""
TEXTS = ("title", "metric", "prepare.settings", "text.vllm_args")
"""Keys whose values are texts even if they look like numbers."""


def warnings(environment: Environment) -> list[str]:
    """What is likely a mistake, a sentence or two each. Files are searched as text; no code runs and none is parsed."""
    files = [(path, name) for path, name in workspace.baseline_files(environment) if path.is_file()]
    program = {name: _text(path) for path, name in files}
    return [
        *_result(environment, program),
        *_space(environment, program),
        *_imports(environment, program),
        *_shell(environment),
        *_numbers(toml_file.read(environment.folder / FILE)),
    ]


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def _result(environment: Environment, program: Mapping[str, str]) -> Iterator[str]:
    """Commands that do not know where the result of training is."""
    reads_config = any("config.json" in text for text in program.values())
    own = environment.program or not environment.remote  # an endpoint may train a program that it has
    if own and "out" not in PLACEHOLDER.findall(environment.train_cmd) and not reads_config:
        yield (
            "train_cmd never mentions {out}, and no file of the program reads config.json, so it may not know where to "
            "leave its result: add an argument such as --out {out}"
        )
    if "out" not in PLACEHOLDER.findall(_judged(environment)):
        yield (
            "eval_cmd never mentions {out}, so it cannot see what training left, and every trial scores alike: add "
            "an argument such as {out}"
        )


def _judged(environment: Environment) -> str:
    """The judge's own command line, where the environment states one; else one that is in order."""
    return str(environment.judge.model_dump().get("eval_cmd", "{out}"))


def _space(environment: Environment, program: Mapping[str, str]) -> Iterator[str]:
    """A space that is empty or has a seed, and parameters that nothing reads."""
    if not environment.space:
        yield (
            "there is no [space], so a search has no parameter to vary: add one, such as "
            'space.lr = { type = "float", low = 1e-4, high = 1.0, log = true, default = 1e-3 }, or have code edited '
            "(--proposer llm_diff or agent)"
        )
    for name in filter(SEED.fullmatch, environment.space):
        yield (
            f"space.{name}: a search would pick the luckiest seed, and fresh runs of the champion would repeat it: "
            f"take it out of [space], and use the run's own (seed in config.json, {{seed}} in train_cmd)"
        )
    given = {*PLACEHOLDER.findall(environment.train_cmd)}
    for name in environment.space if environment.program or not environment.remote else ():
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        if name not in given and not any(map(word.search, program.values())):
            yield (
                f"parameter {name!r} stands neither in train_cmd nor in a file of the program, so varying it changes "
                f"nothing: add an argument such as --{name} {{{name}}}, or read it from config.json"
            )


def _imports(environment: Environment, program: Mapping[str, str]) -> Iterator[str]:
    """Modules that lie beside the program and are not copied with it."""
    own = {(environment.folder / name).resolve() for name in program}
    missing: dict[str, str] = {}
    for name, text in program.items():
        for module in _imported(text) if name.endswith(".py") else ():
            for folder in dict.fromkeys(((environment.folder / name).parent, environment.folder)):
                file, package = folder / f"{module}.py", folder / module
                inside = [file] if file.is_file() else [*package.glob("*.py")][:1]
                if inside and inside[0].resolve() not in own and (environment.folder / name).is_file():
                    found = file if file.is_file() else package
                    missing.setdefault(found.relative_to(environment.folder).as_posix(), name)
    for lacking, name in missing.items():
        yield f"{name} imports {lacking}, which is not copied to where it runs: add {lacking!r} to program"


def _imported(text: str) -> Iterator[str]:
    """The first parts of the names of imported modules."""
    for one, several in IMPORT.findall(text):
        for module in [one] if one else several.split(","):
            if first := module.strip().partition(".")[0]:
                yield first


def _shell(environment: Environment) -> Iterator[str]:
    """Command lines that are written for a shell."""
    for key, command in (
        ("train_cmd", environment.train_cmd), ("check_cmd", environment.check_cmd), ("eval_cmd", _judged(environment)),
    ):  # fmt: skip
        words = shlex.split(command)
        if not words or Path(words[0]).name in SHELLS:
            continue
        foreign = [word for word in words if SHELL.fullmatch(word)]
        if words[0] in BUILTINS or re.fullmatch(r"\w+=.*", words[0]):
            foreign.insert(0, words[0])
        if foreign:
            yield (
                f"{key}: no shell reads it, so {foreign[0]!r} is {_as_what(words, foreign[0])}: put such a line "
                f"into a script of the program, or write bash -c '...'. It starts in the program's folder"
            )


def _as_what(words: list[str], word: str) -> str:
    return "taken for a program" if word == words[0] else "handed on as an argument"


def _numbers(table: object, key: str = "") -> Iterator[str]:
    """Texts that are numbers or booleans."""
    if isinstance(table, dict):
        for name, value in table.items():
            yield from _numbers(value, f"{key}.{name}" if key else name)
    elif isinstance(table, list):
        for value in table:
            yield from _numbers(value, key)
    elif isinstance(table, str) and not key.startswith(TEXTS) and _is_number(table):
        kind = "boolean" if table in ("true", "false") else "number"
        yield f"{key}: {table!r} is a text, not a {kind}: leave out the quotes"


def _is_number(text: str) -> bool:
    if text in ("true", "false"):
        return True
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
