"""Some three hundred texts written against their readers: programs, diffs, settings and answers, each with a name."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["python", "diff", "toml", "json", "answer"]
K = 1_000


@dataclass(frozen=True)
class HostileText:
    kind: Kind
    name: str
    text: str


def all_of_them() -> list[HostileText]:
    makers: list[tuple[Kind, Callable[[], Iterator[tuple[str, str]]]]] = [
        *(("python", maker) for maker in (_nested, _graphs, _long, _odd)),
        *(("diff", _diffs), ("toml", _toml), ("json", _json), ("answer", _answers)),
    ]
    return [HostileText(kind, name, text) for kind, maker in makers for name, text in maker()]


def _nested() -> Iterator[tuple[str, str]]:
    for opened, closed in (
        "()",
        "[]",
        "{}",
        ("f(", ")"),
        ("-", ""),
        ("not ", ""),
        ("lambda: ", ""),
        ("x[", "]"),
        ("(yield ", ")"),
    ):
        for depth in (90, 900, 9 * K, 90 * K):
            yield f"{depth} times {opened!r}", f"x = {opened * depth}0{closed * depth}\n"
    for left, depth in itertools.product(
        (".a", "()", "[0]", " + 1", " if x else 0", " and x", " ** 2", ", x", " < x"), (900, 50 * K)
    ):
        yield f"{depth} times {left!r} behind it", f"x = 0\nx = x{left * depth}\n"
    for block in ("if x:", "def f():", "class A:", "for x in y:", "while x:", "with x:", "try:"):
        lines = [f"{' ' * depth}{block}" for depth in range(120)]
        yield f"120 times {block!r}", "\n".join(lines) + "\n" + " " * 120 + "pass\n"


def _graphs() -> Iterator[tuple[str, str]]:
    for pairs in (12, 45, 2 * K):
        lines = ["class A0: pass", "class B0: pass"]
        lines += [f"class {name}{i}(A{i - 1}, B{i - 1}): pass" for i in range(1, pairs) for name in "AB"]
        yield f"an exponential graph of {pairs} classes", "\n".join(lines) + "\nimprove(0)\n"
        lines = ["def f0(): pass", *(f"def f{i}(): f{i - 1}(); f{i - 1}()" for i in range(1, pairs))]
        yield f"an exponential graph of {pairs} calls", "\n".join(lines) + "\n"
        lines = ["s0 = 1", *(f"s{i} = s{i - 1} + s{i - 1}; seed = s{i}" for i in range(1, pairs))]
        yield f"{pairs} names that each depend on the last", "\n".join(lines) + "\n"


def _long() -> Iterator[tuple[str, str]]:
    for digits in (4 * K, 100 * K, 900 * K):
        yield f"a number of {digits} digits", f"x = {'9' * digits}\n"
        yield f"a hexadecimal number of {digits} digits", f"x = 0x{'f' * digits}\n"
        yield f"a float of {digits} digits", f"x = 0.{'9' * digits}e{'9' * 9}\n"
        yield f"a name of {digits} letters", f"{'a' * digits} = 1\n"
        yield f"a text of {digits} letters", f"x = '{'a' * digits}'\n"
        yield f"a line of {digits} brackets", "(" * digits + "\n"
        yield f"a comment of {digits} letters", f"#{'a' * digits}\nx = 1\n"
    for sum_ in (
        "9**9**9",
        "9**9**9**9",
        "1 << 10**10",
        "'a' * 10**10",
        "(0,) * 10**10",
        "'%1000000000d' % 1",
        "-9**9**9",
        "seed(9**9**9)",
    ):
        yield f"a constant {sum_}", f"x = {sum_}\n"
    for parts in (10, 2 * K, 60 * K):
        yield f"an f-string of {parts} parts", f"x = 1\ny = f'{'{x}' * parts}'\n"
        yield f"{parts} f-strings in a row", f"x = 1\ny = ({' '.join(['f' + repr('{x!r:>{x}}')] * (parts // 10))})\n"
        yield f"{parts} keyword arguments", f"f({', '.join(f'seed={i}' for i in range(parts))})\n"
        yield f"{parts} parameters", f"def f({', '.join(f'a{i}' for i in range(parts))}): pass\n"
        yield f"{parts} comparisons with seeds", f"seed = {' - '.join(['x'] * parts)}\n"
        yield f"{parts} arguments", f"f({', '.join(['1'] * parts)})\n"
        yield f"{parts} decorators", f"{'@f' * 1}\n" * parts + "def g(): pass\n"
    for lines_ in (10 * K, 100 * K, 500 * K):
        yield f"{lines_} lines", "x\n" * lines_
        yield f"{lines_} empty lines", "\n" * lines_
        yield f"{lines_} continued lines", "x = 1 + \\\n" * min(lines_, 100 * K) + "1\n"
        yield f"{lines_} statements in a line", "x;" * lines_ + "\n"


def _odd() -> Iterator[tuple[str, str]]:
    yield "5000 seeds", "".join(f"seed = {i}\n" for i in range(5 * K))
    yield "a tower of fixed seeds", "seed = " + "(" * 80 + "x - x" + ") - (x - x)" * 80 + "\n"
    sum_ = "x"
    for _ in range(14):
        sum_ = f"({sum_}) - ({sum_})"
    yield "a doubled difference", f"seed = {sum_}\n"
    yield (
        "names that normalise alike",
        "".join(f"{chr(0xFB01)}{chr(0x1D41A + i % 26)}{i} = {i}\n" for i in range(9 * K)),
    )
    yield "a name that grows when normalised", f"{chr(0xFDFA) * 9 * K} = 1\n"
    yield "combining marks", f"a{chr(0x301) * 50 * K} = 1\n"
    for name, odd in (
        ("a NUL", "\0"),
        ("a lone surrogate", "\ud800"),
        ("half an emoji", "\udfff"),
        ("a BOM in the middle", "\ufeff"),
        ("a form feed", "\x0c"),
        ("a line separator", "\u2028"),
        ("a right-to-left mark", "\u202e"),
        ("a vertical tab", "\x0b"),
    ):
        yield name, f"x = 1\n{odd}\ny = '{odd}'\n"
    for coding in (
        "utf-7",
        "utf-16",
        "rot13",
        "punycode",
        "idna",
        "unicode_escape",
        "no such",
        "hex",
        "zlib",
        "mbcs",
        "x" * 10 * K,
    ):
        yield f"coding {coding[:20]}", f"# -*- coding: {coding} -*-\nx = 1\n"
    yield "a match of 3000 cases", "match x:\n" + "".join(f"    case [{i}, *_]: pass\n" for i in range(3 * K))
    yield "a deep pattern", "match x:\n    case " + "[" * 150 + "]" * 150 + ": pass\n"
    yield "tabs and blanks", "".join(" \t"[i % 2] * (i % 90) + "if x:\n" for i in range(9 * K))
    yield "a type comment", "x = [] # type: " + "[" * 9 * K + "\n"
    yield "9000 stars", "x = " + "*" * 9 * K + "y\n"
    yield "walruses", "(" + "(x := " * 85 + "0" + ")" * 85 + ")\n"
    yield "nested comprehensions", "x = " + "[x for x in " * 85 + "y" + "]" * 85 + "\n"


def _diffs() -> Iterator[tuple[str, str]]:
    head = "--- a/train.py\n+++ b/train.py\n"
    for count in (10, K, 8 * K):
        yield (
            f"{count} hunks of one line",
            head + "".join(f"@@ -{i},1 +{i},1 @@\n-x = {i}\n+y = {i}\n" for i in range(1, count)),
        )
        yield f"{count} hunks in one place", head + "@@ -1,1 +1,1 @@\n-x = 1\n+x = 1\n" * count
        yield f"{count} lines that are alike", head + f"@@ -1,{count} +1,{count} @@\n" + "-x\n+x\n" * count
        yield (
            f"{count} ambiguous lines of context",
            head + f"@@ -{count},{count + 1} +1,{count} @@\n" + " \n" * count + "-x\n",
        )
        yield f"{count} files", "".join(f"--- /dev/null\n+++ b/f{i}.py\n@@ -0,0 +1 @@\n+x\n" for i in range(count))
        yield f"{count} heads", "diff --git a/train.py b/train.py\n" * count
        yield (
            f"{count} new files of one name",
            "diff --git a/train.py b/train.py\nnew file mode 100644\n--- /dev/null\n+++ b/train.py\n@@ -0,0 +1 @@\n+x\n"
            * count,
        )
        yield f"a path of {count} folders", f"--- a/{'a/' * count}x\n+++ b/{'a/' * count}x\n@@ -1 +1 @@\n-x\n+y\n"
    for number in ("999999999", "9" * 40, "-1", "0", "1e9"):
        yield f"a hunk at {number}", head + f"@@ -{number},{number} +{number},{number} @@\n-x = 1\n+y = 1\n"
    yield "a hunk that is cut off", head + "@@ -1,7 +1,7 @@\n x = 1\n-x = 2\n"
    yield "a random walk", head + _random_hunk(20 * K)
    yield "only signs", head + "@@ -1 +1 @@\n" + "+-\n" * 40 * K
    yield "a long line", head + f"@@ -1 +1 @@\n-x = 1\n+{'x' * 250 * K}\n"


def _random_hunk(lines: int) -> str:
    rng = random.Random(1)
    return f"@@ -1,{lines} +1,{lines} @@\n" + "".join(f"{rng.choice(' +-')}{rng.choice('ab')}\n" for _ in range(lines))


def _toml() -> Iterator[tuple[str, str]]:
    for depth in (90, 900, 90 * K):
        yield f"{depth} nested arrays", f"x = {'[' * depth}{']' * depth}\n"
        yield f"{depth} nested tables", f"x = {'{a = ' * depth}1{'}' * depth}\n"
        yield f"a key of {depth} parts", f"{'a.' * depth}b = 1\n"
        yield f"a table of {depth} parts", f"[{'a.' * depth}b]\nx = 1\n"
        yield f"{depth} dotted keys", "".join(f"{'a.' * (i % 300)}k{i} = 1\n" for i in range(min(depth, 3 * K)))
        yield f"{depth} digits", f"x = {'9' * depth}\n"
        yield f"{depth} tables of arrays", "[[a]]\n" * depth
    yield "a key twice", "a = 1\na = 2\n"
    yield "a table twice", "[a]\nb = 1\n[c]\n[a]\nd = 1\n"
    yield "a key and a table", "a.b = 1\n[a]\nc = 2\n"
    yield "an open text", 'x = """' + "a" * 200 * K
    yield "backslashes", 'x = "' + "\\\\" * 100 * K + '"'


def _json() -> Iterator[tuple[str, str]]:
    for depth in (900, 100 * K):
        yield f"{depth} nested arrays", "[" * depth + "]" * depth
        yield f"{depth} nested objects", '{"a":' * depth + "1" + "}" * depth
        yield f"{depth} open arrays", "[" * depth
        yield f"a number of {depth} digits", "9" * depth
        yield f"{depth} times a key", "{" + ", ".join(['"a": 1'] * min(depth, 30 * K)) + "}"
    yield "not a number", '{"params": {"x": NaN, "y": Infinity, "z": 1e999999}}'
    yield "a surrogate", '{"params": {"x": "\\ud800"}}'


def _answers() -> Iterator[tuple[str, str]]:
    for name, text in _json():
        yield name, f'Here: {{"params": {text}, "rationale": "x"}}'
        yield f"{name}, in a header", f'RATIONALE: x\nPARAMS: {{"x": {text}}}\n'
    for count in (K, 40 * K):
        yield f"{count} braces", "{" * count
        yield f"{count} fences", "```\n" * count
        yield f"{count} open fences", "```a\n" * count + "x"
        yield f"{count} thoughts", "<think>" * count
        yield f"{count} headers", "RATIONALE: x\n" * count
        yield f"{count} signs before a header", "_" * count + "RATIONALE"
        yield f"{count} blocks", "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n" * (count // 20)
        yield f"{count} beginnings of a block", "<<<<<<< SEARCH\n" * count
        body = "".join(f"{'ab'[i * i % 7 % 2]}\n" for i in range(count // 4))
        yield (
            f"a block of {count // 4} lines that are alike",
            f"<<<<<<< SEARCH\n{body}=======\n{body[::-1].strip()}\n>>>>>>> REPLACE\n",
        )
        yield (
            f"a block of {count // 4} lines that are nowhere",
            f"<<<<<<< SEARCH\n{'x = 0 ' * 9}\n{body}=======\n>>>>>>> REPLACE\n",
        )
        yield (
            f"a diff of {count // 4} lines without a place",
            f"--- a/train.py\n+++ b/train.py\n@@ ... @@\n{''.join(f' {line}' + chr(10) for line in body.split())}-y\n",
        )
        yield (
            f"{count} hunks without numbers",
            "--- a/train.py\n+++ b/train.py\n" + "@@ @@\n x = 1\n-x = 2\n+x = 3\n" * (count // 20),
        )
        yield (
            f"{count} comments that leave out",
            "train.py\n```python\n" + f"# {'the rest of ' * 20}\n" * (count // 20) + "```\n",
        )
        yield f"{count} names of files", "train.py " * count + "\n```\nx\n```\n"
