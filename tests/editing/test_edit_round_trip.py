"""Property tests of edits: what a diff says is what it makes, an answer is applied wholly or not at all, and in bounds."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.editing.edits import EditFailed, diff_of, patched
from tasks.editing.formats import changed

ODD = [
    *("", "x", " x", "x ", "\tx", "y", "y = 1", "def f():", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff"),
    *("-- a", "++ b", "--- a/q", "+++ b/q", "@@ -1 +1 @@", "diff --git a/x b/x", "index 1..2", "```", "\u00e9"),
    *("\\ No newline at end of file", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "train.py"),
]
LINE = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=8)
LINES = st.lists(LINE, max_size=12)
END = st.sampled_from(["", "\n"])
TEXT = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, END)
NAMES = st.sampled_from(["train.py", "my net.py", "lib/\u00e9.py", 'q"t.py', "tab\there.py", "back\\slash", "a/b/c"])
TEXTS = st.dictionaries(NAMES, TEXT, max_size=3)


@settings(max_examples=30, deadline=None)
@example({"train.py": "a\r\nb\r\n"}, {"train.py": "a\r\nb\nc\r"})
@example({"train.py": "\n\n"}, {"train.py": "x\n\n\n"})
@given(TEXTS, TEXTS)
def test_a_diff_between_any_texts_makes_the_one_into_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    shown = diff_of(before, after)
    assert patched(before, shown) == after
    assert bool(shown) == (before != after)
    assert shown == diff_of(before, after)


PIECE = st.sampled_from(
    [
        *("train.py", "lib/net.py", "judge.py", "../up.py", "```python", "```", "<<<<<<< SEARCH", "=======", "a = 1"),
        *(">>>>>>> REPLACE", "--- a/train.py", "+++ b/train.py", "--- a/judge.py", "+++ b/judge.py", "+++ b/../up.py"),
        *("@@ ... @@", "@@ -1,2 +1,2 @@", "-a = 1", "+a = 2", " b = 2", "-b = 2", "+c = 3", "b = 2", "c = 3", "--- /dev/null"),
        *("+++ /dev/null", "deleted file mode 100644", "rename to judge.py", "new file mode 120000", "", "```diff", "..."),
    ]
)  # fmt: skip
FILES = {"train.py": "a = 1\nb = 2\nc = 3\n", "notes.txt": "b = 2\n"}
EDITABLE = ("train.py", "lib/net.py", "notes.txt")


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECE, max_size=14))
def test_whatever_is_answered_only_editable_files_change_and_they_do_change(pieces: list[str]) -> None:
    found = dict[str, str]()
    with suppress(EditFailed):
        found = changed("\n".join(pieces), FILES, EDITABLE)
        assert found
    assert set(found) <= set(EDITABLE)
    assert all(found[name] != FILES.get(name) for name in found)
    assert patched(FILES, diff_of(FILES, {**FILES, **found})) == {**FILES, **found}
