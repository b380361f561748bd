"""Notifications by a Prefect server: to a webhook or by mail when something happens in a campaign.

An address is kept in a notification block, where the server encrypts it. Automations send by these blocks when a
campaign tells the server of an event (flows/server/announcements.py), or when a run fails. Prefect ships no block for
a mail server; its block *Slack Webhook* takes any address of Apprise, and those of mail are among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import httpx

from environments.plugins import Refused
from flows.server import automations
from flows.server.api import Api

if TYPE_CHECKING:
    from prefect.blocks.abstract import NotificationBlock

Occasion = Literal["certified", "champion", "stalled", "failed"]
PREFIX = "nightshift-tells-"
"""Of the names of the automations."""
NAMES = {
    "http": "nightshift-webhook",
    "https": "nightshift-webhook",
    "mailto": "nightshift-mail",
    "mailtos": "nightshift-mail",
}
"""Of the blocks, by the scheme of their address: one webhook and one mail address."""
SLUGS = {"nightshift-webhook": "custom-webhook", "nightshift-mail": "slack-webhook"}
"""Types of the blocks."""
WAIT_SECONDS = 900
"""How long a run that was resumed may wait for a worker."""
RUNS = [
    {"prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.nightshift"},
    {"prefect.resource.role": "flow", "prefect.resource.name": ["campaign", "certify", "rerun"]},
]
"""Related resources of the runs that are told about: of deployments of ours, without single trials."""


def check(address: str) -> str:
    """The name of the block for an address. Refused if nothing can be sent there, without showing the address."""
    try:
        parts = urlsplit(address)
        name, host = NAMES.get(parts.scheme), parts.hostname
    except ValueError:
        name, host = None, None
    if name is None or not host:
        raise Refused(
            "the address is neither a webhook (https://...) nor a mail address with its server: "
            "mailtos://USER:PASSWORD@smtp.example.org?from=me@example.org&to=me@example.org"
        )
    if name == "nightshift-mail":
        from apprise import Apprise

        mail = Apprise.instantiate(address)
        if not mail or not mail.targets:  # type: ignore[attr-defined]  # as every kind with recipients has it
            raise Refused(f"no mail can be sent by {host}: the address needs ?from=...&to=..., each with an @")
    return name


def block_of(address: str) -> NotificationBlock:
    """The block that sends to an address."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook

    if check(address) == "nightshift-mail":
        return SlackWebhook(url=address)  # type: ignore[arg-type]  # it is a SecretStr afterwards
    return CustomWebhookNotificationBlock(
        name="nightshift",
        url="{{address}}",
        json_data={"text": "{{subject}}\n{{body}}"},  # as Slack and Mattermost read it
        headers=None,
        cookies=None,
        secrets={"address": address},  # type: ignore[arg-type]  # it is a SecretDict afterwards
    )


def try_out(block: NotificationBlock, address: str, page: str) -> None:
    """Send a first message. Refused if it cannot be delivered."""
    from prefect.blocks.abstract import NotificationError

    host = urlsplit(address).hostname
    try:
        with block.raise_on_failure():
            block.notify(f"Campaigns are told about here from now on. Switch it off at {page}", "Nightshift")  # type: ignore[unused-coroutine]  # there is no event loop
    except httpx.HTTPStatusError as wrong:
        raise Refused(f"{host} answers {wrong.response.status_code}: see whether the address is right") from None
    except (httpx.HTTPError, NotificationError) as wrong:
        raise Refused(f"nothing can be sent to {host} ({type(wrong).__name__}): see its address and login") from None


def put(occasions: tuple[Occasion, ...], url: str, auth: tuple[str, str] | None) -> list[str]:
    """Create or update the automations of these occasions, by every block of ours; the names of those written.

    Those of other occasions are deleted.
    """
    due = [one for one in wanted(_blocks(url, auth)) if one["name"].removeprefix(PREFIX).split("-")[0] in occasions]
    with Api(url, auth) as api:
        for stored in api.ask("POST", "/automations/filter", {"automations": {"name": {"any_": _names()}}}):
            if stored["name"] not in [one["name"] for one in due]:
                api.ask("DELETE", f"/automations/{stored['id']}")
    return automations.write(due, url, auth)


def _names() -> list[str]:
    return [one["name"] for one in wanted([])]


def _blocks(url: str, auth: tuple[str, str] | None) -> list[str]:
    """The ids of our notification blocks at a server."""
    found = []
    with Api(url, auth) as api:
        for name, slug in SLUGS.items():
            asked = {"block_documents": {"name": {"any_": [name]}}, "block_types": {"slug": {"any_": [slug]}}}
            found += [str(document["id"]) for document in api.ask("POST", "/block_documents/filter", asked)]
    return sorted(found)


def wanted(blocks: list[str]) -> list[dict[str, Any]]:
    """The automations, as Prefect's API takes them."""
    told = "{{ event.payload.subject }}", "{{ event.payload.text }}"
    link = "{{ flow_run|ui_url or '' }}"  # a server knows its address only if it is told (PREFECT_UI_URL)
    # Of the event, since the run may be in another state by now.
    run = "{{ event.resource['prefect.resource.name'] }}"
    why = "{{ event.resource['prefect.state-message'] }}\n" + link
    waits = f"It was resumed {WAIT_SECONDS // 60} minutes ago, and no worker has taken it: see that one runs.\n"
    return [
        _automation("certified", "A champion is certified.", _event("nightshift.certified"), *told, blocks),
        _automation("champion", "A campaign has a new champion.", _event("nightshift.champion"), *told, blocks),
        _automation("stalled", "Nothing has finished for long.", _event("nightshift.stalled"), *told, blocks),
        _automation(
            "stalled-without-worker",
            "A run was resumed and waits for a worker.",
            {
                **_event("prefect.flow-run.*", "prefect.flow-run.*"),
                "posture": "Proactive",
                "match_related": RUNS,
                "after": ["prefect.flow-run.AwaitingRetry"],
                "within": WAIT_SECONDS,
            },
            f"{run} waits for a worker",
            waits + link,
            blocks,
        ),
        _automation(
            "failed",
            "A run of a deployment has failed.",
            {**_event("prefect.flow-run.Failed", "prefect.flow-run.*"), "match_related": RUNS},
            f"{run} failed",
            why,
            blocks,
        ),
    ]  # fmt: skip


def _event(name: str, of: str = "nightshift.campaign.*") -> dict[str, Any]:
    """The trigger by an event."""
    return {
        "type": "event", "posture": "Reactive", "match": {"prefect.resource.id": of}, "expect": [name],
        "for_each": ["prefect.resource.id"], "threshold": 1, "within": 0,
    }  # fmt: skip


def _automation(
    name: str, about: str, trigger: dict[str, Any], subject: str, body: str, blocks: list[str]
) -> dict[str, Any]:
    sent = {"type": "send-notification", "subject": subject, "body": body}
    actions = [{**sent, "block_document_id": block} for block in blocks]
    return {"name": PREFIX + name, "description": about, "trigger": trigger, "actions": actions}
