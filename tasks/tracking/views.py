"""MLflow pages behind our links, which are all made here: a campaign's trials, the campaigns of an environment.

Every link states the workflow, or the page opens in its mode for language models, without the table of runs.

A *view* sets filter, order, columns and charts. It is stored as an experiment tag, `mlflow.sharedViewState.<key>`, as
the page's own "Save as new view" does. The format is undocumented; tested with 3.17. A page that does not understand
a part of it shows its default.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks.tracking.trial_run import CampaignRecord, log10_key, metric_key, milliseconds

PREFIX = "mlflow.sharedViewState."
COLUMNS, AXES, CHARTS = 30, 10, 40
"""Limits: parameters with a column, with an axis of the parallel coordinates, and curves with a chart."""
COSTS = ("time/train", "memory/peak_gb")
UNCHARTED = ("score", "score/se", "score/run", "score/run_sd", "score/rerun", "champion/rerun", "runs")
"""Metrics without a chart over all trials, since it would repeat the objective."""
NIGHTS = ("certificate/gain", "gain", "baseline/score")
NIGHT_COSTS = ("trials", "crashes", "cancelled", "hours")
NIGHT_FACTS = ("proposer", "rule", "budget_seconds", "budget_steps", "machine", "cores")
WORKFLOW = "workflowType=machine_learning"
State = dict[str, object]


@dataclass(frozen=True)
class RunsPage:
    key: str
    """Its name in links."""
    name: str
    """Its name in the page's menu."""
    created: int
    """Unix time in milliseconds."""
    state: State

    @property
    def tag(self) -> tuple[str, str]:
        """The experiment tag that stores the view; equal views give equal text.

        The state is compressed, as by the page, since a tag is short. Filter, order and columns also serve older pages.
        """
        plain = {name: self.state[name] for name in ("searchFilter", "orderByKey", "orderByAsc", "selectedColumns")}
        packed = base64.b64encode(zlib.compress(json.dumps(self.state).encode(), 9)).decode()
        envelope = {"name": self.name, "createdAt": self.created, "updatedAt": self.created}
        return PREFIX + self.key, json.dumps({**envelope, "state": f"deflate;{packed}", **plain})

    def fragment(self, experiment: str, charts: bool = False) -> str:
        """Its address below MLflow's: the table, or the charts."""
        mode = "&compareRunsMode=CHART" if charts else ""
        return f"#/experiments/{experiment}/runs?viewStateShareKey={self.key}&{WORKFLOW}{mode}"


def experiments_page(server: str) -> str:
    """The address of a server's list of experiments."""
    return f"{server}/#/experiments?{WORKFLOW}"


def trials_view(campaign: CampaignRecord, metrics: Collection[str] = ()) -> RunsPage:
    """A campaign's trials as one flat table, best first; `metrics` are those with points."""
    parameters = {name: metric_key(name) for name in campaign.varies[:COLUMNS]}
    columns = [
        ("metrics.`score`", 75),
        ("tags.`verdict`", 80),
        ("tags.`level`", 85),
        ("tags.`champion`", 82),
        *((f"params.`{name}`", _width(name)) for name in parameters.values()),
        ("tags.`proposer`", 110),
        ("metrics.`score/se`", 76),
        ("metrics.`time/train`", 90),
    ]
    objective = metric_key(campaign.metric)
    curves = sorted(key for key in metrics if key.startswith("train/"))
    curves.sort(key=lambda key: key != f"train/{objective}")  # stable sort: the objective's own first
    beside = sorted({*metrics} - {*curves, *COSTS, *UNCHARTED, objective})
    axes = [log10_key(name) if name in campaign.logarithmic else key for name, key in parameters.items()][:AXES]
    parallel = {"type": "PARALLEL", "showAllRuns": True, "runsCountToCompare": 100, "selectedMetrics": ["score"]}
    charts = {
        "score": [_bars(objective), *([{**parallel, "selectedParams": axes}] if axes else [])],
        "against parameters": [_scatter(axis, objective) for axis in axes],
        "training": [_lines(key) for key in curves[:CHARTS]],
        "beside the score": [_bars(key) for key in beside[:CHARTS]],
        "cost": [_bars(key) for key in COSTS],
    }
    return RunsPage(
        key=_digest(campaign.campaign_id),
        name=f"{campaign.campaign}: trials",
        created=milliseconds(campaign.created),
        state={
            "searchFilter": f"tags.kind = 'trial' and tags.campaign_id = '{campaign.campaign_id}'",
            "orderByKey": "metrics.`score`",
            "orderByAsc": not campaign.higher_is_better,
            **_columns(columns),
            **_charts(charts, hidden=[key for key in UNCHARTED if key != objective]),
        },
    )


def nights_view(campaign: CampaignRecord) -> RunsPage:
    """The campaigns of one environment, the newest first."""
    metrics = ("champion/score", *NIGHTS, *NIGHT_COSTS)
    columns = [
        ("tags.`certified`", 80),
        *((f"metrics.`{name}`", _width(name)) for name in metrics),
        ("tags.`champion`", 85),
        *((f"params.`{name}`", _width(name)) for name in NIGHT_FACTS),
    ]
    charts = {
        "best so far": [_lines("champion/score"), *map(_bars, NIGHTS)],
        "cost": [_bars(key) for key in NIGHT_COSTS],
    }
    return RunsPage(
        key=_digest(f"nights of {campaign.environment}"),
        name="nights",
        created=milliseconds(campaign.created),
        state={
            "searchFilter": "tags.kind = 'campaign'",
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            **_columns(columns),
            **_charts(charts, hidden=()),
        },
    )


def _digest(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


def _width(name: str) -> int:
    """Pixels of a column whose heading is not cut."""
    return min(max(20 + 7 * len(name), 76), 240)


def _columns(columns: Sequence[tuple[str, int]]) -> State:
    names = [name for name, _ in columns]
    return {"selectedColumns": names, "columnOrder": names, "columnWidths": dict(columns)}


def _charts(sections: Mapping[str, Sequence[State]], hidden: Iterable[str]) -> State:
    """Charts by section, in this order, for every run; the page adds charts of further metrics."""
    filled = {name: charts for name, charts in sections.items() if charts}
    cards = [
        {**chart, "uuid": f"{name} {number}", "metricSectionId": name, "deleted": False, "isGenerated": False}
        for name, charts in filled.items()
        for number, chart in enumerate(charts)
    ]
    gone = [{**_bars(key), "uuid": key, "metricSectionId": "", "deleted": True, "isGenerated": True} for key in hidden]
    size = {"columns": 2, "cardHeight": 360}
    return {
        "compareRunCharts": [*cards, *gone],
        "compareRunSections": [
            {"uuid": name, "name": name, "display": True, "isReordered": True, "deleted": False, **size}
            for name in filled
        ],
        "isAccordionReordered": True,
        "runsHiddenMode": "SHOW_ALL",
    }


def _bars(key: str) -> State:
    return {"type": "BAR", "metricKey": key, "runsCountToCompare": 100}


def _scatter(parameter: str, metric: str) -> State:
    across, up = ({"key": key, "type": kind} for key, kind in ((parameter, "PARAM"), (metric, "METRIC")))
    return {"type": "SCATTER", "xaxis": across, "yaxis": up, "runsCountToCompare": 100}


def _lines(key: str) -> State:
    return {
        "type": "LINE", "metricKey": key, "selectedMetricKeys": [key], "yAxisKey": "metric", "xAxisKey": "step",
        "useGlobalXaxisKey": True, "xAxisScaleType": "linear", "scaleType": "linear", "lineSmoothness": 0,
        "useGlobalLineSmoothing": True,
    }  # fmt: skip
