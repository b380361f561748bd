"""Certificates as campaigns take them: when there is one, what it was begun as, how it ends, and what follows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows import campaign as campaign_flow
from flows.certify import certify as certify_flow
from flows.engine import stopping
from flows.engine.certifying import certify_at_the_end, nothing_to_certify, planned, store  # fmt: skip
from flows.engine.night import ensure_prepared
from flows.engine.stopping import ASKED, NOTHING_LEFT, Stop
from flows.spec.campaign_spec import CampaignSpec
from flows.status import document
from tasks.preparing import report_pool
from tasks.stats import holdout_uses
from tasks.stats.certificate import Certificate
from tasks.stats.champion import unpromising
from tasks.stats.design import ALPHA, equal_arms, of_groups
from tasks.store.ledger import CERTIFICATE, Ledger
from tasks.system.files import write_atomic
from tasks.trial import History
from tests.support.histories import certified, tried
from tests.support.ledgers import trusted
from tests.support.nights import on_night, question
from tests.support.noisy import BETTER, DRAW, campaign, noisy, searched
from tests.support.prefect_api import prefect_at
from tests.support.question_pool import pool
from tests.support.toy import nightshift, quadratic, status

BASELINE = tried((), 0.1, -0.2, 0.4)
FIRST = 0.96 * ALPHA
"""The error of a campaign's first certificate."""
GOOD: History = (BASELINE, tried((BASELINE,), 60.0))
"""A baseline and a champion that is far better."""


def certify(server: str, ledger: Ledger, runs: int | None = None) -> Certificate | None:
    """`nightshift certify`, as its flow runs it; the newest certificate."""
    with prefect_at(server):
        state = certify_flow(ledger.campaign.name, runs=runs, return_state=True)
    assert state.is_completed(), state.message
    return ledger.certificates()[-1] if ledger.certificates() else None


def at_the_end(server: str, ledger: Ledger, history: History | None = None) -> Stop:
    """What a campaign does at the end of its search; how it ends then."""
    return on_night(server, ledger, lambda one: certify_at_the_end(one, NOTHING_LEFT, campaign_flow.measure), history)


def begun(ledger: Ledger, champion: int, runs: int, alpha: float = FIRST) -> Path:
    """Declare the first certificate, as a life did that was killed thereafter."""
    path = ledger.path / "certificates/1.begun"
    declared = replace(luck(), champion=champion, runs=(), alpha=alpha, design=of_groups(equal_arms(runs), alpha))
    write_atomic(path, CERTIFICATE.dump_json(declared).decode())
    return path


def luck() -> Certificate:
    """A certificate of trial 1 in the campaign's own environment that did not pass."""
    return replace(certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5)), environment="noisy", alpha=FIRST)


def directories(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def test_without_a_champion_there_is_nothing_to_certify(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    for history, words in (
        ((), "no trial has a score"), ((tried((), None),), "no trial has a score"),
        ((BASELINE, tried((BASELINE,), -5.0)), "nothing that was tried was kept"), (GOOD, None),
    ):  # fmt: skip
        assert nothing_to_certify(question(ledger, history)) == words
    done = nightshift("certify", "night", "--runs", "2")
    assert done.returncode == 2 and "no trial has a score" in done.stderr
    assert not (ledger.path / "certificates").exists(), "none was declared"


def test_a_second_certificate_has_half_of_the_error_that_is_left_and_another_environment_takes_none_of_it(
    tmp_path: Path,
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    store(ledger, certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5), on="other"))
    own = question(ledger, GOOD)
    assert (nothing_to_certify(own), own.look, own.answers_on_champion) == (None, 1, [])
    assert own.error_left == pytest.approx(0.96 * ALPHA)
    store(ledger, luck())
    assert nothing_to_certify(own) is None and own.look == 2
    assert own.just_made == luck(), "whoever made it did not come to its end"
    ledger.event("end", state="finished", reason="as before")
    assert own.just_made is None
    assert own.error_left == pytest.approx((ALPHA - luck().alpha) / 2)
    assert own.spec.certificate_design(own.environment) == planned(own, None), "time is reserved for what comes"
    assert own.carried and planned(own, 4).groups == ((4, 4),), "the carried runs hold those of the search"
    elsewhere = tuple(replace(one, run=replace(one.run, machine="another")) for one in luck().runs)
    store(ledger, replace(luck(), runs=elsewhere))
    assert own.carried is None and nothing_to_certify(own) is None, "runs of other machines do not compare"


@pytest.mark.parametrize(
    ("limits", "why"),
    [({"until": "2001-01-01T00:00:00Z"}, "has passed"), ({"usd_per_hour": 3600.0, "max_usd": 1.0}, "max_usd = 1, ")],
)
def test_limits_that_were_lowered_hold_for_the_certificate_at_the_end(
    tmp_path: Path, server: str, limits: dict[str, Any], why: str
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"), **limits)
    stop = at_the_end(server, ledger, GOOD)
    assert stop.state == "stopped" and why in stop.reason and not (ledger.path / "certificates").exists()


def test_what_is_not_even_better_in_the_search_is_not_certified_and_the_status_says_why(
    tmp_path: Path, server: str
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    history = (BASELINE, tried((BASELINE,), 0.09, kind="keep"))
    reason = unpromising(history)
    assert reason == "in the search it scored no better than the baseline"
    assert unpromising((BASELINE, tried((BASELINE,), 0.11, kind="keep"))) is None
    assert nothing_to_certify(question(ledger, history)) is None, "by hand it may be"
    assert at_the_end(server, ledger, history) == NOTHING_LEFT
    assert not (ledger.path / "certificates").exists() and status("night")["uncertified"] == reason
    ledger.event("life", certify=True)
    assert document(ledger)["uncertified"] == reason, "a certificate elsewhere, made later, takes nothing back"
    ledger.event("life")
    assert document(ledger)["uncertified"] is None, "it may yet be certified"


def test_a_certificate_goes_on_as_it_was_declared_and_runs_nothing_twice(tmp_path: Path, server: str) -> None:
    ledger = searched(campaign(noisy(tmp_path / "noisy")), {"x": 40.0})
    path = begun(ledger, champion=1, runs=3, alpha=ALPHA)
    declared = path.read_text()

    def stopped(one: Any) -> Stop:
        (ledger.path / "stop").touch()
        return certify_at_the_end(one, NOTHING_LEFT, campaign_flow.measure)

    assert on_night(server, ledger, stopped) == ASKED
    assert directories(path.parent) == [] and ledger.certificates() == (), "no run was begun"
    made = certify(server, ledger, 2)
    assert made is not None and made.passed, made
    (ledger.path / "certificates/1.json").unlink()  # as if it was killed before it wrote that down
    assert certify(server, ledger, 2) == made and path.read_text() == declared
    assert len(made.scores("champion")) == len(made.scores("baseline")) + len(made.reused) == 3
    mine, theirs = (
        [f"1-0001-{arm}-{n}" for n in range(1, many + 1)] for arm, many in (("champion", 3), ("baseline", 2))
    )
    assert directories(path.parent) == [*theirs, *mine]
    seeds = {fresh.run.seed for fresh in made.runs}
    assert len(seeds) == 5 and not seeds & {run.seed for trial in ledger.history() for run in trial.runs}


def test_a_certificate_counts_as_taken_when_another_trial_is_champion_before_it_is_over(
    tmp_path: Path, server: str
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    begun(ledger, champion=1, runs=3)
    history = (*GOOD, tried(GOOD, 90.0))
    assert at_the_end(server, ledger, history) == NOTHING_LEFT
    made, later = ledger.certificates()
    assert (made.look, made.champion, made.passed, made.runs) == (1, 1, False, ())
    assert (later.look, later.champion) == (2, 2) and later.alpha < made.level
    assert made.reason.startswith("it was begun for trial 1, and not finished before another trial became champion")
    assert made.level > 0, "its error is spent"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_of_further_certificates_each_has_half_of_what_was_left_and_no_earlier_run_is_thrown_away(
    tmp_path: Path, server: str
) -> None:
    ledger = searched(campaign(noisy(tmp_path / "noisy")), {"x": 40.0})
    first = certified(1, (39.0, 41.0, 40.5), (40.2, -2.5, 0.5), error=0.1)
    first = replace(first, environment="noisy", alpha=0.025, design=of_groups(((3, 3),), 0.025), level=0.025)
    store(ledger, first)
    ledger.event("end", state="finished", reason="as a test says")
    made = certify(server, ledger, 3)
    assert made is not None and (made.look, made.champion) == (2, 1)
    assert made.runs[:6] == first.runs and made.carried == 6
    assert len(made.scores("champion")) == 6 and len(made.scores("baseline")) + len(made.reused) >= 6
    assert made.comparison is not None and first.comparison is not None and made.comparison.p < first.comparison.p


@pytest.mark.slow
def test_a_certificate_is_tested_at_the_level_of_its_use_of_a_pool_and_charged_once(
    tmp_path: Path, server: str
) -> None:
    folder = trusted(pool(tmp_path / "pool").folder)
    ledger = CampaignSpec.of(environment=str(folder), name="night", tracking="off").open()
    ensure_prepared(ledger)
    prepared = report_pool(ledger.environment)
    holdout_uses.charge(prepared, "an earlier campaign", 1)
    first = tried((), 2.25, 2.25, params={"x": 2.5}, higher_is_better=False)
    good: History = (first, tried((first,), 0.0, params={"x": 1.0}, higher_is_better=False))
    at_the_end(server, ledger, good)
    (made,) = ledger.certificates()
    assert made.passed and (made.looked_before, made.alpha) == (1, 0.05 / 6)
    (ledger.path / "certificates/1.json").unlink()
    at_the_end(server, ledger, good)
    assert ledger.certificates() == (made,), "made again from the same runs"
    uses = holdout_uses.uses(prepared)
    assert [use.campaign for use in uses] == ["an earlier campaign", ledger.campaign.campaign_id]
    assert uses[-1].passed and holdout_uses.charge(prepared, "later", 1)[1] == 0.05 / 12 + 0.05 / 6
    drawn = CampaignSpec.of(environment=str(quadratic(tmp_path / "quad")), name="drawn", tracking="off").open()
    assert report_pool(drawn.environment) is None, "units that are drawn anew are not charged"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_ablation_that_was_cut_off_is_done_in_the_next_life(tmp_path: Path, server: str) -> None:
    ledger = searched(campaign(noisy(tmp_path / "noisy"), ablation=True), {"x": 30.0}, edit=BETTER)
    store(ledger, replace(certified(1, (80.0, 81.0, 79.0), (0.1, -0.2, 0.4)), environment="noisy"))
    assert at_the_end(server, ledger) == NOTHING_LEFT
    found = ledger.ablation(1)
    (ledger.path / "ablations/0001.json").unlink()
    ran = {path: path.stat().st_mtime_ns for path in ledger.path.glob("ablations/*/out/model.json")}
    assert at_the_end(server, ledger) == NOTHING_LEFT
    assert found is not None and ledger.ablation(1) == found
    assert all(path.stat().st_mtime_ns == when for path, when in ran.items()), "what had been run was not run again"
    assert (found.champion, [one.score.value for one in found.kept]) == (1, pytest.approx([80.0] * 3, abs=6))
    assert [one.change for one in found.removed] == ["x", "its edit"] * 2
    assert [one.score.value for one in found.removed] == pytest.approx([50.0, 30.0] * 2, abs=6)


def test_a_champion_that_ignores_its_seed_is_not_certified_however_its_files_differ(
    tmp_path: Path, server: str
) -> None:
    """It is told by what it does: it reports nothing, and its file holds a date."""
    report = DRAW[DRAW.index("with (out") : DRAW.index('(out / "model.json")')]
    pinned = (
        DRAW.replace('config["seed"]', 'config["seed"] if config["params"]["x"] < 30 else 7').replace(report, "")
        .replace('{"reward": reward}', '{"reward": reward, "date": __import__("time").time()}')
    )  # fmt: skip
    made = certify(server, searched(campaign(noisy(tmp_path / "noisy", pinned)), {"x": 40.0}))
    assert made is not None and not made.passed and made.reason.startswith("it ignores its seed"), made


def test_no_run_of_a_certificate_begins_on_a_full_disk_and_a_rule_that_certifies_nothing_has_none(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = campaign(noisy(tmp_path / "noisy"), "greedy", rule="greedy")
    assert at_the_end(server, greedy, GOOD) == NOTHING_LEFT and not (greedy.path / "certificates").exists()
    ledger = campaign(noisy(tmp_path / "noisy"))
    monkeypatch.setattr(stopping, "ROOM", 2**62)
    assert at_the_end(server, ledger, GOOD).reason.startswith("the disk of ")
    assert not ledger.certificates() and [one.name for one in (ledger.path / "certificates").iterdir()] == ["1.begun"]
