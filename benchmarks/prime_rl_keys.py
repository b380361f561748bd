"""Which of the keys that may be tuned does a prime-rl know? Its configuration classes are asked; nothing is trained.

    python -m benchmarks.prime_rl_keys CHECKOUT [CHECKOUT ...] [--python PYTHON] > docs/prime-rl-keys.md

A table of the keys of tasks/trainers/prime_rl_parts/keys.py, with a column for each checkout (clones of
github.com/PrimeIntellect-ai/prime-rl; their submodules are not needed). The exit status is 1 when the last of them
refuses one, or a value of it: `benchmarks.prime_rl_configs` then says whether an environment uses it. PYTHON is as
there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.prime_rl_configs import PACKAGE, commit
from prime_rl_parts.keys import DOTTED, KEYS, Key

HEAD = """\
# Keys of prime-rl by commit

What `train.toml` and the parameters of [two GPUs](two-gpus.md) may set, and whether prime-rl's configuration classes
take it at a commit: the key, each word, and the ends of each range. Made by
`python -m benchmarks.prime_rl_keys CHECKOUT ...`, which ends with 1 where the last checkout lacks a key or refuses a
value. `unchecked`: prime-rl hands on whatever stands in that table, and vLLM decides. `orchestrator.train.source` is a
list in prime-rl; in `train.toml` it is a table, for the one source that the engine writes.
"""
ASK = '''\
import json, sys, typing
from prime_rl.configs.rl import RLConfig
from pydantic import BaseModel, TypeAdapter

def models(kind):
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in typing.get_args(kind):
        yield from models(part)

def kinds(kind):
    return {typing.get_origin(kind), *(origin for part in typing.get_args(kind) for origin in kinds(part))}

def found(model, path):
    """The types that a key may have, each of a class that has it; None where anything is let through."""
    field = model.model_fields.get(path[0])
    if field is None:
        return [None] if model.model_config.get("extra") == "allow" else []
    rest = path[2:] if dict in kinds(field.annotation) else path[1:]  # of a dictionary any name is a key
    if not rest:
        return [TypeAdapter(field.rebuild_annotation())]
    return [kind for inner in models(field.annotation) for kind in found(inner, rest)]

def takes(kind, value):
    try:
        kind.validate_python(None if value == "None" else value)
    except ValueError:
        return False
    return True

def said(key, values):
    types = found(RLConfig, key.split("."))
    if not types:
        return "no"
    known = [kind for kind in types if kind is not None]
    refused = [value for value in values if not any(takes(kind, value) for kind in known)] if known else []
    return f"not {refused[0]}" if refused else "yes" if known else "unchecked"

print(json.dumps({key: said(key, values) for key, values in json.load(sys.stdin).items()}))
'''
"""A program of the other Python: keys with values in, what its classes say of each out."""


def known(checkout: Path, python: str) -> dict[str, str]:
    """For each key that may be tuned yes, no, unchecked, or the value of ours that it does not take.

    Raises:
        ImportError: the classes do not load.
    """
    asked = json.dumps({key: tried(kind) for key, kind in KEYS.items()})
    done = subprocess.run(
        [python, "-c", ASK], input=asked, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(checkout.absolute() / PACKAGE)},
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ImportError(f"{checkout}: its classes do not load with {python} ({last}): give one with its packages")
    words: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return words


def table(columns: dict[str, dict[str, str]]) -> str:
    """The page: a row for each key, its short name and values, and a column for each commit."""
    short = {key: name for name, key in DOTTED.items()}
    lines = [HEAD, f"| key | parameter | values | {' | '.join(columns)} |", f"|{'---|' * (3 + len(columns))}"]
    for key, kind in KEYS.items():
        answers = [answered[key] for answered in columns.values()]
        name = f"`{short[key]}`" if key in short else ""
        lines.append(f"| `{key}` | {name} | {values(kind)} | {' | '.join(answers)} |")
    return "\n".join(lines)


def tried(kind: Key) -> list[object]:
    """Values that have to be taken: every word, and the ends of a range."""
    if kind.kind is list:
        return [list(kind.words)]
    if kind.kind is bool:
        return [True, False]
    ends = [] if kind.kind is str else [kind.kind(end) for end in (kind.low, kind.high) if math.isfinite(end)]
    return [*kind.words, *ends]


def values(kind: Key) -> str:
    """The values that we let through."""
    words = [f"`{word}`" for word in kind.words]
    if kind.kind is list:
        return f"a list of some of {', '.join(words)}"
    if kind.kind is bool:
        words = ["`true`", "`false`"]
    elif kind.low == -math.inf:
        words.insert(0, "a number")
    elif kind.kind is not str:
        whole = "a whole number" if kind.kind is int else "a number"
        end = f"to {kind.high:g}" if kind.high != math.inf else "on"
        words.insert(0, f"{whole} from {kind.low:g} {end}")
    return ", ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="+")
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args(arguments)
    for checkout in args.checkouts:
        if not (checkout / PACKAGE).is_dir():
            parser.error(f"{checkout} has no {PACKAGE}: give a clone of github.com/PrimeIntellect-ai/prime-rl")
    columns = {}
    for checkout in args.checkouts:
        sha, _, day = commit(checkout).partition(" of ")
        try:
            columns[f"{sha[:8]} ({day})"] = known(checkout, args.python)
        except ImportError as missing:
            parser.error(str(missing))
    print(table(columns))
    refused = {key: word for key, word in list(columns.values())[-1].items() if word not in ("yes", "unchecked")}
    if refused:
        told = ", ".join(key if word == "no" else f"{key} ({word})" for key, word in refused.items())
        print(f"the last checkout refuses {told}", file=sys.stderr)
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
