"""Nothing of the user's leaves with a trial: no file that a link points to, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from environments.safe_open import open_below
from tasks.store import lineage
from tasks.store.ledger import Ledger
from tasks.store.safe_read import pack_folder
from tasks.store.workspace import TrialDir
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync
from tasks.trial import Verdict
from tests.support.ledgers import filled
from tests.support.mlflow_records import artifacts_of, client_of, make_trial, put, runs_of

KEY = "sk-canary-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    return Ledger(ledger.path, ledger.campaign.model_copy(update={"proposer": f"my {KEY}"}))


@pytest.fixture
def place(ledger: Ledger) -> TrialDir:
    """The files of a trial that was kept."""
    return ledger.place_of(put(ledger, make_trial()))


def stored(store: Store, run_id: str, path: str) -> bytes:
    return Path(client_of(store).download_artifacts(run_id, path)).read_bytes()


def test_no_secret_gets_into_the_store_whichever_way_it_tries(store: Store, ledger: Ledger, place: TrialDir) -> None:
    for path in (place.config, place.diff, place.log, place.out / "notes.md"):
        path.write_text(f"before {KEY} after\n")
    with place.progress.open("a") as progress:
        progress.write(json.dumps({"elapsed": 1.0, "step": 1, "metrics": {f"loss/{KEY}": 1.0}}) + "\n")
    with zipfile.ZipFile(
        place.out / "policy.pt", "w"
    ) as checkpoint:  # as torch writes it: its parts are stored as they are
        checkpoint.writestr("data.pkl", b"\x80\x02\0" + f"weights {KEY}".encode())
    trial = make_trial()
    proposal = replace(trial.proposal, params={"note": KEY}, rationale=f"try {KEY}")
    trial = replace(trial, proposal=proposal, verdict=Verdict("keep", f"better than {KEY}", "provisional"))
    filled(ledger, (trial,))
    with (ledger.path / "spec.toml").open("a") as spec:
        spec.write('\n[note]\naddress = "https://me:pw@host"\n')
    (ledger.path / "results.tsv").write_text(f"trial\tdescription\n7\t{KEY}\n")
    (ledger.path / "progress.png").write_bytes(b"\x89PNG\0")
    assert sync(ledger, store, "finished").problem == ""
    (run,), (own,) = runs_of(store, ledger), runs_of(store, ledger, "campaign")
    run_id, parent = run.info.run_id, own.info.run_id

    assert stored(store, run_id, "log.txt") == b"before [secret OPENAI_API_KEY] after\n"
    assert artifacts_of(store, run_id, "out") == {"out/notes.md", "out/progress.jsonl"}
    assert run.data.tags["checkpoint"] == "out/ without 'policy.pt': it holds the secret OPENAI_API_KEY"
    assert run.data.metrics["train/loss/_secret OPENAI_API_KEY_"] == 1.0
    assert b'"https://me:[secret]@host"' in stored(store, parent, "spec.toml")
    assert artifacts_of(store, parent) == {"progress.png", "results.tsv", "spec.toml"}
    kept = [path for path in (store.home / "artifacts").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert KEY.encode() not in (store.home / "mlflow.db").read_bytes()
    assert not (place.path / ".outgoing").exists()


def test_what_leads_out_of_a_trial_is_not_sent(store: Store, ledger: Ledger, place: TrialDir, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/id_rsa").write_text("the user's own")
    (place.out / "model.pt").symlink_to(tmp_path / "home/id_rsa")
    (place.out / "folder").symlink_to(tmp_path / "home")
    (place.out / "gone").symlink_to(tmp_path / "nowhere")
    for path in (place.config, place.diff, place.log, place.progress):
        path.unlink()
        path.symlink_to(tmp_path / "home/id_rsa")
    os.mkfifo(place.out / "pipe")
    assert sync(ledger, store, "finished").problem == ""
    (run,) = runs_of(store, ledger)
    assert artifacts_of(store, run.info.run_id) == {"out"}
    assert artifacts_of(store, run.info.run_id, "out") == {"out/policy.pt"}
    assert run.data.tags["checkpoint"] == "out/"


def test_a_file_is_reached_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "real/lib").mkdir(parents=True)
    (tmp_path / "real/lib/net.py").write_text("net")
    (tmp_path / "real/alias").symlink_to("lib")
    (tmp_path / "alias").symlink_to("real")
    file = open_below(tmp_path / "real", "lib/net.py")
    with file:
        assert file.read() == b"net"
    for folder, name in [("real", "alias/net.py"), ("alias", "lib/net.py"), ("real", "lib"), ("real", "no.py")]:
        assert open_below(tmp_path / folder, name) is None, (folder, name)


def test_no_secret_and_no_file_of_the_users_gets_into_the_lineage(tmp_path: Path) -> None:
    repository, place = tmp_path / "lineage.git", TrialDir(tmp_path / "trial")
    (tmp_path / "id_rsa").write_text("the user's own")
    place.workspace.mkdir(parents=True)
    (place.workspace / "train.py").write_text(f"key = '{KEY}'\n")
    (place.workspace / "net.py").symlink_to(tmp_path / "id_rsa")
    trial = make_trial(0)
    proposal = replace(trial.proposal, params={"note": KEY}, rationale=KEY)
    trial = replace(trial, proposal=proposal, verdict=Verdict("keep", KEY, "provisional"))
    commit = lineage.commit(repository, place, trial, ("train.py", "net.py"))
    git = ["git", "-C", str(repository)]
    shown = subprocess.run([*git, "show", "--root", commit], capture_output=True, text=True, check=True).stdout
    assert "net.py" not in shown and KEY not in shown
    assert "+key = '[secret OPENAI_API_KEY]'\n" in shown
    assert shown.count("[secret OPENAI_API_KEY]") == 4


def test_a_name_that_a_server_may_refuse_holds_up_nothing(tmp_path: Path) -> None:
    """One refused upload would keep its trial's record, and all later ones, from being sent for ever."""
    out, good = tmp_path / "out", "model 1.0 (best)=+@,[x]-y.pt"
    for name in ("..%2f..%2fx", "what?", f"{'d' * 250}/" * 3 + "x", good):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("weights")
    said = pack_folder(out, tmp_path / "to")
    assert said.startswith("out/ without '") and said.count("not every server takes") == 3
    assert [path.name for path in (tmp_path / "to/out").rglob("*") if path.is_file()] == [good]
