"""What a run was trained and judged on, and where it came from: datasets and the source commit in MLflow."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.spec.campaign_spec import CampaignSpec
from tasks.recipes.output import PREPARED, Content, Prepared
from tasks.store import lineage
from tasks.store.ledger import Ledger
from tasks.tracking.client import CampaignRecord, Mlflow
from tasks.tracking.outbox import campaign_record
from tests.support.ledgers import created
from tests.support.mlflow_records import make_files, make_trial, runs_of
from tests.support.toy import quadratic

if TYPE_CHECKING:
    from mlflow.entities import Run

USES = {"train": 400, "search": 30, "confirm": 20, "report": 60}


@pytest.fixture
def store(tmp_path: Path, empty_mlflow: Path) -> Mlflow:
    shutil.copy(empty_mlflow, tmp_path)
    return Mlflow(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)


@pytest.fixture
def ledger(tmp_path: Path, home: Path) -> Ledger:
    return created(tmp_path)


def asked(ledger: Ledger) -> CampaignRecord:
    """The campaign, with the note of a recipe's output beside its frozen environment."""
    names = {"train": "data/train.jsonl"} | {use: f"judge/{use}.jsonl" for use in ("search", "confirm", "report")}
    files = {name: Content(100, f"{number}" * 64) for number, name in enumerate(names.values())}
    made = Prepared("a-recipe", "0" * 16, files, USES, 1.0, {}, 1.7e9)
    (ledger.path / "prepared.json").write_bytes(PREPARED.dump_json(made))
    return campaign_record(ledger, None)


def shown(run: Run) -> dict[str, tuple[str, str, object]]:
    """A run's datasets by context: name, digest and number of questions."""
    found = {}
    for given in run.inputs.dataset_inputs:
        (context,) = [tag.value for tag in given.tags]
        dataset = given.dataset
        found[context] = dataset.name, dataset.digest, json.loads(dataset.profile).get("num_rows")
    return found


def test_runs_show_the_environment_and_the_question_sets_by_digest_and_count(
    store: Mlflow, ledger: Ledger, tmp_path: Path
) -> None:
    campaign = asked(ledger)
    files = make_files(tmp_path)
    for _ in range(2):  # a second time adds nothing
        tracker = Mlflow(store.uri, tmp_path)
        tracker.open_campaign(campaign)
        tracker.log_trial(campaign, make_trial(), files)
    (parent,), (run,) = runs_of(store, campaign, "campaign"), runs_of(store, campaign)
    sets = {use: (f"quad/{use}", f"{number}" * 16, many) for number, (use, many) in enumerate(USES.items())}
    environment = shown(parent)["environment"]
    assert (environment[0], len(environment[1])) == ("quad", 16)
    assert shown(parent) == {"environment": environment, **sets}
    assert shown(run) == {"environment": environment, "train": sets["train"], "search": sets["search"]}
    assert len(parent.inputs.dataset_inputs) == 5 and len(run.inputs.dataset_inputs) == 3


def test_another_content_is_another_dataset(tmp_path: Path, home: Path) -> None:
    first = campaign_record(created(tmp_path, "one"), None).datasets
    folder = quadratic(tmp_path / "quad")
    (folder / "judge.py").write_text((folder / "judge.py").read_text() + "\n")
    second = campaign_record(CampaignSpec.of(environment=str(folder), name="two").open(), None).datasets
    assert [one.name for one in first] == [one.name for one in second] == ["quad"]
    assert first[0].digest != second[0].digest


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@localhost")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_environments_repository_when_the_campaign_began(
    store: Mlflow, tmp_path: Path, home: Path
) -> None:
    folder = quadratic(tmp_path / "repository" / "quad")
    git(folder.parent, "init", "--quiet")
    assert lineage.source_commit(folder) == "", "there is none yet"
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "--quiet", "-m", "one")
    began = git(folder.parent, "rev-parse", "HEAD")
    ledger = CampaignSpec.of(environment=str(folder), name="n").open()
    git(folder.parent, "commit", "--quiet", "--allow-empty", "-m", "two")
    campaign = campaign_record(Ledger.open(ledger.campaign.name), None)
    store.open_campaign(campaign)
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    runs = [*runs_of(store, campaign, "campaign"), *runs_of(store, campaign)]
    assert [run.data.tags["mlflow.source.git.commit"] for run in runs] == [began, began]


def test_an_environment_that_is_installed_inside_of_a_repository_has_not_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / ".venv/lib/site-packages"
    folder = quadratic(site / "environments/quad")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "one")
    assert lineage.source_commit(folder) == git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.setattr(lineage, "CODE", site)
    monkeypatch.setattr(lineage, "is_checkout", lambda: False)
    assert lineage.source_commit(folder) == ""


def test_outside_of_git_there_is_no_commit(store: Mlflow, ledger: Ledger) -> None:
    assert ledger.campaign.commit == "" == lineage.source_commit(ledger.path)
    store.open_campaign(campaign_record(ledger, None))
    (parent,) = runs_of(store, campaign_record(ledger, None), "campaign")
    assert "mlflow.source.git.commit" not in parent.data.tags


def test_a_campaign_from_before_commits_were_kept_is_recorded(store: Mlflow, ledger: Ledger) -> None:
    path = ledger.path / "campaign.json"
    stored = json.loads(path.read_text())
    del stored["commit"]
    path.write_text(json.dumps(stored))
    assert store.open_campaign(replace(campaign_record(Ledger.open("n"), None), datasets=()))
