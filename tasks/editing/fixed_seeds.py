"""Places where an edited program fixes a seed. Each run of a trial gets its own seed, so that luck averages out.

A check for honest mistakes, like `missing_calls`: it reads what is written in one place. `seed + 1` and
`default_rng(config["seed"])` pass; `manual_seed(0)` and `config["seed"] = 7` do not.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks.editing.python_source import dotted, parse

SEEDERS = frozenset({
    "seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all", "set_seed", "set_global_seed",
    "set_random_seed", "default_rng", "MT19937", "PCG64", "PRNGKey", "Philox", "Random", "RandomState", "SeedSequence",
})  # fmt: skip
"""Calls, by the last part of their name, whose first argument is a seed."""
NAMES = frozenset({"seed", "random_seed", "random_state", "rng_seed"})
"""Keyword arguments of any call, variables, attributes and keys that hold a seed."""


@dataclass(frozen=True)
class Site:
    """A place that fixes a seed, with its source text."""

    file: str
    line: int
    text: str


def added(before: Mapping[str, str], after: Mapping[str, str]) -> list[Site]:
    """Sites in the files of `after` that are not in those of `before`; a site that only moved is not new.

    Raises:
        NotPython: a file of either cannot be parsed.
    """
    old = Counter(site.text for site in _sites(before))
    new = []
    for site in _sites(after):
        old[site.text] -= 1
        if old[site.text] < 0:
            new.append(site)
    return new


def _sites(files: Mapping[str, str]) -> Iterator[Site]:
    for name, source in files.items():
        for node in ast.walk(parse(name, source)):
            if isinstance(node, ast.expr | ast.stmt) and any(map(_is_fixed, _seeds(node))):
                yield Site(name, node.lineno, ast.unparse(node))


def _seeds(node: ast.expr | ast.stmt) -> Iterator[ast.expr | None]:
    """The expressions from which a call, an assignment or a dictionary takes a seed."""
    match node:
        case ast.Call():
            yield from (keyword.value for keyword in node.keywords if keyword.arg in NAMES)
            if dotted(node.func).rpartition(".")[2] in SEEDERS:
                yield from node.args[:1]
        case ast.Assign():
            yield from (node.value for target in node.targets if _holds_seed(target))
        case ast.AnnAssign() if _holds_seed(node.target):
            yield node.value
        case ast.Dict():
            yield from (value for key, value in zip(node.keys, node.values, strict=True) if _is_key(key))


def _holds_seed(target: ast.expr) -> bool:
    """Whether a variable, an attribute or a key has a seed's name."""
    if isinstance(target, ast.Subscript):
        return _is_key(target.slice)
    return dotted(target).rpartition(".")[2].lower() in NAMES


def _is_key(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in NAMES


def _is_fixed(seed: ast.expr | None) -> bool:
    """Whether an expression is a number or a text, or made of such without anything that may vary."""
    parts = list(ast.walk(seed)) if seed else []
    varies = any(isinstance(part, ast.Name | ast.Call | ast.Lambda) for part in parts)
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    return not varies and any(value is not None for value in constants)
