"""The report: what a reader finds in it, and the page of all campaigns."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from flows.engine.certifying import store
from flows.report import page
from flows.report.facts import Facts
from flows.report.figures import FEWEST, importances, slices
from flows.report.page import write_index, write_report
from flows.status import CampaignEnd, summaries
from tasks.store.ledger import Ledger
from tasks.trial import History, Verdict
from tests.support.histories import certified, search, tried, undemanding
from tests.support.ledgers import created, filled

FINISHED = CampaignEnd("finished", "8 trials done")


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(ledger: Ledger, ending: CampaignEnd | None = FINISHED) -> Page:
    return Page(page.html(Facts.of(ledger, ending)))


def test_a_report_answers_the_questions_of_a_morning(tmp_path: Path, home: Path) -> None:
    ledger = filled(created(tmp_path), search(12, cancels=False))
    champion = max(ledger.history(), key=lambda trial: (trial.verdict.kind == "keep", trial.order))
    store(ledger, certified(champion.number, [210, 215, 212, 214], [80, 82, 79, 84]))

    facts = Facts.of(ledger, FINISHED)
    answers = facts.answers

    assert "lr" in answers["What changed?"] and "12 trials" in answers["What did it cost?"]
    result = facts.document["result"]
    assert "certified" in result["verdict"] and "at least +1" in result["proof"]
    shown = page_of(ledger).text
    assert all(answer in shown for answer in (*result.values(), *answers.values()))
    assert "other" not in shown
    store(ledger, certified(champion.number, [12.0, 14.0, 13.0], [1.0, 2.0, 3.0], on="other"))
    assert "other" in page_of(ledger).text, "a row for each environment that was asked"


def test_a_campaign_without_a_trial_or_whose_baseline_crashed_has_a_report_too(tmp_path: Path, home: Path) -> None:
    write_report(created(tmp_path, "empty"))
    ledger = filled(created(tmp_path), (tried((), None),))
    ending = CampaignEnd("failed", "the baseline crashed: `nightshift rerun n 0`")

    shown = page_of(ledger, ending).text

    assert "The baseline crashed: `nightshift rerun n 0`." in shown
    assert "baseline stands" not in shown and "too few" not in shown and "overestimate" not in shown


def test_the_parameter_that_decides_the_score_matters_most() -> None:
    environment, rng = undemanding(), np.random.default_rng(3)
    history: History = ()
    for _ in range(40):
        params = {name: one.sample(rng) for name, one in environment.space.items()}
        history += (tried(history, -abs(math.log(float(params["learning_rate"]) / 1e-3)), params=params),)

    found = importances(environment, history)

    assert next(iter(found)) == "learning_rate" and found["learning_rate"] > 0.2
    assert importances(environment, history[: FEWEST - 1]) == {}
    alike: History = ()
    for value in range(FEWEST):
        alike += (tried(alike, float(value), params=history[0].proposal.params),)
    assert importances(environment, alike) == {}, "of edits alone no parameter matters"
    assert "$" not in slices(environment, history, history[0], found), "no formula, where names are taken as they are"


def test_what_befell_a_campaign_is_told_in_words(tmp_path: Path, home: Path) -> None:
    ledger = filled(created(tmp_path), (tried((), 1.0),))
    ledger.event("life", spent_before=0.0, identity="6b5d014a 43739", host="vm")
    ledger.event("life", spent_before=1136.4, identity="6b5d014a 43740", host="vm")
    ledger.event("end", state="stopped", reason="the disk has 299 MiB left")
    ledger.event("life", spent_before=6112.9)
    for what in ("asked", "begun"):
        ledger.event("launch", what=what, run="0001-1", launch=1)
    ledger.event("continued", trials=250)
    ledger.event("life", spent_before=7000.0)
    ledger.event("end", state="finished", reason="20 trials done")
    ledger.event("life", spent_before=7200.0, certify=True)

    assert "nightshift resume n" in Facts.of(ledger, CampaignEnd("stopped", "asked to")).answers["What next?"]
    assert Facts.of(ledger, FINISHED).incidents == (
        ("resumed", "18.9 min in, its process was killed or interrupted"),
        ("resumed", "1.7 h in, it stopped: the disk has 299 MiB left"),
    )


def links(page: Page) -> set[str]:
    return {str(attributes.get("href")) for tag, attributes in page.tags if tag == "a"}


def test_every_campaign_has_a_line_with_its_result_and_a_link(tmp_path: Path, home: Path) -> None:
    one = filled(created(tmp_path, "one"), search(6, cancels=False))
    store(one, certified(1, [210, 215, 212, 214], [80, 82, 79, 84]))
    write_report(one, FINISHED)
    two = filled(created(tmp_path, "two"), search(5, seed=2, cancels=False))
    write_report(two, FINISHED)

    shown = Page((home / "index.html").read_text())

    assert {"one/report.html", "two/report.html"} == links(shown)
    first, second = summaries()
    assert (first["campaign"], first["trials"], second["campaign"], second["gain"]) == ("one", 6, "two", None)
    assert first["gain"].startswith("+1") and first["gain"] in shown.text and "2 campaigns, 1 with" in shown.text


def test_a_campaign_that_cannot_be_read_says_so_and_hides_no_other(tmp_path: Path, home: Path) -> None:
    write_report(filled(created(tmp_path, "good"), search(3, cancels=False)), FINISHED)
    broken = {"cut": "{", "later": '{"format": 99}', "empty": "null"}
    for name, text in broken.items():
        (home / name).mkdir()
        (home / name / "campaign.json").write_text(text)
    (home / "no campaign/campaign.json").mkdir(parents=True)
    hostile = "<img src=x onerror=alert(1)>"  # any folder can hold a campaign.json
    shutil.copytree(home / "good", home / hostile)

    states = {row["campaign"]: row["state"] for row in summaries()}
    shown = Page(write_index().read_text())

    assert states == {"good": "interrupted", **dict.fromkeys([*broken, hostile], "unreadable")}
    assert links(shown) == {"good/report.html"} and "cannot be read" in shown.text and hostile in shown.text
    assert "img" not in {tag for tag, _ in shown.tags}


# Texts that are hostile or secret, and a disk without room.


KEYS = {
    "ONE_API_KEY": "sk-one-0123456789-abcdefghij", "TWO_TOKEN": "two&<three>\"four'five|six`seven",
    "THREE_SECRET": "three/plus+equals=percent%slash\\back",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "</style><script>alert(1)</script>", '"><svg onload="alert(1)">', "' onmouseover='alert(1)' x='",
    "</title><script>alert(1)</script>", "<meta http-equiv=refresh content='0;url=http://x'>", "<link rel=stylesheet href=//x>",
    "<iframe src=//x>", "<img src=//x onerror=alert(1)>", "</svg><image href=//x>", "@import url(//x)", "<base href=//x>",
    "{{ 7*7 }}{% raw %}", "javascript:alert(1)", "]]><!--", "<form action=//x><button autofocus>", "\u202eRTL\x00\x1b[31m",
)  # fmt: skip
"""Texts that act in a page that does not escape them."""


def told(history: History, text: str) -> History:
    """The history with this text wherever a program, a model or a person can put one."""
    return tuple(
        replace(
            trial,
            proposal=replace(
                trial.proposal, rationale=text, proposer=text, model=text, category=text,
                params={**trial.proposal.params, "choice": text}, edit=f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+{text}\n",
            ),
            verdict=replace(trial.verdict, reason=f"{text}\n| the log: {text}"),
            score=replace(trial.score, error=trial.score.error and text),
        )
        for trial in history
    )  # fmt: skip


def test_no_page_holds_a_key_nor_half_of_one_nor_the_users_own_folder_nor_what_hides_others(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "alice"
    for name, key in (KEYS | {"HOME": str(own)}).items():
        monkeypatch.setenv(name, key)
    keys = " ".join(KEYS.values())
    text = f'my keys are {keys}, in "{own}/lib/x.py"; {own}s is another; \u202eRTL\x00\x1b[31m\x07 \u2066x\ufeff'
    history = told(search(12, cancels=False), text)
    history = (*history, *told((replace(tried(history, None), verdict=Verdict("crash", keys)),), keys))
    ledger = filled(created(tmp_path), history)
    ledger.event("view", failed="report", error=f"refused: {keys}")

    markdown = write_report(ledger, FINISHED)

    written = [*home.glob("**/*.html")]
    assert {path.name for path in written} >= {"report.html", "index.html"}
    for text in (markdown, *(path.read_text() for path in written)):
        assert not [key for key in KEYS.values() if key[:8] in text or key[-8:] in text]
        assert not {*"\u202e\x00\x1b\x07\u2066\ufeff"} & {*text}
    shown = (ledger.path / "report.html").read_text()
    assert all(f"[secret {name}]" in shown for name in KEYS)
    assert f"{own}/" not in shown and "~/lib/x.py" in shown and f"{own}s is another" in shown


def test_texts_of_programs_and_models_are_shown_and_not_run(tmp_path: Path, home: Path) -> None:
    text = " ".join(HOSTILE)
    history = told(search(11, cancels=False), text)
    ledger = filled(created(tmp_path), (*history, replace(tried(history, None), verdict=Verdict("crash", text))))

    markdown = write_report(ledger, FINISHED)

    for file in (ledger.path / "report.html", home / "index.html"):
        shown = Page(file.read_text())
        acting = {"script", "iframe", "object", "embed", "link", "form", "base", "image"}
        assert not {tag for tag, _ in shown.tags} & acting
        for tag, attributes in shown.tags:
            assert not [name for name in attributes if name.startswith("on")]
            assert tag != "img" or str(attributes["src"]).startswith("data:")
            assert not re.match(r"\s*(javascript|data|http|//)", attributes.get("href") or "", re.IGNORECASE)
        assert any("default-src 'none'" in str(attributes.get("content")) for _, attributes in shown.tags)
    assert HOSTILE[0] in Page(page.html(Facts.of(ledger, FINISHED))).text
    assert "<" not in markdown.replace("&lt;", "")
