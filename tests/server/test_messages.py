"""Messages about the ends of campaigns: Prefect's automations and notification blocks, with a real server and webhook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.prefect_api import ask, put_automations, remove_automations, set_state
from tests.support.processes import wait_for
from tests.support.toy import nightshift
from tests.support.web import Handler, serving


class Hook(Handler):
    """A receiver of notifications, `{"text": ...}`, which keeps their texts in order."""

    messages: list[str]

    def do_POST(self) -> None:
        self.messages.append(json.loads(self.body())["text"])
        self.answer(200)


TELLS = ["nightshift-tells-end", "nightshift-tells-waiting"]


def test_every_block_of_the_name_gets_a_message_about_an_end_and_none_about_other_flows(lone_server: str) -> None:
    messages: list[str] = []
    with temporary_settings({PREFECT_API_URL: lone_server}), serving(Hook, messages=messages) as hook:
        assert not set(TELLS) & set(put_automations(lone_server)), "there is nobody to tell"
        block = CustomWebhookNotificationBlock(
            name="nightshift", url=hook, json_data={"text": "{{subject}}\n{{body}}"}, headers=None, cookies=None
        )
        block.save("nightshift")
        try:
            assert put_automations(lone_server) == TELLS
            assert put_automations(lone_server) == []
            # The server reads its automations anew every few seconds.
            wait_for(lambda: end(lone_server, "campaign", "probe", "COMPLETED") or messages)
            for flow, name, state in (
                ("campaign", "good", "COMPLETED"), ("campaign", "bad", "FAILED"), ("other", "other", "FAILED"),
                ("rerun", "gone", "CRASHED"),
            ):  # fmt: skip
                end(lone_server, flow, name, state)
            wait_for(lambda: len([one for one in messages if "probe" not in one]) >= 3)
            assert sorted(one.splitlines()[:2] for one in messages if "probe" not in one) == [
                ["bad: Failed", "bad: it says why"], ["gone: Crashed", "gone: it says why"],
                ["good: Completed", "good: it says why"],
            ]  # fmt: skip
        finally:
            remove_automations(lone_server)


def end(server: str, flow: str, name: str, state: str) -> None:
    flow_id = ask("POST", f"{server}/flows/", {"name": flow})["id"]
    made: dict[str, Any] = {"flow_id": flow_id, "name": name, "state": {"type": "RUNNING"}}
    run = ask("POST", f"{server}/flow_runs/", made)["id"]
    set_state(server, run, type=state, message=f"{name}: it says why")


def test_what_campaigns_need_is_put_on_a_server_by_up_which_starts_nothing(lone_server: str, home: Path) -> None:
    done = nightshift("up", "--server", lone_server)
    assert done.returncode == 0, done.stderr
    assert nightshift("up", "--server", lone_server).returncode == 0
    assert not list((home / ".prefect").glob("*.json")), "no program is noted"
    assert "trainers" in [pool["name"] for pool in ask("POST", f"{lone_server}/work_pools/filter", {})]
