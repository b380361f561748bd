"""The showcase: what people look at while a campaign runs. progress.png, and three artifacts of its Prefect run.

    with Showcase(ledger, flow_run_id) as showcase:
        showcase.show(history)   # after every trial; returns at once

One thread draws and sends, always the newest history, so that the campaign never waits for it; what was decided in
the meantime is drawn once. The end waits until the last history is out. Nothing here can end a campaign: what goes
wrong is an event in the ledger. The picture is a data URL inside markdown: an image artifact with one also prints it
in letters, across the page. Each life makes its artifacts once and then updates them in place, so a night leaves
three versions and not three for every trial.
"""

from __future__ import annotations

import base64
import contextvars
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from flows.status import urls
from tasks.ledger import Ledger
from tasks.picture import draw
from tasks.trial import History, Trial, baseline, best
from tasks.wording import headline, number, short_value

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REST = 4.0
"""Seconds of rest for every second of work: drawing shares the machine, and this interpreter, with the trials."""
REST_SECONDS = 1.0
"""The least rest: nobody looks more often."""
SEND_SECONDS = 10.0
"""How long the Prefect server may take to answer; the end of a campaign may have to wait for it."""
PICTURE = "progress.png"
"""The picture's file in the campaign's directory."""


@dataclass(frozen=True)
class Artifact:
    """One of a campaign's artifacts, as Prefect stores it."""

    about: str
    """What it shows: the last part of its key."""
    kind: str
    data: str


class Showcase:
    """Keep the picture and the artifacts of a campaign up to date, in a thread, while a `with` block runs."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None) -> None:
        self.ledger = ledger
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._newest: History = ()
        self._news, self._over = threading.Event(), threading.Event()
        self._sent: dict[str, UUID] = {}
        self._failing: set[str] = set()
        self._picture: bytes | None = None

    def __enter__(self) -> Showcase:
        # Prefect's settings, the server's address among them, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._keep_up,), name="showcase", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()

    def show(self, history: History) -> None:
        """Have a history shown, unless a longer one already is: a life that replays trials shows nothing older."""
        if len(history) > len(self._newest):
            self._newest = history
            self._news.set()

    def _keep_up(self) -> None:
        from prefect.client.orchestration import get_client
        from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

        # The next trial is the next attempt; Prefect's own patience would hold up the end of a campaign.
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True, httpx_settings={"timeout": SEND_SECONDS}) as client,
        ):
            shown: History = ()
            while not self._over.is_set() or shown is not self._newest:
                self._news.wait()
                self._news.clear()
                began, history = time.monotonic(), self._newest
                if history is not shown:
                    self._publish(history, client)
                    shown = history
                self._over.wait(max(REST * (time.monotonic() - began), REST_SECONDS))

    def _publish(self, history: History, client: SyncPrefectClient) -> None:
        """Draw a history and send it; what fails is noted once, until it works again."""
        steps: dict[str, Callable[[], None]] = {
            "picture": lambda: self._draw(history),
            "artifacts": lambda: self._send(history, client),
        }
        for what, step in steps.items():
            try:
                step()
                self._failing.discard(what)
            except Exception as fault:  # noqa: BLE001 (whatever it is, it is no reason to end a night)
                if what not in self._failing:
                    self.ledger.event("showcase", failed=what, error=f"{type(fault).__name__}: {fault}")
                self._failing.add(what)

    def _draw(self, history: History) -> None:
        """Replace the campaign's progress.png, as a whole."""
        of, path = self.ledger.environment, self.ledger.path / PICTURE
        name = self.ledger.campaign.name
        self._picture = draw(history, name, metric=of.metric, higher_is_better=of.higher_is_better)
        temporary = path.with_name(f".{PICTURE}.{os.getpid()}")
        temporary.write_bytes(self._picture)
        temporary.replace(path)

    def _send(self, history: History, client: SyncPrefectClient) -> None:
        """Make this life's artifacts, or give them new content."""
        from prefect.client.schemas.actions import ArtifactCreate

        name = self.ledger.campaign.name
        sentence = headline(history, name)
        for artifact in artifacts(self.ledger, history, self._picture):
            # What fails is made anew at the next attempt: somebody may have deleted it in the page.
            if known := self._sent.pop(artifact.about, None):
                # Not update_artifact(), which would put the whole content into an event as well.
                body = {"data": artifact.data, "description": sentence}
                client.request("PATCH", "/artifacts/{id}", json=body, path_params={"id": str(known)})
                self._sent[artifact.about] = known
            else:
                made = ArtifactCreate(
                    key=key(name, artifact.about),
                    type=artifact.kind,
                    data=artifact.data,
                    description=sentence,
                    flow_run_id=self._flow_run_id,
                )
                self._sent[artifact.about] = client.create_artifact(made).id


def key(campaign: str, about: str) -> str:
    """An artifact's key, in the letters that Prefect allows."""
    return f"campaign-{re.sub('[^a-z0-9]+', '-', campaign).strip('-')}-{about}"


def artifacts(ledger: Ledger, history: History, picture: bytes | None) -> list[Artifact]:
    """What a campaign's page shows of a history; without the picture where it could not be drawn."""
    found = [
        Artifact("trials", "table", json.dumps(table(history))),
        Artifact("champion", "markdown", champion_page(ledger, history)),
    ]
    if picture is not None:
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        page = f"![{headline(history, ledger.campaign.name)}]({url})\n\n{_code(ledger.path / PICTURE)}\n"
        found.insert(0, Artifact("progress", "markdown", page))
    return found


def table(history: History) -> list[dict[str, str]]:
    """A row per trial, the newest first: Prefect's page shows a few at a time and cannot sort."""
    every = [trial.proposal.params for trial in history]
    names = dict.fromkeys(name for params in every for name in params)
    varying = [name for name in names if len({repr(params.get(name)) for params in every}) > 1]
    return [_row(trial, varying) for trial in reversed(history)]


def _row(trial: Trial, varying: list[str]) -> dict[str, str]:
    known = {
        "trial": str(trial.number),
        "verdict": trial.verdict.kind,
        "score": _cell(trial.score.value),
        "± se": _cell(trial.score.se),
        "proposer": trial.proposal.proposer,
    }
    tried = {name: short_value(trial.proposal.params.get(name)) for name in varying}
    rest = {
        "seconds": f"{trial.runs[-1].seconds:.1f}",
        "reason": _code(trial.verdict.reason[:200]),
    }
    named = {f"{name} (parameter)" if name in known | rest else name: value for name, value in tried.items()}
    return known | named | rest


def _cell(value: float | None) -> str:
    # A dash alone would be a list's: what is in a cell is markdown.
    return "" if value is None else number(value)


def champion_page(ledger: Ledger, history: History) -> str:
    """The champion in markdown: its score against the baseline's, what it changes, what that is worth, where it is."""
    first, champion, problem = baseline(history), best(history), ledger.environment
    if champion is None:
        return f"No trial of {_code(ledger.campaign.name)} has a score yet.\n"
    rows = [("trial", "score", "± se", "episodes")]
    for name, trial in {"champion": champion, "baseline": first}.items():
        if trial is not None:
            score = trial.score
            rows.append((f"{trial.number}, the {name}", number(score.value), number(score.se), str(score.n)))
    direction = "higher" if problem.higher_is_better else "lower"
    parts = [
        f"## {headline(history, ledger.campaign.name)}",
        f"{_code(problem.metric)}, {direction} is better",
        _markdown(rows),
        *(
            _difference(champion, first)
            if first and champion is not first
            else ["Nothing better was found yet."]
        ),
        "### To see more",
        *_places(ledger, champion),
    ]
    return "\n\n".join(parts) + "\n"


def _difference(champion: Trial, first: Trial) -> list[str]:
    """What the champion changes against the baseline, and what its score is worth."""
    new, old = champion.proposal.params, first.proposal.params
    changed = [
        (_code(name), _code(short_value(old.get(name))), _code(short_value(new[name])))
        for name in new
        if old.get(name) != new[name]
    ]
    edited = ["Its program is edited: see the diff."] if champion.proposal.edit else []
    worth = (
        f"**{champion.verdict.level or 'provisional'}**: one training run each, and the best of several is "
        "flattered by luck. Episodes measure the trained policy, not how well training goes next time."
    )
    return [
        *edited,
        *([_markdown([("parameter", "baseline", "champion"), *changed])] if changed else []),
        worth,
    ]


def _places(ledger: Ledger, champion: Trial) -> list[str]:
    """Where the champion is, and how to see its changes."""
    repository = shlex.quote(str(ledger.path / "lineage.git"))
    places = [
        f"- changes: {_code(f'git -C {repository} diff baseline champion')}",
        f"- its files: {_code(ledger.place(champion.number).path)}",
        f"- every trial: {_code(ledger.path / 'results.tsv')}",
    ]
    if address := urls(ledger).get("mlflow_url"):
        places.append(f"- MLflow: <{address}>")
    return ["\n".join(places)]


def _markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A table in markdown, of a heading and rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _code(value: object) -> str:
    """Any value in markdown as it is; a bar would end a cell, and a backtick the code."""
    line = " ".join(str(value).split()).replace("`", "'").replace("|", "/")
    return f"`{line}`"
