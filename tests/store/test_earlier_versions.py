"""Campaigns that an earlier version began are shown, taken along and learned from, and not gone on with.

campaigns-0.1.0.tar.xz is of commit af3c92b, campaigns-0.6.tar.xz of 12a8a023: three trials, a certificate, trial 1 run
again, and a further trial. Each was killed with kill -9 in the training after those.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

import environments
from environments import plugins
from environments.judges.reported import Reported
from environments.plugins import Refused
from flows.export.folder import export
from flows.report.write import REPORT, write_report
from flows.spec.campaign_spec import CampaignSpec
from tasks.store import judge_code
from tasks.store.earlier_campaigns import lessons
from tasks.store.judge_code import JudgeVersion
from tasks.store.ledger import Ledger
from tests.support.ledgers import created
from tests.support.toy import nightshift, quadratic, status, told

TRIALS = {"begun-with-0.1.0": [0, 1, 2], "begun-with-0.6": [0, 1, 2, 3, 4]}


@pytest.fixture(params=TRIALS)
def old(request: pytest.FixtureRequest, home: Path) -> Ledger:
    """A campaign of format 1."""
    name: str = request.param
    with tarfile.open(Path(__file__).with_name(f"campaigns-{name.removeprefix('begun-with-')}.tar.xz")) as archive:
        archive.extractall(home, filter="data")
    return Ledger.open(name)


def test_a_campaign_of_an_earlier_version_is_shown_and_exported(old: Ledger, tmp_path: Path) -> None:
    name = old.campaign.name
    found = status(name)
    assert (found["state"], [row["trial"] for row in found["trials"]]) == ("interrupted", TRIALS[name])
    assert found["spent"]["seconds"] > 0 and all(row["score"] is not None for row in found["trials"])
    if name == "begun-with-0.6":
        assert (found["trials"][1]["attempt"], found["certificate"]["trial"]) == (2, 3)
    assert name in {row["campaign"] for row in json.loads(told("list", "--json"))} and name in told("status", name)
    write_report(old)
    assert name in (old.path / REPORT).read_text()
    assert (export(old, tmp_path / "taken") / "result.json").is_file()


def test_resume_and_rerun_refuse_it_with_the_version_and_leave_it_as_it_is(old: Ledger, server: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in old.path.rglob("*") if path.is_file()}
    for verb in (("resume", old.campaign.name), ("rerun", old.campaign.name, "1")):
        done = nightshift(*verb, server=server)
        assert done.returncode == 2 and f"was begun by Nightshift {old.campaign.version}" in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in old.path.rglob("*") if path.is_file()} == before


def test_a_new_campaign_learns_from_it(old: Ledger, tmp_path: Path) -> None:
    name, source = old.campaign.name, tmp_path / old.campaign.environment
    shutil.copytree(old.path / "environment", source)
    new = CampaignSpec.of(environment=str(source), name="new", advanced={"learn_from": [name]}).open()
    assert [trial.number for trial in lessons(new.path)] == TRIALS[name]


# Judges that change


def test_a_judge_that_scores_differently_now_is_refused_with_the_version_to_finish_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = created(tmp_path)
    *_, present = judge_code.versions(ledger.environment.judge)
    monkeypatch.setattr("tasks.store.ledger.judge_digest", lambda _: "another")
    before = JudgeVersion("0.7.0", present.digests[:1], "af3c92b")
    monkeypatch.setattr("tasks.store.ledger.versions", lambda _: (before, JudgeVersion("9.9.9", ("another",))))
    with pytest.raises(Refused, match=r"0\.7\.0.*git checkout af3c92b"):
        ledger.verify()


def test_the_digest_of_a_judge_covers_the_judge_that_it_extends(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return b""

    monkeypatch.setattr(Path, "read_bytes", noted)
    judge_code.bytes_digest(Reported())
    assert read[:2] == ["reported.py", "command.py"] and read.count("command.py") == 1


@pytest.mark.parametrize("name", ["cartpole", "quadratic", "arithmetic"])
def test_the_present_code_of_every_judge_is_in_its_last_table(tmp_path: Path, name: str) -> None:
    """When this fails, say in environments/judges/versions.toml whether the change keeps scores."""
    environment = environments.load(quadratic(tmp_path / name)) if name == "quadratic" else environments.named(name)
    *earlier, present = judge_code.versions(environment.judge)
    assert judge_code.bytes_digest(environment.judge) == present.digests[-1]
    assert all(version.commit for version in earlier)


def test_every_bundled_judge_has_a_table() -> None:
    assert set(judge_code._listed()) == set(plugins.names("environments.judges"))
