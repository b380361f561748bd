"""Places where a program fixes a seed: each run of a trial is given its own, so that luck averages out.

Advice about intent, like tasks/editing/required_calls.py: it reads what is written, not what is meant. `seed + 1` and
`default_rng(config["seed"])` are fine, `manual_seed(0)`, `config["seed"] = 7` and `seed * 0` are not.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tasks.editing.literals import dotted, fixed_names, is_fixed, parse

SEEDERS = frozenset({
    "seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all", "set_seed", "set_global_seed",
    "set_random_seed", "set_rng_state", "default_rng", "MT19937", "PCG64", "PCG64DXSM", "PRNGKey", "Philox", "Random",
    "RandomState", "SFC64", "SeedSequence",
})  # fmt: skip
"""Calls, by the last of their names, whose first argument is a seed."""
FIRST = frozenset({"seed", "a", "x", "entropy", "new_state"})
"""What that argument is called where it is given by name."""
KEYWORDS = frozenset({"seed", "random_seed", "random_state", "rng_seed"})
"""Arguments of any call, names, attributes and keys that hold a seed."""
SETTERS = frozenset({"setattr", "__setattr__", "__setitem__"})


@dataclass(frozen=True)
class Site:
    """A place that fixes a seed, and what is written there."""

    file: str
    line: int
    text: str


def added(before: Mapping[str, str], after: Mapping[str, str]) -> list[Site]:
    """Sites in the files of `after` that those of `before` do not have; one that has only moved is not among them.

    Raises:
        NotPython: a file of either cannot be parsed.
    """
    known = Counter(site.text for site in _all(before))
    new = []
    for site in _all(after):
        known[site.text] -= 1
        if known[site.text] < 0:
            new.append(site)
    return new


def _all(files: Mapping[str, str]) -> Iterator[Site]:
    for name, source in files.items():
        for node in sorted(_nodes(parse(name, source)), key=lambda node: node.lineno):
            yield Site(name, node.lineno, ast.unparse(node))


def _nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    names = fixed_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _call_fixes(node, names):
            yield node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if any(_holds(target) and is_fixed(given, names) for target, given in _pairs(node)):
                yield node
        elif isinstance(node, ast.Dict) and any(
            _is_key(key) and is_fixed(given, names) for key, given in zip(node.keys, node.values, strict=True)
        ):
            yield node


def _call_fixes(node: ast.Call, names: Set[str]) -> bool:
    called = dotted(node.func).rpartition(".")[2]
    seeds = [keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS]
    if called in SEEDERS or dotted(node.func).endswith("random.key"):
        seeds += node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg in FIRST]
    if called in SETTERS and len(node.args) >= 2 and _is_key(node.args[-2]):
        seeds.append(node.args[-1])
    return any(is_fixed(seed, names) for seed in seeds)


def _pairs(
    node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr,
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with what it is given; `a, b = 1, 2` are two."""
    if isinstance(node, ast.AugAssign):
        # `seed *= 0` leaves what `seed * 0` comes to; `seed += 1` leaves the seed in it.
        yield node.target, ast.BinOp(node.target, node.op, node.value)
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
            yield from zip(target.elts, node.value.elts, strict=False)
        elif node.value is not None:
            yield target, node.value


def _holds(target: ast.expr) -> bool:
    """Whether it is a name, an attribute or a key that is called as a seed is."""
    if isinstance(target, ast.Subscript):
        return _is_key(target.slice)
    return dotted(target).rpartition(".")[2].lower() in KEYWORDS


def _is_key(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in KEYWORDS
