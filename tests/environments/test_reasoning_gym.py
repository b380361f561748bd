"""reasoning_gym: questions of the real package with their own scorers. Skipped where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import making
import pytest

import environments
from environments.judges._taskset import Taskset

pytest.importorskip("reasoning_gym")
FOLDER = environments.find("reasoning_gym")
FEW = {"train": 8, "search": 4, "confirm": 4, "report": 4}


def prepared(folder: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The recipe, run as the engine runs it; it ends at the model, which is not there."""
    (folder / "settings.json").write_text(json.dumps(FEW | {"model": str(folder / "no-model")} | settings))
    return subprocess.run(
        [sys.executable, FOLDER / "prepare.py", folder], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(making.__file__).parent)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "options"), [("chain_sum", {"min_terms": 2, "max_terms": 3}), ("word_sorting", {}), ("countdown", {})]
)
def test_a_data_sets_own_answer_is_right_by_its_scorer_and_another_is_not(
    dataset: str, options: dict[str, int], tmp_path: Path
) -> None:
    done = prepared(tmp_path, dataset=dataset, options=options, instruction="Answer in <answer> tags.")
    assert "is no folder" in done.stderr, done.stderr
    file = tmp_path / "judge" / "search.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    ids = {json.loads(line)["id"] for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()}
    assert len(ids) == sum(FEW.values())
    with Taskset(FOLDER / "taskset.py", file, [row["id"] for row in rows], 60, 1e12) as taskset:
        [first, *_] = taskset.prompts(range(4))
        assert first[-1]["content"].endswith("tags.")
        said = [f"I think so.\n<answer>{row['answer']}</answer>" for row in rows]
        assert taskset.rewards(enumerate(said)) == [1.0] * 4
        assert max(taskset.rewards((place, "<answer>no</answer>") for place in range(4))) < 0.5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dataset": "chain_summ"}, "chain_summ"),
        ({"dataset": "graph_color"}, "its scorer needs more than a file holds"),
        ({"options": {"min_terms": 2, "max_terms": 2, "max_digits": 1}, "train": 5000}, "different questions"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    done = prepared(tmp_path, **settings)
    assert done.returncode == 1 and "reasoning_gym cannot be prepared" in done.stderr and words in done.stderr
