"""Which calls of a program can run at all: a small call graph over the syntax trees of its files.

It is advice about intent. It finds an edit that leaves the learning out, or leaves it standing where nothing runs:
under `if False`, after a `return`, in a function that nothing mentions. A program that means to deceive can do so
(an optimizer whose `step` does nothing has the right name), and no reading of a text can rule that out: what holds
is the sandbox, and the judge, who measures what the program has learned.

Where it cannot tell, code counts as running: the top level of every file; a function, or a class, that live code
mentions by name; of such a class the methods that are mentioned, or that Python or a base class calls by itself.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

import environments
from tasks.editing.literals import Known, Names, NotPython, constants, dotted, is_empty, parse, truth

ENDS = frozenset({"exit", "quit", "_exit", "sys.exit", "os._exit", "os.abort"})
"""Calls that do not return."""
CALLED_BY: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("object", "ABC", "Protocol", "Generic", "Exception", "RuntimeError", "ValueError"), frozenset()),
    **dict.fromkeys(("NamedTuple", "TypedDict", "Enum", "IntEnum", "StrEnum"), frozenset()),
    "Module": frozenset({"forward"}),
}  # fmt: skip
"""What these base classes call of their subclasses, besides what Python does; any other may call whatever it likes."""
PASSIVE = frozenset({
    "abstractmethod", "autocast", "cache", "cached_property", "classmethod", "compile", "contextmanager", "dataclass",
    "deleter", "enable_grad", "final", "getter", "inference_mode", "jit", "lru_cache", "njit", "no_grad", "overload",
    "override", "partial", "profile", "property", "runtime_checkable", "script", "setter", "staticmethod",
    "total_ordering", "vmap", "wraps",
})  # fmt: skip
"""Decorators that leave it to others to call what they decorate; any other may keep it and call it."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Deferred = ast.Lambda | ast.GeneratorExp


def sources(folder: Path) -> dict[str, str]:
    """The Python files of a program, by their paths in it."""
    python = [path for path in environments.files(folder) if path.suffix == ".py"]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace") for path in python}


def missing_calls(files: Mapping[str, str], required: Iterable[str]) -> list[str]:
    """Those of the required calls that no code of the program that can run makes.

    `optimizer.step` is met by `optimizer.step()` and by `self.optimizer.step()`, not by `my_optimizer.step()`.
    A file that is no Python cannot run, so it makes none.

    Raises:
        NotPython: a file is nested so deeply that it cannot be followed.
    """
    required = tuple(required)
    if not required:
        return []
    trees: dict[str, ast.Module] = {}
    for name, source in files.items():
        try:
            trees[name] = parse(name, source)
        except NotPython:
            continue
    try:
        calls = _Graph(trees).calls()
    except RecursionError as deep:
        raise NotPython("the program is nested too deeply to be followed") from deep
    return [name for name in required if not any(f".{call}".endswith(f".{name}") for call in calls)]


class _Graph:
    """What is mentioned so far, what waits to be mentioned, and what calls have been seen in live code."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._trees = trees
        every = [node for tree in trees.values() for node in ast.walk(tree)]
        self._classes = {node.name: node for node in every if isinstance(node, ast.ClassDef)}
        self.functions = {node.name for node in every if isinstance(node, Function)}
        self._set_from_outside = {
            node.attr for node in every if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        self._mentioned: set[str] = set()
        self._waiting: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)
        self._ready: list[Callable[[], object]] = []
        self.called: set[str] = set()

    def calls(self) -> set[str]:
        for name, tree in self._trees.items():
            known = constants(tree)
            names = {key: found for key, found in known.items() if key not in self._set_from_outside}
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            _Walk(self, {**names, "__name__": Known(module)}).block(tree.body)
        while self._ready:
            self._ready.pop()()
        return self.called

    def mention(self, name: str) -> None:
        if name not in self._mentioned:
            self._mentioned.add(name)
            self._ready += self._waiting.pop(name, [])

    def when_mentioned(self, name: str, walk: Callable[[], object]) -> None:
        if name in self._mentioned:
            self._ready.append(walk)
        else:
            self._waiting[name].append(walk)

    def called_by_itself(self, node: ast.ClassDef, seen: Collection[str] = ()) -> frozenset[str] | None:
        """The methods that base classes call of this class; None when they may call any."""
        found: frozenset[str] = frozenset()
        for base in node.bases:
            name = dotted(base).rpartition(".")[2]
            if name in self._classes and name not in (*seen, node.name):
                more = self.called_by_itself(self._classes[name], (*seen, node.name))
            else:
                more = CALLED_BY.get(name)
            if more is None:
                return None
            found |= more
        return found


class _Walk(ast.NodeVisitor):
    """Follows live code of one file. A statement's visit is False when nothing after it in its block can run."""

    def __init__(self, graph: _Graph, names: Names) -> None:
        self._graph = graph
        self._names = names
        self._breaks: list[bool] = []
        """For each loop around this place, from the outermost, whether a live `break` leaves it."""
        self._define = graph.when_mentioned

    def block(self, body: Iterable[ast.stmt]) -> bool:
        """Whether its end can be reached."""
        return all(self.visit(statement) is not False for statement in body)

    def _some(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    # Statements that end a block, or choose what runs.

    def _leave(self, node: ast.stmt) -> bool:
        self.generic_visit(node)
        return False

    visit_Return = visit_Raise = visit_Continue = _leave

    def visit_Break(self, node: ast.Break) -> bool:
        self._breaks[-1] = True
        return False

    def visit_Expr(self, node: ast.Expr) -> bool:
        if isinstance(node.value, Deferred):
            return True  # made, and dropped
        self.visit(node.value)
        return not (isinstance(node.value, ast.Call) and self._ends(node.value.func))

    def _ends(self, called: ast.expr) -> bool:
        plain = isinstance(called, ast.Name) or (
            isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
        )
        name = dotted(called)
        return plain and name in ENDS and name not in self._graph.functions

    def visit_Assert(self, node: ast.Assert) -> bool:
        self.visit(node.test)
        if truth(node.test, self._names) is False:
            return False
        self._some([node.msg])
        return True

    def visit_If(self, node: ast.If) -> bool:
        self.visit(node.test)
        holds = truth(node.test, self._names)
        then = holds is not False and self.block(node.body)
        otherwise = holds is not True and self.block(node.orelse)
        return then or otherwise

    def visit_While(self, node: ast.While) -> bool:
        self.visit(node.test)
        holds = truth(node.test, self._names)
        left = holds is not False and self._loop(node.body)
        return (holds is not True and self.block(node.orelse)) or left

    def visit_For(self, node: ast.For | ast.AsyncFor) -> bool:
        self._some([node.iter, node.target])
        left = not is_empty(node.iter, self._names) and self._loop(node.body)
        return self.block(node.orelse) or left

    visit_AsyncFor = visit_For

    def _loop(self, body: list[ast.stmt]) -> bool:
        """Whether it is left by a `break`."""
        self._breaks.append(False)
        self.block(body)
        return self._breaks.pop()

    def visit_With(self, node: ast.With | ast.AsyncWith) -> bool:
        self._some(node.items)
        suppressed = any("suppress" in ast.dump(item) for item in node.items)
        return self.block(node.body) or suppressed

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try | ast.TryStar) -> bool:
        done = self.block(node.body)
        done = done and self.block(node.orelse)
        if not all(isinstance(statement, ast.Pass) for statement in node.body):
            for handler in node.handlers:
                self._some([handler.type])
                done = self.block(handler.body) or done
        return self.block(node.finalbody) and done

    visit_TryStar = visit_Try

    def visit_Match(self, node: ast.Match) -> bool:
        self.visit(node.subject)
        done, complete = False, False
        for case in node.cases:
            guard = True if case.guard is None else truth(case.guard, self._names)
            self._some([case.pattern, case.guard])
            if guard is not False:
                done = self.block(case.body) or done
            anything = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            complete = complete or (anything and guard is True)
        return done or not complete

    # What is defined runs when it is mentioned.

    def visit_FunctionDef(self, node: Function) -> None:
        self._some([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        self._define(node.name, lambda: _Walk(self._graph, self._names).block(node.body))
        self._hand_over(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._some([*node.args.defaults, *node.args.kw_defaults, node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._some([*node.decorator_list, *node.bases, *node.keywords])
        methods: list[tuple[str, Callable[[], object]]] = []
        body = _Walk(self._graph, self._names)
        body._define = lambda name, walk: methods.append((name, walk))
        body.block(node.body)
        by_itself = self._graph.called_by_itself(node)

        def open_methods() -> None:
            for name, walk in methods:
                special = name.startswith("__") and name.endswith("__")
                if special or by_itself is None or name in by_itself:
                    walk()
                else:
                    self._graph.when_mentioned(name, walk)

        self._define(node.name, open_methods)
        self._hand_over(node)

    def _hand_over(self, node: Function | ast.ClassDef) -> None:
        names = (dotted(part.func if isinstance(part, ast.Call) else part) for part in node.decorator_list)
        if any(name.rpartition(".")[2] not in PASSIVE for name in names):
            self._graph.mention(node.name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._some(node.targets)
        self._bind(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._some([node.target])
        if node.value is not None:
            self._bind([node.target], node.value)

    def _bind(self, targets: list[ast.expr], value: ast.expr) -> None:
        names = [dotted(target).rpartition(".")[2] for target in targets]
        simple = all(isinstance(target, ast.Name | ast.Attribute) for target in targets)
        if isinstance(value, Deferred) and simple:
            for name in names:
                self._define(name, lambda: self.visit(value))
        else:
            self.visit(value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.asname:
                self._define(alias.asname, partial(self._graph.mention, alias.name))

    # Expressions, of which a part may be skipped.

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._graph.mention(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._graph.mention(node.attr)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self._graph.called.add(dotted(node.func))
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                self._graph.mention(name)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for part in node.values:
            self.visit(part)
            if truth(part, self._names) is isinstance(node.op, ast.Or):
                return

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        holds = truth(node.test, self._names)
        self._some([node.body if holds is not False else None, node.orelse if holds is not True else None])

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        for part in node.generators:
            self.visit(part.iter)
            if is_empty(part.iter, self._names):
                return
            for condition in part.ifs:
                self.visit(condition)
                if truth(condition, self._names) is False:
                    return
        self._some([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp
