"""The options of the `nightshift` command that several verbs take, each with its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from flows.spec import parameters
from flows.spec.parameters import meaning

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
Parallel = Annotated[int | None, Parameter("--parallel", help=meaning(parameters.Parallel))]
Launch = Annotated[str | None, Parameter("--launch", help=meaning(parameters.Launch))]
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
Comment = Annotated[str, Parameter("--comment", help="Why; the proposer reads it.")]
Gain = Annotated[
    float | None, Parameter("--gain", help="The least gain worth finding, in the metric's unit.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What `run` and `resume` take of a campaign; None: not said."""

    proposer: Proposer = None
    rule: Rule = None
    cancel: Cancel = None
    replicates: Replicates = None
    looks: Looks = None
    trials: Trials = None
    hours: Hours = None
    until: Until = None
    patience: Patience = None
    parallel: Parallel = None
    launch: Launch = None
    seed: Seed = None
    tracking: Tracking = None
    fallback: Annotated[
        str | None,
        Parameter("--fallback", help="The proposer for where the one asked cannot propose: tpe, say."),
    ] = None
    approval: Annotated[
        str | None,
        Parameter("--approval", help="What waits for a person's word: none, code (new programs), or all."),
    ] = None
    approval_minutes: Annotated[
        float | None,
        Parameter("--approval-minutes", help="How long it waits for one; then it is rejected. [default: 60]"),
    ] = None
    max_usd: Annotated[
        float | None, Parameter("--max-usd", help="What language models and agents may cost in all.")
    ] = None
    max_tokens: Annotated[
        int | None, Parameter("--max-tokens", help="The same in tokens, in and out together.")
    ] = None
    learn_from: Annotated[
        str | None,
        Parameter("--learn-from", help="Earlier campaigns in the same environment to learn from, by commas."),
    ] = None
    traces: Annotated[
        bool | None,
        Parameter("--traces", help="Show in MLflow what language models were asked and answered."),
    ] = None
    isolation: Walls = None
    allow_unsandboxed: Unsandboxed = None
    set_: Settings = field(default=None)

    @property
    def parameters(self) -> dict[str, Any]:
        """What was said, by the names of the flow's parameters."""
        said = {name: value for name, value in vars(self).items() if value is not None and name != "set_"}
        if self.learn_from is not None:
            said["learn_from"] = [name for name in self.learn_from.split(",") if name]
        return said
