"""Which of the keys that may be tuned does a prime-rl know? Its configuration classes are asked; nothing is trained.

    python -m benchmarks.prime_rl_keys CHECKOUT [CHECKOUT ...] [--python PYTHON] > docs/prime-rl-keys.md

A table of the keys of tasks/trainers/prime_rl_parts/keys.py, with a column for each checkout (clones of
github.com/PrimeIntellect-ai/prime-rl; their submodules are not needed). The exit status is 1 when the last of them
refuses one: `benchmarks.prime_rl_configs` then says whether an environment uses it. PYTHON is as there.
"""

from __future__ import annotations

import argparse
import json
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
have it at a commit. Made by `python -m benchmarks.prime_rl_keys CHECKOUT ...`, which ends with 1 where the last
checkout lacks a key. `unchecked`: prime-rl hands on whatever stands in that table, and vLLM decides.
"""
ASK = """\
import json, sys, typing
from prime_rl.configs.rl import RLConfig
from pydantic import BaseModel

def models(kind):
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in typing.get_args(kind):
        yield from models(part)

def kinds(kind):
    return {typing.get_origin(kind), *(origin for part in typing.get_args(kind) for origin in kinds(part))}

def said(model, path):
    field = model.model_fields.get(path[0])
    if field is None:
        return "unchecked" if model.model_config.get("extra") == "allow" else "no"
    rest = path[2:] if dict in kinds(field.annotation) else path[1:]  # of a dictionary any name is a key
    found = [said(inner, rest) for inner in models(field.annotation)] if rest else ["yes"]
    return next((word for word in ("yes", "unchecked") if word in found), "no")

print(json.dumps({key: said(RLConfig, key.split(".")) for key in json.load(sys.stdin)}))
"""
"""A program of the other Python: keys in, what its classes say of each out."""


def known(checkout: Path, python: str) -> dict[str, str]:
    """yes, no or unchecked for each key that may be tuned. Raises ImportError where the classes do not load."""
    done = subprocess.run(
        [python, "-c", ASK], input=json.dumps(list(KEYS)), capture_output=True, text=True,
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


def values(kind: Key) -> str:
    """The values that we let through."""
    words = [f"`{word}`" for word in kind.words]
    if kind.kind is list:
        return f"a list of some of {', '.join(words)}"
    if kind.kind is bool:
        words = ["`true`", "`false`"]
    elif kind.low == -float("inf"):
        words.insert(0, "a number")
    elif kind.kind is not str:
        whole = "a whole number" if kind.kind is int else "a number"
        end = f"to {kind.high:g}" if kind.high != float("inf") else "on"
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
    lacking = [key for key, word in list(columns.values())[-1].items() if word == "no"]
    if lacking:
        print(f"the last checkout refuses {', '.join(lacking)}", file=sys.stderr)
    return int(bool(lacking))


if __name__ == "__main__":
    sys.exit(main())
