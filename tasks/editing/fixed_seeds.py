"""Places where an edited program fixes a seed. Each run of a trial gets its own seed, so that luck averages out.

A check for honest mistakes, like required_calls.py: it reads what is written. `seed + 1` and
`default_rng(config["seed"])` pass; `manual_seed(0)`, `config["seed"] = 7` and `seed * 0` do not.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tasks.editing.python_source import dotted, parse

SEEDERS = frozenset({
    "seed", "seed_all", "seed_everything", "manual_seed", "manual_seed_all", "set_seed", "set_global_seed",
    "set_random_seed", "set_rng_state", "default_rng", "MT19937", "PCG64", "PCG64DXSM", "PRNGKey", "Philox", "Random",
    "RandomState", "SFC64", "SeedSequence",
})  # fmt: skip
"""Calls, by the last part of their name, whose first argument is a seed."""
FIRST = frozenset({"seed", "a", "x", "entropy", "new_state"})
"""Names of that argument, given as a keyword."""
KEYWORDS = frozenset({"seed", "random_seed", "random_state", "rng_seed"})
"""Keyword arguments of any call, variables, attributes and keys that hold a seed."""
SETTERS = frozenset({"setattr", "__setattr__", "__setitem__"})
PURE = frozenset({"int", "float", "str", "abs", "hash", "len", "ord", "round", "bool", "min", "max", "sum"})
"""Functions whose value is fixed when their arguments are."""


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
    old = Counter(site.text for site in _all(before))
    new = []
    for site in _all(after):
        old[site.text] -= 1
        if old[site.text] < 0:
            new.append(site)
    return new


def _all(files: Mapping[str, str]) -> Iterator[Site]:
    for name, source in files.items():
        for node in sorted(_nodes(parse(name, source)), key=lambda node: node.lineno):
            yield Site(name, node.lineno, ast.unparse(node))


def _nodes(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    names = _fixed_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _call_fixes(node, names):
            yield node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if any(_holds(target) and _is_fixed(given, names) for target, given in _pairs(node)):
                yield node
        elif isinstance(node, ast.Dict) and any(
            _is_key(key) and _is_fixed(given, names) for key, given in zip(node.keys, node.values, strict=True)
        ):
            yield node


def _call_fixes(node: ast.Call, names: Set[str]) -> bool:
    called = dotted(node.func).rpartition(".")[2]
    seeds = [keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS]
    if called in SEEDERS or dotted(node.func).endswith("random.key"):
        seeds += node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg in FIRST]
    if called in SETTERS and len(node.args) >= 2 and _is_key(node.args[-2]):
        seeds.append(node.args[-1])
    return any(_is_fixed(seed, names) for seed in seeds)


def _pairs(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; `a, b = 1, 2` are two."""
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
    """Whether a variable, an attribute or a key has a seed's name."""
    if isinstance(target, ast.Subscript):
        return _is_key(target.slice)
    return dotted(target).rpartition(".")[2].lower() in KEYWORDS


def _is_key(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in KEYWORDS


def _fixed_names(tree: ast.Module) -> set[str]:
    """Variables of a file, scopes not told apart, that are only ever assigned constants."""
    targets = {
        id(target): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    fixed: set[str] = set()
    varying = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            is_constant = id(node) in targets and _is_fixed(targets[id(node)], fixed)
            (fixed if is_constant else varying).add(node.id)
    return fixed - varying


def _is_fixed(node: ast.expr, names: Set[str]) -> bool:
    """Whether an expression is made of constants alone, or cancels whatever else it holds, as `x * 0` does."""
    match node:
        case ast.Constant():
            return node.value is not None
        case ast.Name():
            return node.id in names
        case ast.BinOp() if _cancels(node):
            return True
        case ast.IfExp():
            parts: list[ast.expr] = [node.body, node.orelse]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in PURE:
            parts = node.args
        case ast.UnaryOp() | ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.Subscript() | ast.Starred():
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        case ast.List() | ast.Tuple() | ast.Set():
            parts = node.elts
        case _:
            return False
    return bool(parts) and all(_is_fixed(part, names) for part in parts)


def _cancels(node: ast.BinOp) -> bool:
    """x * 0, 0 * x, x % 1, x - x."""
    left, right = (side.value if isinstance(side, ast.Constant) else None for side in (node.left, node.right))
    match node.op:
        case ast.Mult():
            return left == 0 or right == 0
        case ast.Mod():
            return right == 1
        case ast.Sub():
            return ast.dump(node.left) == ast.dump(node.right)
    return False
