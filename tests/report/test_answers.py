"""Questions won and lost: what is compared, from which set, and that no answer acts in the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import environments
from flows.report import page
from flows.report.facts import Facts
from flows.spec.campaign_spec import CampaignSpec
from flows.status import CampaignEnd
from tasks.recording import answers
from tasks.recording.answers import AnswerComparison
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tests.support.champions import TEXT
from tests.support.histories import tried
from tests.support.trusting import trusted

HOSTILE = (
    '</td></table></details><script>alert(1)</script><img src=x onerror=alert(2)>',
    "a\x1b[31mred\x07\x00bell",
    "\u202egnihton\u202c \u2066isolated\u2069 \ufeff\u200b",
    "\ud800 a lone surrogate",
    "long " * 20_000,
    "| a | b |\n|---|---|\n" * 50,
    "</pre>\n<!-- <style>*{display:none}</style>",
)  # fmt: skip


HALF = '{"question": 1, "greedy": {"completions": ["x"], "rewards": ["x"]}}\n'
"""A line whose reward is no number."""


def night(folder: Path, first: dict[int, str], champion: dict[int, str]) -> Ledger:
    """A campaign whose baseline and champion gave these answers to questions of the search set, by number."""
    home, prepared = folder / "sums", folder / "prepared"
    home.mkdir()
    (home / "environment.toml").write_text(TEXT)
    (home / "train.py").write_text("")
    (home / "taskset.py").write_text("")
    (prepared / "judge").mkdir(parents=True)
    for pool, start in (("search", 0), ("confirm", 1000), ("report", 2000)):
        rows = [
            {"id": f"{n:016x}", "question": f"{pool} {n}+1", "answer": str(n + 1)} for n in range(start, start + 200)
        ]
        (prepared / "judge" / f"{pool}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = CampaignSpec.of(environment=str(trusted(home)), name="night").open()
    ledger.__dict__["environment"] = environments.load(home).model_copy(update={"prepared": prepared})
    history = (tried((), 0.1, params={"x": 0.1}),)
    history += (tried(history, 0.6, params={"x": 0.6}, kind="keep"),)
    for trial, said in zip(history, (first, champion), strict=True):
        place = ledger.place_of(trial)
        place.judged.mkdir(parents=True)
        place.trial.write_bytes(workspace.TRIAL.dump_json(trial))
        lines = [
            {"question": f"{n:016x}", "greedy": {"completions": [text], "rewards": [float(text == str(n + 1))]}}
            for n, text in said.items()
        ]
        (place.judged / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ledger


def compared(ledger: Ledger) -> AnswerComparison | str | None:
    first, champion = ledger.history()
    return answers.compared(ledger, first, champion)


def test_questions_of_the_search_set_that_both_answered_are_compared(tmp_path: Path, home: Path) -> None:
    ledger = night(
        tmp_path,
        {1: "2", 2: "x", 3: "x", 4: "5", 5: "6", 1001: "x", 2001: "x"},
        {2: "3", 3: "y", 4: "y", 5: "6", 6: "7", 1001: "1002", 2001: "2002"},
    )

    found = compared(ledger)

    assert isinstance(found, AnswerComparison) and found.asked == 4
    assert [(one.question, one.expected, one.baseline, one.champion) for one in found.won] == [
        ("search 2+1", "3", "x", "3")
    ]
    assert [one.question for one in found.lost] == ["search 4+1"]
    shown = page.html(Facts.of(ledger, CampaignEnd("finished", "done")))
    assert (
        "(4)" in shown
        and "1 that the champion answers better" in shown
        and "1 that the champion answers worse" in shown
    )
    assert "search 2+1" in shown and "confirm 1001" not in shown and "report 2001" not in shown
    assert "Questions won" not in page.html(Facts.of(ledger, CampaignEnd("running", "")))


def test_hostile_answers_are_shown_and_do_nothing(tmp_path: Path, home: Path) -> None:
    ledger = night(tmp_path, dict(enumerate(HOSTILE)), {n: str(n + 1) for n in range(len(HOSTILE))})

    shown = page.html(Facts.of(ledger, CampaignEnd("finished", "done")))

    (ledger.path / "report.html").write_text(shown, encoding="utf-8")
    assert f"{len(HOSTILE)} that the champion answers better" in shown
    assert not re.search(r"<(script|img src=x|style>\*)", shown) and shown.count("</table>") == shown.count("<table")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", shown
    )
    for char in "\x1b\x07\u202e\u2066\ufeff":
        assert f"U+{ord(char):04X}" in shown
    assert len(shown) < 200_000, "a long answer is cut"


def test_broken_or_missing_files_of_answers_are_a_reason(tmp_path: Path, home: Path) -> None:
    ledger = night(tmp_path, {1: "2"}, {1: "2"})
    file = ledger.place(1).judged / "answers.jsonl"

    for content in (
        "",
        "[" * 100_000,
        "{}\n",
        '{"question": 1, "greedy": {"completions": "x", "rewards": 1}}\n\xff\n',
        HALF,
    ):
        file.write_text(content)
        assert "answers of trial 1" in str(compared(ledger))
    file.unlink()
    file.symlink_to(ledger.place(0).judged / "answers.jsonl")
    assert "answers of trial 1" in str(compared(ledger))

    first, champion = ledger.history()
    elsewhere = replace(champion, runs=(replace(champion.runs[0], dir="trials/0099"),))
    assert "answers of trial 1" in str(answers.compared(ledger, first, elsewhere))
