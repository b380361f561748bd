"""The report: what a reader finds in it, and that nothing of a program or a model acts in it."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from flows.cli.arguments import parse_settings
from flows.engine.certifying import store
from flows.report import page
from flows.report.facts import Facts
from flows.report.figures import FEWEST, importances, slices
from flows.report.write import write_report
from flows.status import CampaignEnd
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.trial import TWENTIETHS, History, Verdict
from tests.support.histories import certified, search, tried, undemanding
from tests.support.ledgers import created

FINISHED = CampaignEnd("finished", "8 trials done")
HOSTILE = '</style><script>alert(1)</script><img src="http://example.com/x" onerror="alert(2)">'


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


def stored(ledger: Ledger, history: History) -> Ledger:
    """The ledger, with these trials on disk."""
    for trial in history:
        place = ledger.place_of(trial)
        place.path.mkdir(parents=True)
        place.trial.write_bytes(TRIAL.dump_json(trial))
    return ledger


def page_of(ledger: Ledger, ending: CampaignEnd | None = FINISHED) -> Page:
    return Page(page.html(Facts.of(ledger, ending)))


def test_a_report_answers_the_questions_of_a_morning(tmp_path: Path, home: Path) -> None:
    ledger = stored(created(tmp_path), search(12, cancels=False))
    champion = max(ledger.history(), key=lambda trial: (trial.verdict.kind == "keep", trial.order))
    store(ledger, certified(champion.number, [210, 215, 212, 214], [80, 82, 79, 84]))

    facts = Facts.of(ledger, FINISHED)
    answers = facts.answers

    assert "lr" in answers["What changed?"] and "12 trials" in answers["What did it cost?"]
    assert "certified" in facts.verdict and "at least +1" in facts.proof
    shown = page_of(ledger).text
    assert all(answer in shown for answer in (facts.verdict, facts.proof, *answers.values()))
    assert "other" not in shown
    store(ledger, certified(champion.number, [12.0, 14.0, 13.0], [1.0, 2.0, 3.0], on="other"))
    assert "other" in page_of(ledger).text, "a row for each environment that was asked"


def test_a_campaign_without_a_trial_or_whose_baseline_crashed_has_a_report_too(tmp_path: Path, home: Path) -> None:
    write_report(created(tmp_path, "empty"))
    ledger = stored(created(tmp_path), (tried((), None),))
    ending = CampaignEnd("failed", "the baseline crashed: `nightshift rerun n 0`")

    shown = page_of(ledger, ending).text

    assert "The baseline crashed: `nightshift rerun n 0`." in shown
    assert "baseline stands" not in shown and "too few" not in shown and "overestimate" not in shown


@pytest.mark.parametrize("state", ["stopped", "interrupted"])
def test_a_campaign_that_can_go_on_is_not_to_be_run_again(tmp_path: Path, home: Path, state: str) -> None:
    ledger = stored(created(tmp_path), (tried((), 1.0),))
    assert "nightshift resume n" in Facts.of(ledger, CampaignEnd(state, "asked to stop")).answers["What next?"]


def test_texts_of_programs_and_models_are_shown_and_not_run(tmp_path: Path, home: Path) -> None:
    history = search(11, cancels=False)
    changed = [
        replace(
            trial, proposal=replace(trial.proposal, rationale=HOSTILE, proposer=HOSTILE, edit=f"--- a/x\n+++ b/x\n+{HOSTILE}\n"),
            verdict=replace(trial.verdict, reason=HOSTILE) if number else trial.verdict,
        )
        for number, trial in enumerate(history)
    ]  # fmt: skip
    crash = replace(tried(tuple(changed), None), verdict=Verdict("crash", HOSTILE))
    ledger = stored(created(tmp_path), (*changed, crash))

    shown = page_of(ledger)

    assert HOSTILE in shown.text
    tags = {tag for tag, _ in shown.tags}
    assert not tags & {"script", "iframe", "object", "embed", "link", "form", "base"}
    for tag, attributes in shown.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "img" or str(attributes["src"]).startswith("data:")
        assert not re.match(r"\s*(javascript|data|http)", attributes.get("href") or "", re.IGNORECASE)
    assert "<" not in page.markdown(Facts.of(ledger, FINISHED)).replace("&lt;", "")


def test_the_parameter_that_decides_the_score_matters_most() -> None:
    environment, rng = undemanding(), np.random.default_rng(3)
    history: History = ()
    for _ in range(40):
        params = {name: one.sample(rng) for name, one in environment.space.items()}
        history += (tried(history, -abs(math.log(float(params["learning_rate"]) / 1e-3)), params=params),)

    found = importances(environment, history)

    assert not isinstance(found, str)
    assert next(iter(found)) == "learning_rate" and found["learning_rate"] > 0.2
    assert isinstance(importances(environment, history[: FEWEST - 1]), str)
    assert "$" not in slices(environment, history, history[0], found), "no formula, where names are taken as they are"


def test_what_befell_a_campaign_is_told_in_words(tmp_path: Path, home: Path) -> None:
    ledger = stored(created(tmp_path), (tried((), 1.0),))
    ledger.event("life", spent_before=0.0, identity="6b5d014a 43739", host="vm")
    ledger.event("life", spent_before=1136.4, identity="6b5d014a 43740", host="vm")
    ledger.event("end", state="stopped", reason="the disk has 299 MiB left")
    ledger.event("life", spent_before=6112.9)
    ledger.event("continued", trials=250)
    ledger.event("life", spent_before=7000.0)
    ledger.event("end", state="finished", reason="20 trials done")
    ledger.event("life", spent_before=7200.0, certify=True)

    assert Facts.of(ledger, FINISHED).incidents == (
        ("resumed", "18.9 min in, its process was killed or interrupted"),
        ("resumed", "1.7 h in, it stopped: the disk has 299 MiB left"),
    )


def test_a_champion_that_was_still_rising_is_given_a_longer_budget(tmp_path: Path, home: Path) -> None:
    limits = {"budget_seconds": 7, "budget_steps": 500}
    ledger, first = created(tmp_path, advanced={"overrides": limits}), tried((), 1.0)
    rising = replace(first.runs[0], curve=tuple(float(at) for at in range(TWENTIETHS)))

    idea = Facts.of(stored(ledger, (replace(first, runs=(rising,)),)), FINISHED).ideas[0]

    asked = shlex.split(idea.command)
    settings = parse_settings([asked[at + 1] for at, word in enumerate(asked) if word == "--set"])
    assert settings == {"overrides": {"budget_seconds": 14, "budget_steps": 1000}}
    assert Path(asked[2]) == ledger.path / "spec.toml"
