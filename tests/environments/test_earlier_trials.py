"""history.jsonl: what another tool tried, read as written; a line that is none is refused with its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import earlier_trials
from environments.earlier_trials import FILE, EarlierTrial
from environments.plugins import Refused


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    trials = (
        EarlierTrial({"lr": 1e-3, "n": 3, "on": True, "kind": "é"}, -0.5, "a note\nof two\u2028lines"),
        EarlierTrial({}, None),
    )
    assert earlier_trials.read(tmp_path) == ()
    (tmp_path / FILE).write_text(earlier_trials.text(trials), "utf-8")
    assert earlier_trials.read(tmp_path) == trials


@pytest.mark.parametrize(
    ("line", "said"), [("{", "line 2: Invalid JSON"), ('{"params": {"lr": NaN}, "score": 1}', "line 2: params.lr")]
)
def test_a_line_that_is_no_trial_is_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / FILE).write_text('{"params": {}, "score": 1}\n' + line + "\n")
    with pytest.raises(Refused, match=said):
        earlier_trials.read(tmp_path)
