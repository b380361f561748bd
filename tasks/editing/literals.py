"""What a Python expression is known to be without running it: constants, and what follows from constants alone."""

from __future__ import annotations

import ast
import operator
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

NUMBERS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
"""Powers and shifts are left out: a short expression of them can fill the memory."""
COMPARISONS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "dict", "zip", "range"})
WRAPPERS = frozenset({"list", "tuple", "set", "frozenset", "enumerate", "reversed", "sorted", "iter", "tqdm"})
QUIETLY = threading.Lock()
"""Which warnings are shown is one setting for all threads."""
PURE = frozenset({"int", "float", "str", "abs", "hash", "len", "ord", "round", "bool", "min", "max", "sum"})


class NotPython(ValueError):
    """A file that Python would not take; the message says which, where and why."""


@dataclass(frozen=True)
class Known:
    """The value of an expression: a number, a text, a boolean or None."""

    value: object


Names = Mapping[str, Known]


def parse(name: str, source: str) -> ast.Module:
    """The syntax tree of a file that Python would take.

    Raises:
        NotPython: it would not.
    """
    try:
        with QUIETLY, warnings.catch_warnings(action="ignore"):  # what Python finds odd is not ours to tell
            compile(source, name, "exec", dont_inherit=True)
            return ast.parse(source, name)
    except SyntaxError as wrong:
        place = f":{wrong.lineno}" if wrong.lineno else ""
        line = f": {wrong.text.strip()[:80]!r}" if wrong.text else ""
        raise NotPython(f"{name}{place}: {wrong.msg}{line}") from wrong
    except (RecursionError, MemoryError) as wrong:
        raise NotPython(f"{name}: it is nested too deeply to be read") from wrong
    except ValueError as wrong:  # a NUL, before Python 3.12
        raise NotPython(f"{name}: {wrong}") from wrong


def dotted(node: ast.AST) -> str:
    """The names of `a.b[0].c` as a.b.c; of an expression's attribute, `(x + y).c`, only those after it: c."""
    parts = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def truth(node: ast.expr, names: Names) -> bool | None:
    """Whether a condition always holds, never holds, or (None) cannot be told."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            inner = truth(node.operand, names)
            return None if inner is None else not inner
        case ast.BoolOp():
            return _of_several([truth(part, names) for part in node.values], isinstance(node.op, ast.Or))
        case ast.IfExp():
            chosen = truth(node.test, names)
            either = [truth(part, names) for part in (node.body, node.orelse)]
            return either[not chosen] if chosen is not None or either[0] is either[1] else None
        case ast.Call(func=ast.Name(id="bool"), args=[argument]):
            return truth(argument, names)
        case ast.List() | ast.Tuple() | ast.Set() | ast.Dict():
            return not is_empty(node, names)
    known = value(node, names)
    return None if known is None else bool(known.value)


def _of_several(parts: list[bool | None], deciding: bool) -> bool | None:
    """`or` when True is what decides it, `and` when False does."""
    if deciding in parts:
        return deciding
    return None if None in parts else not deciding


def value(node: ast.expr, names: Names) -> Known | None:
    """What an expression of constants comes to; None when it cannot be told."""
    match node:
        case ast.Constant():
            return Known(node.value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return Known(False)
        case ast.Name(id="__debug__"):
            return Known(True)
        case ast.Name():
            return names.get(node.id)
        case ast.UnaryOp(op=ast.Not()):
            inner = truth(node.operand, names)
            return None if inner is None else Known(not inner)
        case ast.UnaryOp():
            return _computed(NUMBERS.get(type(node.op)), value(node.operand, names))
        case ast.BinOp():
            return _computed(NUMBERS.get(type(node.op)), value(node.left, names), value(node.right, names))
        case ast.Compare():
            return _compared(node, names)
    return None


def _computed(operation: Callable[..., object] | None, *operands: Known | None) -> Known | None:
    numbers = [known.value for known in operands if known and isinstance(known.value, int | float)]
    if operation is None or len(numbers) < len(operands) or any(abs(number) > 1e18 for number in numbers):
        return None
    try:
        return Known(operation(*numbers))
    except ArithmeticError:  # it would raise when run, so it has no value
        return None


def _compared(node: ast.Compare, names: Names) -> Known | None:
    """One link of a chain that fails decides it; all of them have to hold."""
    sides = [node.left, *node.comparators]
    links = [_link(*parts, names) for parts in zip(sides, node.ops, sides[1:], strict=False)]
    answer = _of_several(links, deciding=False)
    return None if answer is None else Known(answer)


def _link(left: ast.expr, comparison: ast.cmpop, right: ast.expr, names: Names) -> bool | None:
    for side, other in ((left, right), (right, left)):
        if isinstance(side, ast.Name) and side.id == "__name__":
            return _is_the_module(comparison, value(other, names), names)
    first, second, compare = value(left, names), value(right, names), COMPARISONS.get(type(comparison))
    if first is None or second is None or compare is None:
        return None
    try:
        return bool(compare(first.value, second.value))
    except TypeError:  # it would raise when run
        return None


def _is_the_module(comparison: ast.cmpop, claimed: Known | None, names: Names) -> bool | None:
    """A module is `__main__` or what it is imported as, and nothing else."""
    if claimed is None or not isinstance(comparison, ast.Eq | ast.NotEq):
        return None
    own = names.get("__name__", Known("")).value
    if claimed.value == "__main__" or f".{own}".endswith(f".{claimed.value}"):
        return None
    return isinstance(comparison, ast.NotEq)


def is_empty(node: ast.expr, names: Names) -> bool:
    """Whether a loop over this is known to have no round."""
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return all(isinstance(part, ast.Starred) and is_empty(part.value, names) for part in node.elts)
        case ast.Dict():
            return not node.values
        case ast.Constant(value=str() | bytes()):
            return not node.value
        case ast.Call(func=ast.Name(id="range")):
            bounds = [value(bound, names) for bound in node.args]
            numbers = [known.value for known in bounds if known and isinstance(known.value, int)]
            return 0 < len(numbers) == len(bounds) <= 3 and 0 not in numbers[2:] and not range(*numbers)
        case ast.Call(func=ast.Name(id="zip"), args=[_, *_]):
            return any(is_empty(argument, names) for argument in node.args)
        case ast.Call(func=ast.Name() as called):
            if not node.args:
                return called.id in COLLECTIONS and not node.keywords
            return called.id in WRAPPERS and is_empty(node.args[0], names)
    return False


def bindings(tree: ast.AST) -> dict[str, list[ast.expr | None]]:
    """Each name of a file with all that it is bound to; None for what is not a plain `name = expression`.

    Scopes are not told apart. What stands in a class is an attribute, so it says nothing about a name.
    """
    found: defaultdict[str, list[ast.expr | None]] = defaultdict(list)
    plain: dict[int, ast.expr | None] = {}
    attributes: set[int] = set()
    for node in ast.walk(tree):  # from the outside inwards: a statement comes before its targets
        if isinstance(node, ast.ClassDef):
            attributes |= {id(statement) for statement in node.body}
        if isinstance(node, ast.Assign | ast.AnnAssign) and id(node) not in attributes:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            plain |= {id(target): node.value for target in targets}
        for name in _bound_by(node):
            found[name].append(plain.get(id(node)))
    return found


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.arg():
            yield node.arg
        case ast.alias():
            yield (node.asname or node.name).partition(".")[0]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def constants(tree: ast.AST) -> dict[str, Known]:
    """The names of a file that are bound once, to a value that is known."""
    known: dict[str, Known] = {}
    for name, bound in bindings(tree).items():
        if len(bound) == 1 and bound[0] is not None:
            found = value(bound[0], known)
            if found is not None:
                known[name] = found
    return known


def fixed_names(tree: ast.AST) -> set[str]:
    """The names of a file that are never bound to anything but constants, not even to one of several."""
    found: set[str] = set()
    for name, bound in bindings(tree).items():
        if all(expression is not None and is_fixed(expression, found) for expression in bound):
            found.add(name)
    return found


def is_fixed(node: ast.expr, names: Set[str]) -> bool:
    """Whether an expression is made of constants alone, or of what comes to one whatever it holds, as in `x * 0`."""
    match node:
        case ast.Constant():
            return node.value is not None
        case ast.Name():
            return node.id in names
        case ast.BinOp():
            both = is_fixed(node.left, names) and is_fixed(node.right, names)
            return both or _cancels(node.op, node.left, node.right)
        case ast.IfExp():
            return is_fixed(node.body, names) and is_fixed(node.orelse, names)
        case ast.Call(func=ast.Name()) if dotted(node.func) not in PURE or node.keywords or not node.args:
            return False
        case ast.UnaryOp() | ast.Starred() | ast.List() | ast.Tuple() | ast.Set() | ast.Subscript():
            return _all_fixed(node, names)
        case ast.BoolOp() | ast.Compare() | ast.JoinedStr() | ast.FormattedValue():
            return _all_fixed(node, names)
        case ast.Call(func=ast.Name()):
            return all(is_fixed(argument, names) for argument in node.args)
    return False


def _all_fixed(node: ast.expr, names: Set[str]) -> bool:
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return bool(parts) and all(is_fixed(part, names) for part in parts)


def _cancels(operation: ast.operator, left: ast.expr, right: ast.expr) -> bool:
    """x * 0, 0 * x, x & 0, 0 & x, x % 1, x ** 0, x - x, x ^ x."""
    sides = [side.value if isinstance(side, ast.Constant) else None for side in (left, right)]
    match operation:
        case ast.Mult() | ast.BitAnd():
            return 0 in sides
        case ast.Mod():
            return sides[1] == 1
        case ast.Pow():
            return sides[1] == 0
        case ast.Sub() | ast.BitXor():
            return ast.dump(left) == ast.dump(right)
    return False
