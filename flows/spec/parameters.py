"""What a campaign is asked for: every parameter's title, meaning and bounds, stated here and nowhere else.

The flow's signature uses these types, so they are the form in the Prefect UI, and its API refuses a value that they
do not allow before there is a run; CampaignSpec uses them, so the same holds for the command line and for files.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

import environments
from environments import plugins
from tasks.store.ledger import NAME

TIME = r"^([01]?\d|2[0-3]):[0-5]\d$|^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"


def _form(title: str, description: str, **schema: Any) -> JsonDict:
    """What a form shows of a parameter. Prefect overwrites a field's own title, and drops its description."""
    return {"title": title, "description": description, **schema}


Environment = Annotated[
    str,
    Field(
        json_schema_extra=_form(
            "Environment",
            f"A bundled environment ({', '.join(environments.bundled())}), or the absolute path of a folder with an "
            "environment.toml on the worker's machine.",
            examples=[*environments.bundled()],
            minLength=1,
        )
    ),
]
Name = Annotated[
    str | None,
    Field(
        json_schema_extra=_form(
            "Name",
            "Identifies the campaign; an unfinished one of that name goes on. Left out, a new name is made.",
            pattern=f"^{NAME.pattern}$",
        )
    ),
]
Proposer = Annotated[
    str,
    Field(
        json_schema_extra=_form(
            "Proposer",
            "Decides what to try next: a file of tasks/proposers.",
            enum=[*plugins.names("tasks.proposers")],
        )
    ),
]
Rule = Annotated[
    str,
    Field(
        json_schema_extra=_form(
            "Rule",
            "Decides which trials are kept: certify searches liberally and proves the champion on fresh runs at the "
            "end; race runs every would-be keep again; greedy believes each score.",
            enum=[*plugins.names("tasks.rules")],
        )
    ),
]
Cancel = Annotated[
    str,
    Field(
        json_schema_extra=_form(
            "Cancel",
            "Ends trials early that will not win: by the champion's curve, by a forecast, or by one of Optuna's "
            "pruners; none runs all to their end.",
            enum=[*plugins.names("tasks.cancellers"), "none"],
        )
    ),
]
Replicates = Annotated[
    int,
    Field(
        ge=1,
        le=100,
        json_schema_extra=_form("Replicates", "Training seeds of each trial, whose scores are averaged."),
    ),
]
Trials = Annotated[
    int,
    Field(
        ge=1,
        le=100_000,
        json_schema_extra=_form(
            "Trials",
            "Stop after so many trials, the baseline and the certificate not counted; a cancelled one counts by the "
            "part of it that was run.",
        ),
    ),
]
Hours = Annotated[
    float,
    Field(
        gt=0,
        le=24 * 365,
        json_schema_extra=_form(
            "Hours",
            "Stop so that everything, the certificate too, ends within so many hours, summed over all lives of the "
            "campaign.",
        ),
    ),
]
Until = Annotated[
    str | None,
    Field(
        json_schema_extra=_form(
            "Until",
            "Stop so that everything ends by then: a time of day such as 07:30, or an ISO date and time.",
            pattern=TIME,
        )
    ),
]
Parallel = Annotated[
    int,
    Field(
        ge=1,
        le=64,
        json_schema_extra=_form(
            "Parallel",
            "Trials at once, each in a slot of its own: a group of GPUs, or a part of the CPU.",
        ),
    ),
]
Launch = Annotated[
    str,
    Field(
        json_schema_extra=_form(
            "Launch",
            "Where trials run: here, or a deployment of the flow `trial`, in whose work pool they do: gpu-pair, say.",
            minLength=1,
        )
    ),
]
Seed = Annotated[
    int | None,
    Field(
        ge=0,
        lt=2**31,
        json_schema_extra=_form("Seed", "Every draw comes from it; drawn at random when left out."),
    ),
]
Tracking = Annotated[
    str | None,
    Field(
        json_schema_extra=_form(
            "Tracking",
            "Where MLflow is (a URI), or off. Left out: the saved block, MLFLOW_TRACKING_URI, or a local file.",
        )
    ),
]


def meaning(parameter: Any) -> str:
    """What one of these types says a parameter means."""
    (form,) = [one.json_schema_extra for one in get_args(parameter) if isinstance(one, FieldInfo)]
    assert isinstance(form, dict), f"{parameter} has no form"
    return str(form["description"])
