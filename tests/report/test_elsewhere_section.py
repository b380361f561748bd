"""The report's section on other environments and budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.engine.certifying import store
from flows.report import page
from flows.report.facts import Facts
from flows.status import CampaignEnd
from tasks.stats.transfer import Conditions
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tests.support.histories import certified, tried
from tests.support.ledgers import created

END = CampaignEnd("finished", "2 trials done")
HOSTILE = "<script>alert(1)</script>`\x1b[2J\u202e"


def campaign_with_certificates(folder: Path) -> Ledger:
    """A campaign with its own certificate, one at 4x, and two in other environments."""
    ledger, first = created(folder), tried((), 1.0, 2.0, 3.0)
    for trial in (first, tried((first,), 12.0)):
        place = ledger.place_of(trial)
        place.path.mkdir(parents=True)
        place.trial.write_bytes(TRIAL.dump_json(trial))
    own = certified(1, (11.0, 12.0, 13.0), (1.0, 2.0, 3.0))
    store(ledger, replace(own, environment=ledger.environment.name))
    longer = replace(certified(1, (3.0, 4.2, 5.0), (3.0, 4.0, 5.0)), environment=ledger.environment.name)
    store(ledger, replace(longer, elsewhere=True, conditions=Conditions(4.0)))
    there = Conditions(changed={"lr": 0.2}, left_out=(f"epochs {HOSTILE}",))
    store(ledger, replace(certified(1, (12.0, 14.0, 13.0), (1.0, 2.0, 3.0), on="lander"), conditions=there))
    store(ledger, replace(certified(1, (120.0, 80.0, 95.0), (70.0, 90.0, 60.0), on="acrobot"), conditions=there))
    return ledger


def test_the_report_has_a_row_for_each_environment_and_budget_after_what_changed(tmp_path: Path) -> None:
    facts = Facts.of(campaign_with_certificates(tmp_path), END)
    html = page.html(facts)
    assert (
        html.index("What changed</h2>") < html.index("Elsewhere, and for other budgets") < html.index("What mattered")
    )
    for words in ("lander", "acrobot", "at 4x the budget"):
        assert words in html, words
    assert "<script>" not in html and html.count("cannot be tried there: epochs") == 2
    assert not {"\x1b", "\u202e"} & {*html}
    shown = page.markdown(facts)
    assert "### Elsewhere" in shown and "acrobot" in shown and "<script>" not in shown
