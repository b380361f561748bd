"""Edits as language models write them, with known defects: made at random from a seed, each with what it has to become.

A program is a bundled trainer or a generated one, full of functions that are nearly alike. It is changed in one to
three places, and the change is written down well; then a defect changes what is written, the program, or both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from tasks import trainers
from tasks.editing.edits import diff_of

FUNCTION = """\
def {verb}_{noun}(batch, state, scale={a}):
    total = 0.0
    count = {b}

    for item in batch:
        if item is None:
            continue
        value = item.{noun} * scale
        total += value
        count += 1

    mean = total / max(count, 1)
    state["{noun}"] = {c} * state["{noun}"] + (1 - {c}) * mean
    return mean


"""
CLASS = """\
class {Noun}{Verb}er(Module):
    def __init__(self, size, rate={a}):
        super().__init__()
        self.size = size
        self.rate = rate
        self.layers = [Linear(size, size) for _ in range({b})]

    def forward(self, inputs):
        hidden = inputs
        for layer in self.layers:
            hidden = layer(hidden)
            hidden = relu(hidden)
        return hidden

    def update(self, batch):
        for item in batch:
            if item is None:
                continue
            loss = self.loss(item) * {c}
            loss.backward()
        self.optimizer.step()


"""
VERBS = ("update", "score", "blend", "clip", "trace")
NOUNS = ("reward", "value", "advantage", "entropy", "return", "ratio")
Rng = random.Random


def program(rng: Rng) -> str:
    """A program in which one function is much like another."""
    if rng.random() < 0.2:
        return (Path(trainers.__path__[0]) / rng.choice(["ppo.py", "sac.py"])).read_text()
    parts = ["import numpy as np\n\nRATE = 0.1\nSTEPS = 100\n\n\n"]
    for verb, noun in rng.sample(list(product(VERBS, NOUNS)), rng.randint(6, 16)):
        words = {"verb": verb, "noun": noun, "Verb": verb.capitalize(), "Noun": noun.capitalize()}
        numbers = {"a": rng.choice([1, 0.5]), "b": rng.choice([1, 2]), "c": rng.choice([0.9, 0.99])}
        parts.append(rng.choice([FUNCTION, FUNCTION, CLASS]).format(**words, **numbers))
    text = "".join(parts).rstrip("\n") + "\n"
    return text.replace("    ", "\t") if rng.random() < 0.1 else text


def edited(text: str, rng: Rng) -> str:
    """The program with one to three small changes."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.choice([number for number, line in enumerate(lines) if line.strip()])
        indent, line = re.match(r"\s*", lines[at])[0], lines[at]  # type: ignore[index]
        new = f"{indent}value = np.clip(value, -{rng.randint(2, 99)}, {rng.randint(2, 99)})"
        other = re.sub(r"\d+(?!.*\d)", str(rng.randint(100, 999)), line)
        other = other if other != line else f"{line}  # {rng.choice(VERBS)}"
        change = rng.choice([[other], [other], [line, new], [new, line], [], [other, new]])
        lines[at : at + 1] = change
    return "\n".join(lines)


NAME = "train.py"


@dataclass(frozen=True)
class Hunk:
    """A hunk of a good diff: where it starts on both sides, its heading, and its lines with their signs."""

    old: int
    new: int
    heading: str
    lines: tuple[str, ...]

    def written(self, head: str | None = None) -> str:
        olds = sum(line[:1] != "+" for line in self.lines)
        news = sum(line[:1] != "-" for line in self.lines)
        own = f"@@ -{self.old},{olds} +{self.new},{news} @@{self.heading}"
        return "\n".join([own if head is None else head, *self.lines]) + "\n"


@dataclass(frozen=True)
class Edit:
    """A change that is to be made, and how it may be written; a defect changes one or the other."""

    before: str
    after: str | None
    """None where the answer has to be refused."""
    hunks: tuple[Hunk, ...]
    heads: tuple[str | None, ...]
    """What stands in place of each hunk's own head, where it is not its own."""
    clear: bool
    """Whether the old lines of each hunk are in the file once."""
    text: Callable[[str], str] = str
    """What is done to the answer as a whole."""
    names: str = f"--- a/{NAME}\n+++ b/{NAME}\n"

    def diff(self) -> str:
        hunks = zip(self.hunks, self.heads, strict=True)
        return self.text(self.names + "".join(hunk.written(head) for hunk, head in hunks))


def edit(rng: Rng) -> Edit:
    """A change of a program, and the good diff that makes it."""
    before = program(rng)
    after = edited(before, rng)
    while after == before:
        after = edited(before, rng)
    hunks = list[Hunk]()
    for line in diff_of({NAME: before}, {NAME: after}).split("\n")[3:]:
        if numbers := re.match(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)", line):
            heading = numbers[3] if len(hunks) % 3 == 2 else ""  # a model rarely knows it
            hunks.append(Hunk(int(numbers[1]), int(numbers[2]), heading, ()))
        elif line:
            hunks[-1] = replace(hunks[-1], lines=(*hunks[-1].lines, line))
    return Edit(before, after, tuple(hunks), (None,) * len(hunks), _is_clear(before, hunks))


def _is_clear(before: str, hunks: Sequence[Hunk]) -> bool:
    """Whether the old lines of each hunk are in the file once, as the hunks before have left it."""
    text, clear = "\n" + before, True
    for hunk in hunks:
        old, new = ("".join(f"{line}\n" for line in _side(hunk, sign)) for sign in "-+")
        clear &= len(re.findall(f"(?=\n{re.escape(old)})", text)) == 1
        text = text.replace("\n" + old, "\n" + new, 1)
    return clear


# The defects of a diff: what they do to an edit; None where it gives no room for the defect.

Defect = Callable[[Edit, Rng], Edit | None]


def none(its: Edit, rng: Rng) -> Edit:
    return its


def _headed(its: Edit, head: Callable[[Hunk, int, int], str]) -> Edit:
    """The heads rewritten; `head` gets the numbers of lines on both sides."""
    heads = []
    for hunk in its.hunks:
        counts = [sum(line[:1] != sign for line in hunk.lines) for sign in "+-"]
        heads.append(head(hunk, *counts))
    return replace(its, heads=tuple(heads))


def wrong_counts(its: Edit, rng: Rng) -> Edit:
    def head(hunk: Hunk, olds: int, news: int) -> str:
        off = rng.choice([-3, -2, -1, 1, 2, 5])
        return f"@@ -{hunk.old},{max(olds + off, 1)} +{hunk.new},{max(news + rng.choice([off, 0]), 1)} @@{hunk.heading}"

    return _headed(its, head)


def wrong_line_numbers(its: Edit, rng: Rng) -> Edit:
    def head(hunk: Hunk, olds: int, news: int) -> str:
        off = rng.choice([-1, 1]) * rng.randint(1, 30)
        return f"@@ -{max(hunk.old + off, 1)},{olds} +{max(hunk.new + off, 1)},{news} @@{hunk.heading}"

    return _headed(its, head)


def both_wrong(its: Edit, rng: Rng) -> Edit:
    def head(hunk: Hunk, olds: int, news: int) -> str:
        start = max(hunk.old + rng.randint(-30, 30), 1)
        return f"@@ -{start},{olds + rng.choice([-1, 1, 4])} +{start},{news + rng.choice([-2, 0, 3])} @@{hunk.heading}"

    return _headed(its, head)


def no_numbers(its: Edit, rng: Rng) -> Edit:
    said = rng.choice(["@@ ... @@", "@@ @@", "@@"])
    return _headed(its, lambda hunk, olds, news: said + (hunk.heading if said != "@@" else ""))


def _each_line(its: Edit, change: Callable[[str], str | None]) -> Edit | None:
    """Every line of the hunks rewritten, or left out."""
    hunks = tuple(
        replace(hunk, lines=tuple(new for line in hunk.lines if (new := change(line)) is not None))
        for hunk in its.hunks
    )
    # The counts stay those of the good diff: a model does not count again what it has lost.
    kept = _headed(its, lambda hunk, olds, news: hunk.written().partition("\n")[0]) if None in its.heads else its
    return replace(kept, hunks=hunks) if hunks != its.hunks else None


def blank_context_stripped(its: Edit, rng: Rng) -> Edit | None:
    return _each_line(its, lambda line: "" if line == " " else line)


def context_line_missing(its: Edit, rng: Rng) -> Edit | None:
    which = rng.randrange(len(its.hunks))
    context = [number for number, line in enumerate(its.hunks[which].lines) if line[:1] == " " and line.strip()]
    if not context:
        return None
    gone, seen = rng.choice(context), iter(range(10**6))
    before = sum(len(hunk.lines) for hunk in its.hunks[:which])
    return _each_line(its, lambda line: None if next(seen) == before + gone else line)


def fenced(its: Edit, rng: Rng) -> Edit:
    fence = rng.choice(["```diff\n{}```\n", "```\n{}```\n", "Here it is:\n\n```diff\n{}\n```"])
    return _then(its, fence.format)


def _then(its: Edit, change: Callable[[str], str]) -> Edit:
    return replace(its, text=lambda answer, first=its.text: change(first(answer)))  # type: ignore[misc]


def no_final_newline(its: Edit, rng: Rng) -> Edit:
    return _then(its, lambda answer: answer.rstrip("\n"))


def trailing_blanks(its: Edit, rng: Rng) -> Edit | None:
    return _each_line(its, lambda line: line + "  " if line[:1] in " -" and rng.random() < 0.4 else line)


def tabs_for_blanks(its: Edit, rng: Rng) -> Edit | None:
    return _each_line(its, lambda line: line[:1] + _tabs(line[1:]) if line else line)


def _tabs(line: str) -> str:
    blanks = len(line) - len(line.lstrip(" "))
    return "\t" * (blanks // 4) + line[blanks - blanks % 4 :]


def indentation_shifted(its: Edit, rng: Rng) -> Edit | None:
    lines = [line[1:] for hunk in its.hunks for line in hunk.lines if line[1:].strip()]
    less = all(line.startswith("    ") for line in lines) and rng.random() < 0.7
    return _each_line(
        its, lambda line: line if not line[1:].strip() else line[:1] + (line[5:] if less else "    " + line[1:])
    )


def prose_around(its: Edit, rng: Rng) -> Edit:
    after = rng.choice(["\nThis should raise the return.\n", "\n\nNote: it is - as ever - an idea.", ""])
    return _then(its, lambda answer: f"The rate looks too high, so\nI lower it.\n\n{answer}{after}")


def windows_answer(its: Edit, rng: Rng) -> Edit:
    return _then(its, lambda answer: answer.replace("\n", "\r\n"))


def windows_file(its: Edit, rng: Rng) -> Edit:
    assert its.after is not None
    return replace(its, before=its.before.replace("\n", "\r\n"), after=its.after.replace("\n", "\r\n"))


def no_prefixes(its: Edit, rng: Rng) -> Edit:
    return replace(its, names=rng.choice([f"--- {NAME}\n+++ {NAME}\n", f"--- {NAME}\t2026\n+++ {NAME}\t2026\n"]))


def git_head(its: Edit, rng: Rng) -> Edit:
    return replace(its, names=f"diff --git a/{NAME} b/{NAME}\nindex 3f2a1b..9c8d7e 100644\n{its.names}")


def stale(its: Edit, rng: Rng) -> Edit | None:
    """The file has changed where the edit would: nothing may come of it."""
    lines, hunk = its.before.split("\n"), rng.choice(its.hunks)
    at = hunk.old - 1
    for line in hunk.lines:
        if line[:1] == "-":
            lines[at] += rng.choice(["  # as it is", " or None", ")"])
        at += line[:1] != "+"
    now = "\n".join(lines)
    elsewhere = "\n" + "\n".join(_side(hunk, "-")) + "\n" in "\n" + now + "\n"
    return None if elsewhere or now == its.before else replace(its, before=now, after=None)


def _side(hunk: Hunk, sign: str) -> list[str]:
    """The lines of one side: '-' the old one, '+' the new one."""
    return [line[1:] for line in hunk.lines if line[:1] in ("", " ", sign)]


DEFECTS: Sequence[Defect] = (
    *(none, wrong_counts, wrong_line_numbers, both_wrong, no_numbers, blank_context_stripped, context_line_missing),
    *(fenced, no_final_newline, trailing_blanks, tabs_for_blanks, indentation_shifted, prose_around),
    *(windows_answer, windows_file, no_prefixes, git_head, stale),
)
FIRST = (blank_context_stripped, context_line_missing, trailing_blanks, windows_file, stale)
SECOND = (wrong_counts, wrong_line_numbers, both_wrong, no_numbers)
THIRD = (no_prefixes, git_head, none)
LAST = (fenced, no_final_newline, prose_around, windows_answer)


def several(its: Edit, rng: Rng) -> Edit | None:
    """Some defects at once."""
    found: Edit | None = its
    for choice in (SECOND, FIRST, THIRD, LAST):
        found = rng.choice(choice)(found, rng) if found is not None else None
    return found


# Blocks of SEARCH and REPLACE, and whole files, with defects of their own.


def blocks(its: Edit, rng: Rng) -> Edit:
    """The same edit as blocks, one for each hunk. One that is in the file more than once has to be refused."""
    parts = list[str]()
    for hunk in its.hunks:
        old, new = "\n".join(_side(hunk, "-")), "\n".join(_side(hunk, "+"))
        parts.append(f"<<<<<<< SEARCH\n{old}\n=======\n{new}{chr(10) * bool(new)}>>>>>>> REPLACE\n")
    name = f"{NAME}\n"
    return replace(its, after=its.after if its.clear else None, hunks=(), heads=(), names=name + name.join(parts))


def blocks_fenced(its: Edit, rng: Rng) -> Edit:
    return _then(its, lambda answer: answer.replace("<<<<<<<", "```python\n<<<<<<<").replace("REPLACE", "REPLACE\n```"))


def name_once(its: Edit, rng: Rng) -> Edit:
    return _then(its, lambda answer: f"In `{NAME}`:\n\n" + answer.replace(f"{NAME}\n", ""))


def blocks_cut_off(its: Edit, rng: Rng) -> Edit:
    return replace(_then(its, lambda answer: answer[: answer.rindex(">>>>>>>")]), after=None)


def blocks_elided(its: Edit, rng: Rng) -> Edit:
    said = rng.choice(["    # ... rest of the function unchanged", "# existing code here", "    ..."])
    return replace(_then(its, lambda answer: answer.replace(">>>>>>>", f"{said}\n>>>>>>>")), after=None)


BLOCK_DEFECTS: Sequence[tuple[Defect, Defect]] = (
    *((none, none), (none, blocks_fenced), (none, name_once), (none, prose_around), (none, windows_answer)),
    *((windows_file, none), (trailing_blanks, none), (tabs_for_blanks, none), (indentation_shifted, none)),
    *((context_line_missing, none), (stale, none), (none, blocks_cut_off), (none, blocks_elided)),
)


def whole(its: Edit, rng: Rng) -> Edit:
    return replace(its, hunks=(), heads=(), names=f"{NAME}\n```python\n{its.after}```\n")


def name_behind_fence(its: Edit, rng: Rng) -> Edit:
    fence = rng.choice([f"```python {NAME}", f"```python title={NAME}", f"```{NAME}", f"```python:{NAME}"])
    return _then(its, lambda answer: answer.replace(f"{NAME}\n```python", fence))


def name_decorated(its: Edit, rng: Rng) -> Edit:
    said = rng.choice([f"### `{NAME}`\n\n", f"**{NAME}**:\n", f"Here is the new `{NAME}`:\n\n", f"File: {NAME}\n"])
    return _then(its, lambda answer: said + answer.removeprefix(f"{NAME}\n"))


def fence_cut_off(its: Edit, rng: Rng) -> Edit:
    return replace(_then(its, lambda answer: answer[: rng.randint(len(answer) // 2, len(answer) - 5)]), after=None)


def file_elided(its: Edit, rng: Rng) -> Edit:
    said = rng.choice(["# ... rest of the file unchanged ...", "# (rest of the code stays the same)", "..."])
    return replace(_then(its, lambda answer: answer[: len(answer) // 2] + f"\n{said}\n```\n"), after=None)


def not_fenced(its: Edit, rng: Rng) -> Edit:
    return replace(_then(its, lambda answer: answer.replace("```python\n", "").replace("```", "")), after=None)


FILE_DEFECTS: Sequence[tuple[Defect, Defect]] = (
    *((none, none), (none, name_behind_fence), (none, name_decorated), (none, prose_around), (none, windows_answer)),
    *((windows_file, none), (none, fence_cut_off), (none, file_elided), (none, not_fenced)),
)
