"""Texts written against their readers: programs, diffs, settings and answers, each with a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["python", "diff", "toml", "json", "answer"]
Named = Iterator[tuple[str, str]]
K = 1_000
HEAD = "--- a/train.py\n+++ b/train.py\n"
BRACKETS = ("()", "[]", ("f(", ")"), ("not ", ""), ("lambda: ", ""), ("(yield ", ")"))
ENDLESS = (".a", "()", " + 1", " if x else 0", " ** 2", ", x")
CONSTANTS = ("9**9**9", "1 << 10**10", "'a' * 10**10", "'%1000000000d' % 1")
ODD = {"a NUL": "\0", "a lone surrogate": "\ud800", "a line separator": "\u2028", "a right-to-left mark": "\u202e"}


@dataclass(frozen=True)
class HostileText:
    kind: Kind
    name: str
    text: str


def all_of_them() -> list[HostileText]:
    makers: list[tuple[Kind, Callable[[], Named]]] = [
        *(("python", maker) for maker in (_nested, _graphs, _long, _odd)),
        *(("diff", _diffs), ("toml", _toml), ("json", _json), ("answer", _answers)),
    ]
    return [HostileText(kind, name, text) for kind, maker in makers for name, text in maker()]


def _nested() -> Named:
    for opened, closed in BRACKETS:
        for depth in (900, 90 * K):
            yield f"{depth} times {opened!r}", f"x = {opened * depth}0{closed * depth}\n"
    for left in ENDLESS:
        yield f"{50 * K} times {left!r} behind it", f"x = 0\nx = x{left * 50 * K}\n"
    lines = [f"{' ' * depth}if x:" for depth in range(120)]
    yield "120 nested blocks", "\n".join(lines) + "\n" + " " * 120 + "pass\n"
    yield "nested comprehensions", "x = " + "[x for x in " * 85 + "y" + "]" * 85 + "\n"
    yield "a deep pattern", "match x:\n    case " + "[" * 150 + "]" * 150 + ": pass\n"


def _graphs() -> Named:
    for pairs in (45, 2 * K):
        lines = ["class A0: pass", "class B0: pass"]
        lines += [f"class {name}{i}(A{i - 1}, B{i - 1}): pass" for i in range(1, pairs) for name in "AB"]
        yield f"an exponential graph of {pairs} classes", "\n".join(lines) + "\nimprove(0)\n"
        lines = ["def f0(): pass", *(f"def f{i}(): f{i - 1}(); f{i - 1}()" for i in range(1, pairs))]
        yield f"an exponential graph of {pairs} calls", "\n".join(lines) + "\n"
        lines = ["s0 = 1", *(f"s{i} = s{i - 1} + s{i - 1}; seed = s{i}" for i in range(1, pairs))]
        yield f"{pairs} names that each depend on the last", "\n".join(lines) + "\n"
    difference = "x"
    for _ in range(14):
        difference = f"({difference}) - ({difference})"
    yield "a doubled difference", f"seed = {difference}\n"


def _long() -> Named:
    digits, parts, lines = 900 * K, 60 * K, 500 * K
    yield "a long number", f"x = {'9' * digits}\n"
    yield "a long name", f"{'a' * digits} = 1\n"
    for constant in CONSTANTS:
        yield f"a constant {constant}", f"x = {constant}\n"
    yield "a long f-string", f"x = 1\ny = f'{'{x}' * parts}'\n"
    yield "many keyword arguments", f"f({', '.join(f'seed={i}' for i in range(parts))})\n"
    yield "a long difference", f"seed = {' - '.join(['x'] * parts)}\n"
    yield "many decorators", "@f\n" * parts + "def g(): pass\n"
    yield "many lines", "x\n" * lines
    yield "many statements in a line", "x;" * lines + "\n"
    yield "5000 seeds", "".join(f"seed = {i}\n" for i in range(5 * K))


def _odd() -> Named:
    alike = "".join(f"{chr(0xFB01)}{chr(0x1D41A + i % 26)}{i} = {i}\n" for i in range(9 * K))
    yield "names that normalise alike", alike
    yield "a name that grows when normalised", f"{chr(0xFDFA) * 9 * K} = 1\n"
    for name, odd in ODD.items():
        yield name, f"x = 1\n{odd}\ny = '{odd}'\n"
    for coding in ("utf-7", "rot13", "unicode_escape", "no such", "x" * 10 * K):
        yield f"coding {coding[:20]}", f"# -*- coding: {coding} -*-\nx = 1\n"


def _diffs() -> Named:
    count, new = 8 * K, "--- /dev/null\n+++ b/f{}.py\n@@ -0,0 +1 @@\n+x\n"
    yield "hunks of one line", HEAD + "".join(f"@@ -{i},1 +{i},1 @@\n-x = {i}\n+y = {i}\n" for i in range(1, count))
    yield f"{count} hunks in one place", HEAD + "@@ -1,1 +1,1 @@\n-x = 1\n+x = 1\n" * count
    yield "ambiguous context", HEAD + f"@@ -{count},{count + 1} +1,{count} @@\n" + " \n" * count + "-x\n"
    yield f"{count} files", "".join(new.format(i) for i in range(count))
    yield "many heads", "diff --git a/train.py b/train.py\n" * count
    yield "a path of many folders", f"--- a/{'a/' * count}x\n+++ b/{'a/' * count}x\n@@ -1 +1 @@\n-x\n+y\n"
    for number in ("9" * 40, "-1", "1e9"):
        yield f"a hunk at {number}", HEAD + f"@@ -{number},{number} +{number},{number} @@\n-x = 1\n+y = 1\n"
    yield "a hunk that is cut off", HEAD + "@@ -1,7 +1,7 @@\n x = 1\n-x = 2\n"
    yield "only signs", HEAD + "@@ -1 +1 @@\n" + "+-\n" * 40 * K


def _toml() -> Named:
    for depth in (900, 90 * K):
        yield f"{depth} nested arrays", f"x = {'[' * depth}{']' * depth}\n"
        yield f"{depth} nested tables", f"x = {'{a = ' * depth}1{'}' * depth}\n"
        yield f"a key of {depth} parts", f"{'a.' * depth}b = 1\n"
    yield "dotted keys", "".join(f"{'a.' * (i % 300)}k{i} = 1\n" for i in range(3 * K))
    yield "a table twice", "[a]\nb = 1\n[c]\n[a]\nd = 1\n"
    yield "an open text", 'x = """' + "a" * 200 * K


def _json() -> Named:
    for depth in (900, 100 * K):
        yield f"{depth} nested arrays", "[" * depth + "]" * depth
        yield f"a number of {depth} digits", "9" * depth
    yield "many times a key", "{" + ", ".join(['"a": 1'] * 30 * K) + "}"
    yield "not a number", '{"params": {"x": NaN, "y": Infinity, "z": 1e999999}}'
    yield "a surrogate", '{"params": {"x": "\\ud800"}}'


def _answers() -> Named:
    count = 40 * K
    body = "".join(f"{'ab'[i * i % 7 % 2]}\n" for i in range(count // 4))
    for name, text in _json():
        yield f"{name}, in a header", f'RATIONALE: x\nPARAMS: {{"x": {text}}}\n'
    for piece in ("{", "```\n", "<think>", "RATIONALE: x\n"):
        yield f"{count} times {piece!r}", piece * count + "RATIONALE"
    yield "many blocks", "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n" * (count // 20)
    yield f"{count} beginnings of a block", "<<<<<<< SEARCH\n" * count
    block = "<<<<<<< SEARCH\n{}=======\n{}\n>>>>>>> REPLACE\n"
    yield "a block of lines that are alike", block.format(body, body[::-1].strip())
    yield "a block of lines that are nowhere", block.format("x = 0 " * 9 + "\n" + body, "")
    yield "hunks without numbers", HEAD + "@@ @@\n x = 1\n-x = 2\n+x = 3\n" * (count // 20)
    yield "names of files", "train.py " * count + "\n```\nx\n```\n"
