"""progress.png, the report, and the artifacts of a campaign's Prefect run, kept up to date while it runs.

    with Artifacts(ledger, flow_run_id, report) as artifacts:
        artifacts.show(history)   # after every trial; returns at once
        artifacts.show(history, CampaignEnd("finished", "8 trials done"))

One thread draws and sends, always the newest history, so the campaign never waits for it; the end waits until the
last history is sent. What shows the whole history is written at most every REST_SECONDS, and more seldom where that
takes long, so a trial costs the same however many there were. Faults never end a campaign: they become events in the
ledger. The picture is a data URL inside markdown, because an image artifact also prints that URL as text across the
page. Each life makes its artifacts once and then updates them in place, so there is one version of each and not one
for every trial.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote
from uuid import UUID

from flows.server.api import impatient_client
from flows.status import CampaignEnd, certificates, urls
from flows.views import certificate_page
from flows.views.markdown import code, in_markdown
from tasks.certifying.certificate import Certificate, level
from tasks.describe import caution, headline, level_of, mean_of, outcome, short_value, step_budget, unproven
from tasks.numbers import number
from tasks.plots.forest import forest
from tasks.plots.forest import png as forest_png
from tasks.plots.progress import draw, png
from tasks.store import approval
from tasks.store.ledger import Ledger
from tasks.store.provenance import incidents, sources
from tasks.system.files import write_atomic
from tasks.task_messages import in_short
from tasks.trial import History, Trial, baseline, best, measured

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REST = 19.0
"""Seconds of rest for every second of processor time: drawing shares the machine and the interpreter with trials."""
REST_SECONDS = 30.0
"""The least rest; whoever looks more often has `nightshift watch`."""
SEND_SECONDS = 10.0
"""How long the Prefect server may take to answer; the end of a campaign may wait for it."""
RERUN = "rerun/rerun"
"""The deployment of prefect.yaml that runs a trial again."""
PICTURE, ELSEWHERE = "progress.png", "elsewhere.png"
"""The pictures' files in the campaign's directory: of the campaign, and of its certificates elsewhere."""


Report = Callable[[Ledger, CampaignEnd | None], str]
"""Writes the report of a campaign, whose end is given once it is known, and returns it as Markdown."""


class Artifact(NamedTuple):
    about: str
    """The last part of its key in Prefect, which says what it shows."""
    kind: str
    data: str


@dataclass(frozen=True)
class News:
    """A history and its certificates."""

    history: History = ()
    own: tuple[Certificate, ...] = ()
    """Certificates of the campaign's own environment, in their order."""
    elsewhere: tuple[Certificate, ...] = ()
    ending: CampaignEnd | None = None

    @property
    def size(self) -> tuple[int, int, bool]:
        """It only grows."""
        return len(self.history), len(self.own) + len(self.elsewhere), self.ending is not None


NOTHING = News()


class Artifacts:
    """Keep the picture and the artifacts of a campaign up to date, in a thread, while a `with` block runs."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None, report: Report) -> None:
        self.ledger = ledger
        self._report, self._page = report, ""
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._newest = NOTHING
        self._news, self._over = threading.Event(), threading.Event()
        self._sent: dict[str, UUID] = {}
        self._failing: set[str] = set()
        self._picture: bytes | None = None
        self._form: str | None = None

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

    def show(self, history: History, ending: CampaignEnd | None = None) -> None:
        """Publish a history and the certificates if there is more than before; a replay publishes nothing older."""
        news = News(history, *certificates(self.ledger), ending)
        if news.size > self._newest.size:
            self._newest = news
            self._news.set()

    def _keep_up(self) -> None:
        with impatient_client(SEND_SECONDS) as client:  # the next trial is the next attempt
            shown, rested = NOTHING, 0.0
            while not self._over.is_set() or shown is not self._newest:
                news, used = self._newest, time.thread_time()
                if news is not shown and (time.monotonic() >= rested or self._over.is_set()):
                    self._publish(news, client)
                    shown = news
                    rested = time.monotonic() + max(REST * (time.thread_time() - used), REST_SECONDS)
                if self._over.is_set():
                    continue  # nothing comes that would end the wait
                self._news.wait(None if shown is news else max(rested - time.monotonic(), 0.0))
                self._news.clear()

    def _publish(self, news: News, client: SyncPrefectClient) -> None:
        """Draw, write and send all that shows the history."""
        self._try({
            "picture": lambda: self._draw(news),
            "report": lambda: self._write_report(news),
            "artifacts": lambda: self._send(news, client),
        })  # fmt: skip

    def _try(self, steps: Mapping[str, Callable[[], None]]) -> None:
        """Take steps. One that fails is noted once, until it works again."""
        for what, step in steps.items():
            try:
                step()
                self._failing.discard(what)
            except Exception as fault:  # noqa: BLE001 (no fault here ends a campaign)
                if what not in self._failing and self._is_noted(what, fault):
                    self._failing.add(what)

    def _is_noted(self, what: str, fault: Exception) -> bool:
        """Note a failed step as an event; False where the disk has no room for that either: tried at the next fault."""
        with contextlib.suppress(OSError):
            self.ledger.event("view", failed=what, error=f"{type(fault).__name__}: {fault}")
            return True
        return False

    def _draw(self, news: News) -> None:
        """Replace the campaign's progress.png."""
        of, path = self.ledger.environment, self.ledger.path / PICTURE
        name = self.ledger.campaign.name
        picture = draw(
            news.history, name, metric=of.metric, higher_is_better=of.higher_is_better, certificates=news.own
        )
        self._picture = png(picture)
        write_atomic(path, self._picture)
        if shown := forest([*news.own, *news.elsewhere]):
            write_atomic(self.ledger.path / ELSEWHERE, forest_png(shown))

    def _write_report(self, news: News) -> None:
        self._page = self._report(self.ledger, news.ending)

    def _send(self, news: News, client: SyncPrefectClient) -> None:
        """Make this life's artifacts, or update them."""
        from prefect.client.schemas.actions import ArtifactCreate

        name = self.ledger.campaign.name
        sentence = headline(news.history, name, news.own)
        for artifact in artifacts(self.ledger, news, self._picture, self._page, self._rerun_form(client)):
            # One that fails is made again at the next attempt: somebody may have deleted it in the page.
            if known := self._sent.pop(artifact.about, None):
                # update_artifact() would also put the whole content into an event.
                body = {"data": artifact.data, "description": sentence}
                client.request("PATCH", "/artifacts/{id}", json=body, path_params={"id": str(known)})
                self._sent[artifact.about] = known
            else:
                made = ArtifactCreate(
                    key=key(name, artifact.about), type=artifact.kind, data=artifact.data,
                    description=sentence, flow_run_id=self._flow_run_id,
                )  # fmt: skip
                self._sent[artifact.about] = client.create_artifact(made).id

    def _rerun_form(self, client: SyncPrefectClient) -> str | None:
        """Address of the form of the deployment `rerun`; None where it is not deployed. Asked for once it is there."""
        from prefect.exceptions import ObjectNotFound
        from prefect.utilities.urls import url_for

        if self._form is None:
            with contextlib.suppress(ObjectNotFound):
                deployment = client.read_deployment_by_name(RERUN)
                self._form = f"{url_for('deployment', obj_id=deployment.id)}/run"
        return self._form


def key(campaign: str, about: str) -> str:
    """An artifact's key, in the letters that Prefect allows."""
    return f"campaign-{re.sub('[^a-z0-9]+', '-', campaign).strip('-')}-{about}"


def artifacts(
    ledger: Ledger, news: News, picture: bytes | None, report: str, rerun_form: str | None = None
) -> list[Artifact]:
    """Every artifact of a campaign; without the picture or the report where it could not be made."""
    history, name = news.history, ledger.campaign.name
    found = [
        Artifact("trials", "table", json.dumps(table(history, news.own, name, rerun_form))),
        Artifact("champion", "markdown", champion_page(ledger, history, news.own)),
    ]
    if news.own or news.elsewhere:
        page = certificate_page.page(name, news.own, news.elsewhere, step_budget(ledger.environment))
        found.insert(0, Artifact("certificate", "markdown", page))
    asked = tuple(approval.parked(ledger))
    who, happened = sources(history, asked), incidents(ledger, history, asked)
    if happened or len(who) > 1:
        told = [("trial", "what", "in words"), *((str(one.trial), one.kind, code(one.words)) for one in happened)]
        parts = ["## Who proposed what", *(code(one.words) for one in who), "## What happened", in_markdown(told)]
        found.append(Artifact("proposals", "markdown", "\n\n".join(parts) + "\n"))
    if picture is not None:
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        page = f"![{headline(history, name, news.own)}]({url})\n\n{code(ledger.path / PICTURE)}\n"
        found.insert(0, Artifact("progress", "markdown", page))
    if news.elsewhere and (ledger.path / ELSEWHERE).is_file():
        found.insert(0, Artifact("elsewhere", "markdown", _image("elsewhere", ledger.path / ELSEWHERE)))
    return [*([Artifact("report", "markdown", report)] if report else []), *found]


def _image(title: str, path: Path) -> str:
    """A picture inside markdown."""
    url = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return f"![{title}]({url})\n\n{code(path)}\n"


def table(
    history: History, own: Sequence[Certificate] = (), campaign: str = "", rerun_form: str | None = None
) -> list[dict[str, str]]:
    """A row per trial, the newest first: Prefect's page shows a few at a time and cannot sort.

    Where `rerun` is deployed, a link in each row opens its form, filled in for the trial.
    """
    every = [trial.proposal.params for trial in history]
    names = dict.fromkeys(name for params in every for name in params)
    varying = [name for name in names if len({repr(params.get(name)) for params in every}) > 1]
    rows = _filled([_row(trial, varying, own) for trial in reversed(history)])
    if rerun_form is None:
        return rows
    links = (_rerun_link(rerun_form, campaign, trial) for trial in reversed(history))
    # Beside the number, since a page shows the first columns only.
    return [{"trial": row["trial"], "again": link, **row} for row, link in zip(rows, links, strict=True)]


def _filled(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows without the columns that are empty in all of them: the reason stands last, and a page is narrow."""
    used = {name for row in rows for name, value in row.items() if value}
    return [{name: value for name, value in row.items() if name in used} for row in rows]


def _rerun_link(form: str, campaign: str, trial: Trial) -> str:
    """The query is the one of the page's own links to a form; an unescaped bracket would end the markdown."""
    parameters = quote(json.dumps({"name": campaign, "trial": trial.number}), safe="")
    return f"[rerun]({form}?parameters={parameters})"


def _row(trial: Trial, varying: list[str], own: Sequence[Certificate]) -> dict[str, str]:
    known = {
        "trial": str(trial.number),
        "verdict": f"{trial.verdict.kind}{_share(trial)}",
        "level": level(trial, own) or "",
        "score": _cell(trial.score.value),
        "± se": _cell(trial.score.se),
        "runs": str(len(trial.runs)),
        "proposer": trial.proposal.proposer,
    }
    tried = {name: short_value(trial.proposal.params.get(name)) for name in varying}
    rest = {
        "seconds": f"{sum(run.seconds for run in trial.runs):.1f}",
        "reason": code(in_short(trial.verdict.reason)[:200]),
    }
    named = {f"{name} (parameter)" if name in known | rest else name: value for name, value in tried.items()}
    return known | named | rest


def _share(trial: Trial) -> str:
    """Of a short trial, its share of the budget."""
    return f", {trial.proposal.share:.0%} of the budget" if trial.proposal.is_short else ""


def _cell(value: float | None) -> str:
    # A dash alone would be a list's: what is in a cell is markdown.
    return "" if value is None else number(value)


def champion_page(ledger: Ledger, history: History, own: Sequence[Certificate] = ()) -> str:
    """The champion in markdown: its score against the baseline's, its changes, how far to believe it, where it is."""
    first, champion, problem = baseline(history), best(history), ledger.environment
    if champion is None:
        return f"No trial of {code(ledger.campaign.name)} has a score yet.\n"
    rows = [("trial", "score in the search", "± se", "runs", "episodes")]
    rows += [
        (f"{trial.number}, the {name}", *_scored(history, trial))
        for name, trial in {"champion": champion, "baseline": first}.items()
        if trial is not None
    ]
    direction = "higher" if problem.higher_is_better else "lower"
    better = ["Nothing better was found yet."]
    if first and champion is not first:
        better = _difference(history, champion, first, own)
    repository = shlex.quote(str(ledger.path / "lineage.git"))
    places = [
        f"- changes: {code(f'git -C {repository} diff baseline champion')}",
        f"- its files: {code(ledger.place(champion.number).path)}",
        f"- every trial: {code(ledger.path / 'results.tsv')}",
    ]
    if address := urls(ledger).get("mlflow_url"):
        places.append(f"- MLflow: <{address}>")
    title = f"## {headline(history, ledger.campaign.name, own)}"
    parts = [title, f"{code(problem.metric)}, {direction} is better", in_markdown(rows), *better, "### To see more"]
    return "\n\n".join([*parts, "\n".join(places)]) + "\n"


def _scored(history: History, trial: Trial) -> tuple[str, str, str, str]:
    """The mean over its training runs, the standard error if there is a single run, the number of runs and of units."""
    scores = [score for score in measured(history, trial.number) if score.value is not None]
    error = _cell(scores[0].se) if len(scores) == 1 else ""
    units = sum(score.n for score in scores)
    return number(mean_of(history, trial.number)), error, str(len(scores)), str(units)


def _difference(history: History, champion: Trial, first: Trial, own: Sequence[Certificate]) -> list[str]:
    """The champion's changes against the baseline, and how far its score can be believed."""
    new, old = champion.proposal.params, first.proposal.params
    changed = [
        (code(name), code(short_value(old.get(name))), code(short_value(new[name])))
        for name in new
        if old.get(name) != new[name]
    ]
    parts = ["Its program is edited: see the diff."] if champion.proposal.edit else []
    if changed:
        parts.append(in_markdown([("parameter", "baseline", "champion"), *changed]))
    return [*parts, _worth(history, champion, own)]


def _worth(history: History, champion: Trial, own: Sequence[Certificate]) -> str:
    """How far the champion's score can be believed, and why."""
    proof = next((one for one in reversed(own) if one.champion == champion.number), None)
    word = level(champion, own) or "provisional"
    if proof and proof.passed:
        return f"**{outcome(proof)}**; {caution(proof)}."
    if proof:
        return f"**{word}**, and {outcome(proof)}."
    estimate = level_of(history)
    allowed = "" if estimate is None else f"; its estimated mean is {number(estimate)}"
    return (
        f"**{word}**: {unproven(champion, own)}. Picking the best of several scores overestimates it{allowed}. "
        "The standard error is that of this trained policy's score; another training run may score differently."
    )
