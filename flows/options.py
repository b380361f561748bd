"""The options of the `nightshift` command that several verbs take, each with its help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from flows import parameters
from flows.parameters import meaning

Json = Annotated[
    bool, Parameter("--json", negative="", help="Print one JSON document on stdout, nothing else.")
]
Name = Annotated[str | None, Parameter("--name", help=meaning(parameters.Name))]
Trials = Annotated[int | None, Parameter("--trials", help=meaning(parameters.Trials))]
Hours = Annotated[float | None, Parameter("--hours", help=meaning(parameters.Hours))]
Until = Annotated[str | None, Parameter("--until", help=meaning(parameters.Until))]
Patience = Annotated[
    int | None, Parameter("--patience", help="Stop after so many trials in a row without a better one.")
]
Proposer = Annotated[str | None, Parameter("--proposer", help=meaning(parameters.Proposer))]
Rule = Annotated[str | None, Parameter("--rule", help=meaning(parameters.Rule))]
Cancel = Annotated[str | None, Parameter("--cancel", help=meaning(parameters.Cancel))]
Replicates = Annotated[int | None, Parameter("--replicates", help=meaning(parameters.Replicates))]
Looks = Annotated[
    str | None, Parameter("--looks", help="Certificates that the campaign may take: one, or several.")
]
Seed = Annotated[int | None, Parameter("--seed", help=meaning(parameters.Seed))]
Tracking = Annotated[str | None, Parameter("--tracking", help=meaning(parameters.Tracking))]
Server = Annotated[
    str | None, Parameter("--server", help="The Prefect API to use, such as http://127.0.0.1:4200/api.")
]
Detach = Annotated[
    bool,
    Parameter("--detach", negative="", help="Return once it has begun; it goes on without the terminal."),
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        "--set",
        negative="",
        help="key=value of environment.toml, or of the proposer, rule or cancel: proposer.key=value. May be repeated.",
    ),
]
Walls = Annotated[
    str | None, Parameter("--isolation", help="How trials are walled in: auto, bwrap, landlock or none.")
]
Unsandboxed = Annotated[
    bool | None,
    Parameter(
        "--allow-unsandboxed", negative="", help="Run edited programs even where nothing walls them in."
    ),
]
Runs = Annotated[
    int | None, Parameter("--runs", help="Fresh runs of each side: 5, or 2 where nothing is drawn at random.")
]
On = Annotated[
    str | None, Parameter("--on", help="The environment; without it, that of the campaign that is named.")
]
Gain = Annotated[
    float | None, Parameter("--gain", help="The least gain worth finding, in the metric's unit.")
]
