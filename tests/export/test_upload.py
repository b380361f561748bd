"""Uploading a champion: by the hub's own client, over HTTP, to a stand-in of the hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import environments
from environments.plugins import Refused
from flows.engine.certifying import store
from flows.export.upload import HubFailed, front_matter, upload
from tasks.store.ledger import Ledger
from tests.support import hub as stand_in
from tests.support.histories import certified
from tests.support.hub import TOKEN, Hub
from tests.support.lazy import LazyModule
from tests.support.ledgers import created, stored

if TYPE_CHECKING:
    import huggingface_hub
else:
    huggingface_hub = LazyModule("huggingface_hub")

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own, on httpx
REPO = "me/quad"
PLANTED = "sk-planted-0123456789"
WEIGHTS = os.urandom(100_000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub, known by the environment; what the client reads when it is imported is set too."""
    from huggingface_hub import constants

    with stand_in.serving() as found:
        for name, value in {"HF_ENDPOINT": found.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf")}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        yield found
        huggingface_hub.close_session()


@pytest.fixture
def ledger(tmp_path: Path, home: Path) -> Ledger:
    """A campaign whose champion, trial 1, is certified."""
    made = created(tmp_path)
    stored(made, 3.0, 2.0, weights=WEIGHTS)
    store(made, certified(1, [10, 10.5, 11], [2, 2.5, 3]))
    return made


def send(ledger: Ledger, repo: str = REPO, public: bool = False, uncertified: bool = False) -> dict[str, Any]:
    return upload(ledger, repo, public=public, uncertified=uncertified)


def test_an_upload_is_one_private_commit_that_says_what_it_is_with_a_card_that_the_hub_reads(
    hub: Hub, ledger: Ledger
) -> None:
    done = send(ledger)

    _, made = hub.repositories[REPO].commits
    assert hub.repositories[REPO].private and done["visibility"] == "private" and not done["again"]
    assert done["url"] == f"{hub.endpoint}/{REPO}/tree/{made.oid}"
    assert made.title.startswith("n, trial 1: certified, +8")
    assert made.files["checkpoint/step-1/weights.bin"] == WEIGHTS
    assert {"environment/quad/environment.toml", "result.json", "reproduce.sh", "champion.patch"} <= set(made.files)
    assert not [name for name in made.files if "latest" in name]  # a link to a folder
    assert not [path for path in hub.requests if "harness" in path or "telemetry" in path]

    card = huggingface_hub.ModelCard(hub.files(REPO)["README.md"].decode())
    (result,) = card.data.eval_results or ()
    assert isinstance(result, huggingface_hub.EvalResult)
    assert (result.metric_type, result.metric_value) == (ledger.environment.metric, 10.5)
    assert card.data.library_name == "nightshift" and "reinforcement-learning" in (card.data.tags or ())
    assert card.text.lstrip().startswith("# n, trial 1\n") and "certified" in card.text
    of_a_text_model = front_matter(environments.named("arithmetic"), ledger.history()[1], None, "n")
    assert "pipeline_tag: text-generation" in of_a_text_model


def test_a_later_version_replaces_the_files_of_the_earlier_one_and_no_others(hub: Hub, ledger: Ledger) -> None:
    send(ledger)
    repository = hub.repositories[REPO]
    repository.commit("by hand", {**hub.files(REPO), "LICENSE": b"mine", "checkpoint/old.bin": b"old"})
    store(ledger, replace(certified(1, [11, 11.5, 12], [2, 2.5, 3]), look=2))

    done = send(ledger)

    assert not done["again"] and send(ledger)["again"] and done["commit"] == repository.commits[-1].oid
    assert hub.files(REPO)["LICENSE"] == b"mine" and "checkpoint/old.bin" not in hub.files(REPO)
    assert hub.files(REPO)["checkpoint/step-1/weights.bin"] == WEIGHTS


@pytest.mark.parametrize("fault", ["refuses", "loses the answer"])
def test_after_a_fault_the_same_command_leaves_one_whole_version(hub: Hub, ledger: Ledger, fault: Any) -> None:
    hub.fault = fault
    with pytest.raises(HubFailed, match="give the same command again"):
        send(ledger)

    done = send(ledger)

    assert [made.oid for made in hub.repositories[REPO].commits[1:]] == [done["commit"]]


def test_what_is_not_certified_is_uploaded_on_request_alone_and_says_so_first(
    hub: Hub, tmp_path: Path, home: Path
) -> None:
    ledger = created(tmp_path)
    stored(ledger, 3.0, 2.0)
    with pytest.raises(Refused, match="--uncertified"):
        send(ledger)
    assert not hub.requests

    send(ledger, uncertified=True)

    text = huggingface_hub.ModelCard(hub.files(REPO)["README.md"].decode()).text
    assert "not certified" in text.lstrip().splitlines()[0]
    assert hub.repositories[REPO].commits[-1].title == "n, trial 1: not certified"


def test_no_secret_leaves(hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", PLANTED)  # it is in the patch

    send(ledger)

    assert "SOME_API_KEY" in hub.files(REPO)["champion.patch"].decode()
    assert not [body for body in hub.received if PLANTED.encode() in body or TOKEN.encode() in body]
    monkeypatch.setenv("OTHER_TOKEN", "(x - 1)")  # shorter than any secret
    monkeypatch.setenv("ANOTHER_TOKEN", WEIGHTS[50_000:50_040].hex())
    frozen = ledger.path / "environment" / "judge.py"
    frozen.chmod(0o644)
    frozen.write_text(f"{frozen.read_text()}\n# {WEIGHTS[50_000:50_040].hex()}\n")
    count = len(hub.received)
    with pytest.raises(Refused, match="ANOTHER_TOKEN"):
        send(ledger, "me/second")
    monkeypatch.delenv("ANOTHER_TOKEN")
    (ledger.path / "environment" / ".env").write_text("KEY=hf_" + "a1B2" * 9)
    with pytest.raises(Refused, match="what looks like a key"):
        send(ledger, "me/second")
    assert "me/second" not in hub.repositories and len(hub.received) == count
