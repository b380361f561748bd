"""Notifications: an address is checked and tried out, kept by the server alone, and told once of each occasion."""

from __future__ import annotations

import contextlib
import copy
import datetime
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from environments.plugins import Refused
from flows.server import announcements, block_types, notifications, work_pools
from flows.server.api import Api, impatient_client
from flows.server.notifications import PREFIX, Occasion
from tests.support import servers
from tests.support.histories import certified
from tests.support.ledgers import created
from tests.support.outcomes import night
from tests.support.prefect_api import ask
from tests.support.receivers import Received, mail_server, webhook

EVERY: tuple[Occasion, ...] = get_args(Occasion)


@pytest.mark.parametrize(
    "address",
    [
        "", "me@example.org", "ftp://example.org", "https://", "http://[nonsense", "mailto://me@example.org",
        "mailtos://me:SECRET@smtp.example.org?to=nobody", "slack://a/b/c", "file:///etc/passwd", "/etc/passwd",
    ],
)  # fmt: skip
def test_what_nothing_can_be_sent_to_is_refused_without_being_shown(address: str) -> None:
    if address == "mailto://me@example.org":  # to oneself, at one's own server
        assert notifications.check(address) == "nightshift-mail"
        return
    with pytest.raises(Refused, match="mail") as refused:
        notifications.check(address)
    assert "SECRET" not in str(refused.value)


def test_an_address_that_does_not_answer_is_refused_without_being_shown() -> None:
    with webhook(status=404) as gone:
        for address, why in ((gone.address, "answers 404"), ("http://127.0.0.1:9/secret-path", "nothing can be sent")):
            with pytest.raises(Refused, match=why) as refused:
                notifications.try_out(notifications.block_of(address), address, "page")
            assert "secret-path" not in str(refused.value)
    assert len(gone.messages) == 1


def test_prefect_takes_every_automation_and_each_occasion_has_one() -> None:
    from prefect.server.events.schemas.automations import AutomationCore

    found = [AutomationCore.model_validate(one) for one in notifications.wanted([str(uuid.uuid4())])]
    assert {one.name.removeprefix(PREFIX).split("-")[0] for one in found} == set(EVERY)


@pytest.fixture
def connected(server: str) -> Iterator[str]:
    """A server that Prefect in this process is connected to, which forgets our automations afterwards."""
    with temporary_settings({PREFECT_API_URL: server}):
        yield server
        notifications.put((), server, None)


def noticed(server: str) -> list[str]:
    found = ask("POST", f"{server}/automations/filter", {"limit": 200})
    return sorted(one["name"].removeprefix(PREFIX) for one in found if one["name"].startswith(PREFIX))


def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def notify(server: str, *addresses: str, occasions: tuple[Occasion, ...] = EVERY) -> None:
    for address in addresses:
        notifications.block_of(address).save(notifications.check(address), overwrite=True)
    notifications.put(occasions, server, None)


def test_an_address_is_stored_so_that_reading_does_not_show_it_and_occasions_follow(connected: str) -> None:
    with webhook() as hook, mail_server() as mail:
        notify(connected, hook.address, mail.address)
        documents = str(ask("POST", f"{connected}/block_documents/filter", {}))
        assert "nightshift-webhook" in documents and "secret-path" not in documents and "to=me" not in documents
        assert noticed(connected) == ["certified", "champion", "failed", "stalled", "stalled-without-worker"]
        notify(connected, hook.address, occasions=("failed",))
        assert noticed(connected) == ["failed"]


def test_each_occasion_is_told_once_by_webhook_and_mail(connected: str, tmp_path: Path) -> None:
    name = f"told-{uuid.uuid4().hex[:8]}"
    ledger, history = created(tmp_path, name=name), night([2.25, 1.0], up=False)
    proof = certified(1, (1.0, 1.1, 0.9, 1.0), (2.0, 2.1, 2.2, 2.1), higher_is_better=False, error=0.01)
    with webhook() as hook, mail_server() as mail:
        notify(connected, hook.address, mail.address)
        time.sleep(1)  # the server's triggers listen a moment later
        with impatient_client(10) as client:
            due = announcements.due(ledger, history, (proof,))
            assert [one.what for one in due] == ["champion", "certified"]
            for announcement in [*due, *due]:  # as if a kill had come before the ledger's note
                announcements.tell(client, ledger, None, announcement)
        assert announcements.due(ledger, history, (proof,)) == []
        failed(connected, f"{name} is not there.")
        until(lambda: len(about(hook, name)) >= 3 and len(about(mail, name)) >= 3)
        time.sleep(1)
        one_of_each(about(hook, name), ("new champion", "certified", "is not there."))
        one_of_each(about(mail, name), ("new champion", "certified", "is not there."))


def about(received: Received, name: str) -> list[str]:
    """The messages about one campaign: those of other tests on the same server arrive here too."""
    return [message for message in received.messages if name in message]


def one_of_each(messages: list[str], words: tuple[str, ...]) -> None:
    assert len(messages) == len(words)
    for word in words:
        assert any(word in message for message in messages), word


def failed(server: str, why: str) -> None:
    """A failed run of a deployment of ours, one of somebody else's, and one of a single trial."""
    state = {"state": {"type": "FAILED", "name": "Failed", "message": why}, "force": True}
    with Api(server, None) as api:  # which asks a busy server again
        for flow, tags in (("campaign", ["nightshift"]), ("campaign", []), ("trial", ["nightshift"])):
            of = api.ask("POST", "/flows/", {"name": flow})["id"]
            run = api.ask("POST", "/flow_runs/", {"flow_id": of, "tags": tags})["id"]
            api.ask("POST", f"/flow_runs/{run}/set_state", state)


@contextlib.contextmanager
def writing(database: Path) -> Iterator[None]:
    """Another connection that holds the database most of the time, as a server does that stores many events."""
    over = threading.Event()

    def write() -> None:
        with contextlib.closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as connection:
            while not over.is_set():
                connection.execute("BEGIN IMMEDIATE")
                over.wait(0.1)
                connection.execute("COMMIT")
                time.sleep(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_every_failure_is_told_once_while_others_write_to_the_database(tmp_path: Path, empty_prefect: Path) -> None:
    """On a server of its own: the shared one would be silent to the other tests meanwhile."""
    name = f"night-{uuid.uuid4().hex[:8]}"
    runs = [f"{name}-{number}" for number in range(6)]
    with (
        servers.prefect_server(tmp_path, empty_prefect) as connected,
        temporary_settings({PREFECT_API_URL: connected}),
        webhook() as hook,
    ):
        notify(connected, hook.address, occasions=("failed", "stalled"))
        time.sleep(1)  # the server's triggers listen a moment later
        resumed, ended = ([happened(run, state) for run in runs] for state in ("AwaitingRetry", "Failed"))
        with Api(connected, None) as api:
            api.ask("POST", "/events", resumed)  # an automation that counts on: it reads its count before it writes
            time.sleep(1)
            with writing(tmp_path / "prefect.db"):
                api.ask("POST", "/events", ended)
                until(lambda: len(about(hook, name)) >= len(runs))
                time.sleep(1)
    told = about(hook, name)
    assert sorted(message.splitlines()[0] for message in told) == [f"{run} failed" for run in runs]
    assert all(message.splitlines()[1] == "It is not there." for message in told)


def happened(run: str, state: str) -> dict[str, Any]:
    """The event by which the server tells itself that a campaign's run has a new state."""
    tag = {"prefect.resource.id": "prefect.tag.nightshift", "prefect.resource.role": "tag"}
    flow = {
        "prefect.resource.id": f"prefect.flow.{uuid.uuid4()}", "prefect.resource.name": "campaign",
        "prefect.resource.role": "flow",
    }  # fmt: skip
    of = uuid.uuid5(uuid.NAMESPACE_URL, run)
    resource = {
        "prefect.resource.id": f"prefect.flow-run.{of}", "prefect.resource.name": run,
        "prefect.state-message": "It is not there.",
    }  # fmt: skip
    return {
        "id": str(uuid.uuid4()), "occurred": datetime.datetime.now(datetime.UTC).isoformat(),
        "event": f"prefect.flow-run.{state}", "resource": resource, "related": [flow, tag],
    }  # fmt: skip


def test_the_types_of_our_blocks_are_registered_once(connected: str) -> None:
    assert block_types.register() == block_types.register()
    body = {"block_types": {"slug": {"any_": block_types.register()}}}
    found = ask("POST", f"{connected}/block_types/filter", body)
    assert {one["name"] for one in found} == {
        "Nightshift LLM", "Nightshift endpoint", "Nightshift machine", "Nightshift tracking",
    }  # fmt: skip


def test_a_pool_is_made_once_and_its_type_stays(connected: str) -> None:
    name = f"pool-{uuid.uuid4().hex[:8]}"
    assert work_pools.make(name, "process", connected, None)
    assert not work_pools.make(name, "process", connected, None)
    with pytest.raises(Refused, match=f"'{name}' is there, of the type process|prefect-docker"):
        work_pools.make(name, "docker", connected, None)


def test_a_docker_pool_has_a_place_for_gpus_even_if_it_was_made_without(connected: str) -> None:
    worker = pytest.importorskip("prefect_docker.worker", reason="the extra `docker` is not installed")
    template = copy.deepcopy(worker.DockerWorker.get_default_base_job_template())
    del template["variables"]["properties"][work_pools.GPUS], template["job_configuration"][work_pools.GPUS]
    name = f"pool-{uuid.uuid4().hex[:8]}"
    bare = {"name": name, "type": "docker", "base_job_template": template}
    ask("POST", f"{connected}/work_pools/", bare)
    assert work_pools.make(name, "docker", connected, None)
    assert not work_pools.make(name, "docker", connected, None)
    made = ask("GET", f"{connected}/work_pools/{name}")
    assert "container_create_kwargs" in made["base_job_template"]["variables"]["properties"]


def test_without_prefect_docker_a_docker_pool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_docker.worker", None)
    with pytest.raises(Refused, match="pip install 'prefect-docker"):
        work_pools.make("gpus", "docker", "http://127.0.0.1:9/api", None)
