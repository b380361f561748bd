"""The forms of an edit: what is clear is applied to the letter, all else is refused with a reason to repair it by."""

from __future__ import annotations

import pytest

from tasks.editing.edits import EditFailed
from tasks.editing.formats import changed

PROGRAM = """\
import math

rate = 0.1


def warm(step):
    total = 0
    for each in range(step):
        total += each
    return total


def cool(step):
    total = 0
    for each in range(step):
        total += each
    return total - 1
"""
FILES = {"train.py": PROGRAM}
ONE, TWO = ("train.py",), ("train.py", "lib/net.py")
LOWER = PROGRAM.replace("0.1", "0.05")
BLOCK = "<<<<<<< SEARCH\nrate = 0.1\n=======\nrate = 0.05\n>>>>>>> REPLACE\n"
DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1,5 +1,5 @@\n import math\n \n-rate = 0.1\n+rate = 0.05\n \n \n"
WHOLE = f"train.py\n```python\n{LOWER}```\n"


def made(answer: str, before: str = PROGRAM) -> str:
    """What an answer makes of train.py, and of nothing else, where no other file is editable."""
    found = changed(answer, {"train.py": before}, ONE)
    assert list(found) == ["train.py"]
    return found["train.py"]


def reason(answer: str, editable: tuple[str, ...] = TWO) -> str:
    with pytest.raises(EditFailed) as refused:
        changed(answer, FILES, editable)
    return str(refused.value)


def block(search: str, replace: str, name: str = "train.py") -> str:
    return f"{name}\n<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n"


def hunk(*lines: str, head: str = "@@ ... @@") -> str:
    return "\n".join(["--- a/train.py", "+++ b/train.py", head, *lines]) + "\n"


NUMBERLESS = hunk(" import math", "", "-rate = 0.1", "+rate = 0.05")
EACH = ("     total = 0", "     for each in range(step):", "-        total += each", "+        total += 7")


@pytest.mark.parametrize(
    "answer",
    [
        f"train.py\n{BLOCK}",
        BLOCK.replace("\n", "\r\n"),
        f"Lower it:\n\n```python\n{BLOCK}```\nThat is all.",
        f"```python train.py\n{BLOCK}```",
        f"In `train.py` the rate is too high:\n{BLOCK}",
        BLOCK.replace("SEARCH", "SEARCH train.py"),
        DIFF,
        NUMBERLESS,
        NUMBERLESS.replace("a/", "").replace("b/", ""),
        DIFF.replace("-1,5 +1,5", "-40,4 +41,2"),
        f"diff --git a/train.py b/train.py\nindex 1..2 100644\n{DIFF}-- \n2.39.5\n",
        f"So:\n```diff\n{DIFF}\n```\n- a lower rate\n+ more patience\n",
        f"So:\n{DIFF}",
        WHOLE,
        f"```python train.py\n{LOWER}```",
        f"Here is the new `train.py`:\n\n````\n{LOWER}````\n",
        f"train.py\n~~~python\n{LOWER}~~~\n",
    ],
)
def test_an_edit_is_found_in_every_form_however_it_is_dressed(answer: str) -> None:
    assert made(answer) == LOWER


def test_what_is_searched_has_to_be_there_once() -> None:
    assert reason(block("        total += each\n", "        total += 1\n")) == (
        "block 1 of 1 (train.py): SEARCH is in the file 2 times (first in lines 9 and 16); "
        "add lines around it until it is there once"
    )
    missing = reason(block("def cool(step):\n    total = 1\n", "pass\n"))
    assert "SEARCH is not in the file; it has no line '    total = 1'" in missing


def test_an_empty_search_makes_a_new_file_and_never_replaces_one() -> None:
    assert changed(block("", "x = 1\n", "lib/net.py"), FILES, TWO) == {"lib/net.py": "x = 1\n"}
    assert "SEARCH is empty, which makes a new file, and train.py is there already" in reason(block("", "x = 1\n"))
    assert "there is no file lib/net.py yet" in reason(block("x = 1\n", "", "lib/net.py"))


def test_whitespace_at_the_ends_of_lines_stays_the_files() -> None:
    before = "a = 1  \nb = 2\t\nc = 3\n"
    assert made(block("a = 1\nb = 2\n", "a = 1\nb = 4\n"), before=before) == "a = 1  \nb = 4\nc = 3\n"
    windows = PROGRAM.replace("\n", "\r\n")
    for answer in (BLOCK, DIFF, WHOLE):
        assert made(answer, before=windows) == LOWER.replace("\n", "\r\n")


@pytest.mark.parametrize("head", ["@@ ... @@", "@@ -8,3 +8,3 @@", "@@ -7,4 +7,4 @@"], ids=["none", "place", "counts"])
def test_of_several_places_only_numbers_that_are_all_right_tell_the_one(head: str) -> None:
    assert "several places" in reason(f"```diff\n{hunk(*EACH, head=head)}```")
    right = hunk(*EACH, head="@@ -7,3 +7,3 @@")
    assert made(right) == PROGRAM.replace("+= each", "+= 7", 1)
    other = "@@ -4,1 +4,1 @@\n-rate = 0.1\n+rate = 0.2\n"  # one that is wrong makes the others not to be believed
    assert "several places" in reason(f"```diff\n{right}{other}```")


def test_a_diff_takes_lines_away_adds_a_file_and_speaks_of_the_newline_at_the_end() -> None:
    new = "--- /dev/null\n+++ b/lib/net.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n"
    for answer in (new, new.replace("b/lib", "lib")):
        assert changed(answer, FILES, TWO) == {"lib/net.py": "x = 1\ny = 2\n"}
    assert changed(new + "\\ No newline at end of file\n", FILES, TWO) == {"lib/net.py": "x = 1\ny = 2"}
    less = hunk("-import math", "-", "-rate = 0.1", head="@@ -1,1 +0,0 @@")
    assert made(less) == PROGRAM.removeprefix("import math\n\nrate = 0.1\n")
    last = hunk("-    return total - 1", "\\ No newline at end of file", "+    return total")
    assert made(last, before=PROGRAM[:-1]).endswith("return total\n")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (f"train.py\n{BLOCK}".replace(">>>>>>> REPLACE\n", ""), "block 1 has no end"),
        (block("rate = 0.1\n", "rate = 0.1\n"), "changes nothing"),
        (block("    return total - 1\n", "    # ... rest unchanged\n"), "stands for lines that are left out"),
        ("Lower the rate.", "the answer holds no edit"),
        (DIFF.replace("-rate = 0.1", "-rate = 0.7"), "does not apply"),
        (hunk("+x = 1", head="@@ -3,0 +4,1 @@"), "several places"),
        (hunk(" rate = 0.1", "+x = 1", " def warm(step):"), "does not apply"),
        (hunk("-rate = 0.1", "+rate = 1", "So far.", "@@ ... @@", "-import math"), "'So far.' in a hunk"),
        (f"```diff\n{hunk('-rate = 0.1', 'import math')}```", "'import math' in a hunk"),
        (f"```diff\n{DIFF}", "the answer is cut off"),
        (DIFF.replace("+++ b/train.py", "+++ /dev/null"), "the edit "),
        ("diff --git a/train.py b/train.py\nold mode 100644\nnew mode 100755\n" + DIFF, "'mode change 100644"),
        (DIFF.replace("+rate = 0.05", "+# ... existing code ..."), "stands for lines that are left out"),
        (WHOLE.rstrip("`\n"), "is never closed: the answer is cut off"),
        (WHOLE.replace("def cool", "# ... the rest stays the same\ndef cool"), "stands for lines that are left out"),
        (WHOLE + WHOLE, "is a second one for train.py"),
        (WHOLE.removeprefix("train.py\n"), "names no file"),
        (f"{WHOLE}Try it:\n```bash\npython -V\n```\n", "names no file"),
        ("train.py\n```python\n\n```\n", "is empty"),
        (LOWER, "no fenced file"),
        (WHOLE.replace("0.05", "0.1"), "the edit changes nothing"),
    ],
)
def test_an_edit_that_is_broken_or_not_clear_is_refused(answer: str, why: str) -> None:
    assert why in reason(answer)


@pytest.mark.parametrize("name", ["judge.py", "lib/../train.py", "/etc/train.py", "Train.py"])
@pytest.mark.parametrize("answer", [f"train.py\n{BLOCK}", DIFF, WHOLE, block("", "x = 1\n")])
def test_no_form_reaches_a_file_that_is_not_editable(name: str, answer: str) -> None:
    said = reason(answer.replace("train.py", name))
    assert any(why in said for why in (f"names {name}", "the edit touches", "the edit does not apply"))
    assert reason(answer, editable=())
