"""progress.png, the report, and the artifacts of a campaign's Prefect run, kept up to date while it runs.

    with Artifacts(ledger, flow_run_id, report) as artifacts:
        artifacts.show()   # after every trial; returns at once
        artifacts.show(CampaignEnd("finished", "8 trials done"))

One thread draws and sends what the campaign's folder has by then, so the campaign never waits for it; the end waits
until the last state is sent. Faults never end a campaign: they become events in the ledger. The picture is a data URL
inside markdown, because an image artifact also prints that URL as text across the page. Each life makes its artifacts
once and then updates them in place, so there is one version of each and not one for every trial.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from flows.server.api import impatient_client
from flows.status import CampaignEnd, certificates, document
from flows.views.markdown import code, in_markdown
from flows.views.overview import outcome
from flows.views.terminal import cleaned
from tasks.describe import short_value
from tasks.numbers import number
from tasks.plots.progress import draw, png
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.tracking.values import inert

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REST = 19.0
"""Seconds of rest for every second of processor time: drawing shares the machine and the interpreter with trials."""
REST_SECONDS = 30.0
"""The least rest; whoever looks more often has `nightshift status --watch`."""
SEND_SECONDS = 10.0
"""How long the Prefect server may take to answer; the end of a campaign may wait for it."""
PICTURE = "progress.png"
"""The picture's file in the campaign's directory."""
Document = Mapping[str, Any]
Report = Callable[[Ledger, CampaignEnd | None], str]
"""Writes the report of a campaign, whose end is given once it is known, and returns it as Markdown."""


class Artifact(NamedTuple):
    about: str
    """The last part of its key in Prefect, which says what it shows."""
    kind: str
    data: str


class Artifacts:
    """Keep the picture and the artifacts of a campaign up to date, in a thread, while a `with` block runs."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None, report: Report) -> None:
        self.ledger, self._report = ledger, report
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._ending: CampaignEnd | None = None
        self._is_due = False
        self._news, self._over = threading.Event(), threading.Event()
        self._sent: dict[str, UUID] = {}
        self._failing: set[str] = set()
        self._picture, self._page = b"", ""

    def __enter__(self) -> Artifacts:
        # Prefect's settings, the server's address among them, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._keep_up,), name="views", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()

    def show(self, ending: CampaignEnd | None = None) -> None:
        """Publish what the campaign's folder has by now, soon."""
        self._ending, self._is_due = ending, True
        self._news.set()

    def _keep_up(self) -> None:
        with impatient_client(SEND_SECONDS) as client:  # the next trial is the next attempt
            is_over = False
            while not is_over:
                self._news.wait()
                is_over = self._over.is_set()  # nothing is news after that
                self._news.clear()
                if self._is_due:
                    self._is_due, used = False, time.thread_time()
                    self._publish(client)
                    self._over.wait(max(REST * (time.thread_time() - used), REST_SECONDS))

    def _publish(self, client: SyncPrefectClient) -> None:
        """Draw, write and send. A step that fails is noted once, until it works again."""
        steps: dict[str, Callable[[], None]] = {
            "picture": self._draw, "report": self._write, "artifacts": lambda: self._send(client),
        }  # fmt: skip
        for what, step in steps.items():
            try:
                step()
                self._failing.discard(what)
            except Exception as fault:  # noqa: BLE001 (no fault here ends a campaign)
                with contextlib.suppress(OSError):  # no room on the disk for that either
                    if what not in self._failing:
                        self.ledger.event("view", failed=what, error=f"{type(fault).__name__}: {fault}")
                        self._failing.add(what)

    def _draw(self) -> None:
        """Replace the campaign's progress.png."""
        of = self.ledger.environment
        picture = draw(
            self.ledger.history(), self.ledger.campaign.name, metric=of.metric, higher_is_better=of.higher_is_better,
            certificates=certificates(self.ledger)[0],
        )  # fmt: skip
        self._picture = png(picture)
        write_atomic(self.ledger.path / PICTURE, self._picture)

    def _write(self) -> None:
        self._page = self._report(self.ledger, self._ending)

    def _send(self, client: SyncPrefectClient) -> None:
        """Make this life's artifacts, or update them."""
        from prefect.client.schemas.actions import ArtifactCreate

        shown = cleaned(document(self.ledger, self._ending))
        for one in artifacts(shown, self.ledger.path, self._picture, self._page):
            # One that fails is made again at the next attempt: somebody may have deleted it in the page.
            if known := self._sent.pop(one.about, None):
                # update_artifact() would also put the whole content into an event.
                body = {"data": one.data, "description": shown["headline"]}
                client.request("PATCH", "/artifacts/{id}", json=body, path_params={"id": str(known)})
                self._sent[one.about] = known
            else:
                made = ArtifactCreate(
                    key=key(shown["campaign"], one.about), type=one.kind, data=one.data,
                    description=shown["headline"], flow_run_id=self._flow_run_id,
                )  # fmt: skip
                self._sent[one.about] = client.create_artifact(made).id


def key(campaign: str, about: str) -> str:
    """An artifact's key, in the letters that Prefect allows."""
    return f"campaign-{re.sub('[^a-z0-9]+', '-', campaign).strip('-')}-{about}"


def artifacts(document: Document, path: Path, picture: bytes = b"", report: str = "") -> list[Artifact]:
    """Every artifact of a campaign that has something to show. (path: its directory)"""
    pages = {
        "report": report,
        "progress": progress_page(document, path, picture),
        "certificate": certificate_page(document),
        "proposals": proposals_page(document),
    }
    found = [Artifact(about, "markdown", page) for about, page in pages.items() if page]
    return [*found, Artifact("trials", "table", json.dumps(table(document)))]


def progress_page(document: Document, path: Path, picture: bytes) -> str:
    """The picture, the outcome as the terminal says it, and what to open."""
    image = f"![progress](data:image/png;base64,{base64.b64encode(picture).decode()})" if picture else ""
    sentences = "\n".join(f"- {inert(line.plain.strip())}" for line in outcome(document))
    mlflow = document["urls"].get("mlflow_url")
    links = [f"- trials in MLflow: <{mlflow}>"] if mlflow else []
    changes = f"git -C {shlex.quote(str(path / 'lineage.git'))} diff baseline champion"
    more = "\n".join([*links, f"- changes: {code(changes)}", f"- files: {code(path)}"])
    return "\n\n".join(filter(None, [f"## {inert(document['headline'])}", image, sentences, "### To see more", more]))


def table(document: Document) -> list[dict[str, str]]:
    """A row per trial, the newest first: Prefect's page shows a few at a time and cannot sort."""
    every = document["trials"]
    names = dict.fromkeys(name for row in every for name in row["params"])
    varying = [name for name in names if len({repr(row["params"].get(name)) for row in every}) > 1]
    rows = [
        {
            "trial": str(row["trial"]),
            "verdict": row["verdict"],
            "level": row["level"] or "",
            "score": "" if row["score"] is None else number(row["score"]),
            "± se": "" if row["se"] is None else number(row["se"]),
            "runs": str(row["runs"]),
            "proposer": row["proposer"],
            **{f"params.{name}": short_value(row["params"].get(name)) for name in varying},
            "seconds": f"{row['seconds']:.1f}",
            "reason": code(row["why"][:200]),
        }
        for row in reversed(every)
    ]
    used = {name for row in rows for name, value in row.items() if value}  # the reason stands last in a narrow page
    return [{name: value for name, value in row.items() if name in used} for row in rows]


def certificate_page(document: Document) -> str:
    """The newest certificate with its fresh runs and its test, and those in other environments; empty without any."""
    own, elsewhere = document["certificate"], document["transfers"]
    if not own and not elsewhere:
        return ""
    ships = f"trial {document['shipped_trial']} ships" if document["shipped"] else "undecided yet"
    parts = [f"## {inert(document['headline'])}", f"What this means: {ships}.", inert(document["step_budget"])]
    parts += _certificate(own) if own else []
    for one in elsewhere:
        parts += [f"## In {code(one['where'])}", *_certificate(one)]
    parts += [code(one["words"]) for one in (document["elsewhere"] or {}).get("aggregates", ())]
    return "\n\n".join(filter(None, parts)) + "\n"


def _certificate(one: Document) -> Iterator[str]:
    yield f"**trial {one['trial']} {inert(one['words'])}**"
    yield inert(one["caution"])
    arms = one["champion"]["values"], one["baseline"]["values"]
    runs: list[tuple[str, ...]] = [("fresh run", f"trial {one['trial']}", "baseline")]
    for place in range(max(map(len, arms))):
        runs.append((str(place + 1), *(number(arm[place]) if place < len(arm) else "" for arm in arms)))
    yield in_markdown([*runs, ("mean", *(number(one[arm]["mean"]) for arm in ("champion", "baseline")))])
    guards: list[tuple[str, ...]] = [("guarded metric", "may get worse by", "got worse by", "no more than", "")]
    for g in one["guards"]:
        numbers = (number(g[name]) for name in ("margin", "loss", "bound"))
        guards.append((code(g["metric"]), *numbers, "holds" if g["holds"] else "**fell**"))
    yield in_markdown(guards) if one["guards"] else ""
    reused = ", ".join(map(number, one["reused"]))
    yield f"The baseline's runs of the search ({reused}) count as well." if reused else ""
    yield (
        "Fresh runs are trained from scratch with fresh seeds, in random order. Welch's one-sided t-test compares "
        f"their scores, of which each counts once, however many units judged it, with an error of {one['alpha']:.3g}."
    )


def proposals_page(document: Document) -> str:
    """Who proposed what, what happened to proposals, and which wait; empty where one proposer did it all."""
    incidents = [(one["trial"], one["kind"], one["words"]) for one in document["incidents"]]
    waiting = [(one["trial"], "waits for approval", one["description"]) for one in document["waiting"]]
    if not incidents and not waiting and len(document["sources"]) < 2:
        return ""
    parts = ["## Who proposed what", *(code(one["words"]) for one in document["sources"]), "## What happened"]
    rows = [tuple(map(code, row)) for row in (*waiting, *incidents)]
    return "\n\n".join([*parts, in_markdown([("trial", "what", "in words"), *rows])]) + "\n"
