"""The options of a campaign, each declared once: name, type, default, bounds, choices, help, and whether it is fixed.

Made from these declarations: the form of the flow in the Prefect UI (flows/spec/form.py); the checks of CampaignSpec
and Advanced, which inherit them; the command line of `run` and `resume` (flows/cli/options.py); the table in
docs/command-line.md (flows/cli/reference.py). This module imports nothing heavy, and its annotations are no strings
that would have to be evaluated, so that `--help` is quick.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

TIME = r"^$|^([01]?\d|2[0-3]):[0-5]\d$|^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
FIDELITY = r"^(none|0?\.\d+)$"
_CODE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Option:
    """What people are told about an option, and which values it takes besides its type."""

    help: str
    group: str = ""
    """Heading above it on the command line and in the form."""
    title: str = ""
    """Label in the form; by default the option's name."""
    fixed: bool = False
    """Whether it changes scores or verdicts, and so cannot change when a campaign is resumed."""
    choices: tuple[str, ...] = ()
    """Not checked by the form's model: CampaignSpec names the near miss."""
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """As arguments of pydantic's Field: ge, gt, le, lt."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """More JSON Schema for the form."""

    __is_annotated_types_grouped_metadata__ = True
    """Pydantic reads what iteration yields as if it stood in the annotation."""

    def __iter__(self) -> Iterator["FieldInfo"]:
        from pydantic import Field

        shown = {"title": self.title, "description": self.help, "enum": [*self.choices], **self.schema}
        # Prefect overwrites a field's own title and drops its description, but keeps its schema.
        yield Field(**self.bounds, json_schema_extra={key: value for key, value in shown.items() if value})


@dataclass(frozen=True)
class Declared:
    """One option as its class declares it."""

    name: str
    kind: Any
    """Its type."""
    default: Any
    """None where the declaration has none."""
    option: Option

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def shown_default(self) -> str:
        """The default for people; empty where there is none."""
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default or "")


@cache
def declared(options: type) -> tuple[Declared, ...]:
    """The options that a class declares, in order."""
    hints = get_type_hints(options, include_extras=True)
    return tuple(
        Declared(name, kind, getattr(options, name, None), option)
        for name, (kind, option) in ((name, get_args(hints[name])) for name in options.__annotations__)
    )


def plugins(folder: str) -> tuple[str, ...]:
    """The plug-ins of a folder, as environments.plugins.names has them, without importing a package."""
    files = (path.stem for path in (_CODE / folder).glob("*.py"))
    return tuple(sorted(name for name in files if not name.startswith("_")))


def environments() -> tuple[str, ...]:
    """The bundled environments and their variants, as environments.bundled has them, without reading TOML."""
    files = [*_CODE.glob("environments/*/environment.toml")]
    variants = (name for file in files for name in re.findall(r"^\[variants\.(\w+)", file.read_text(), re.MULTILINE))
    return tuple(sorted({*(file.parent.name for file in files), *variants}))


ENVIRONMENTS = environments()
SEARCH, DECISIONS, LIMITS, EXECUTION = "Search", "Decisions", "Limits", "Execution"
MODELS = "Language models and approval"
FIRST = ("environment", "proposer", "trials", "hours", "until", "parallel", "launch", "name")
"""What people change first: parameters of the form, in this order. The rest is in groups under `advanced`."""


# fmt: off
class CampaignOptions:
    """What people often change: flat parameters of the flow."""

    environment: Annotated[str, Option(
        help=f"A bundled environment ({', '.join(ENVIRONMENTS)}), or the absolute path of a folder with an "
        "environment.toml on the worker's machine.",
        fixed=True, schema={"examples": [*ENVIRONMENTS], "minLength": 1},
    )]
    name: Annotated[str | None, Option(
        help="Name of the campaign. An unfinished campaign of that name is resumed. Default: a new name.",
        schema={"pattern": r"^$|^[a-z0-9][a-z0-9._-]{0,63}$"},
    )]
    proposer: Annotated[str, Option(
        help="Proposer: decides what to try next.",
        group=SEARCH, fixed=True, choices=plugins("tasks/proposers"),
    )] = "tpe"
    rule: Annotated[str, Option(
        help="Decision rule: certify searches liberally and certifies the champion on fresh runs at the end; "
        "race reruns every candidate before it is kept; greedy believes each score.",
        group=DECISIONS, fixed=True, choices=plugins("tasks/rules"),
    )] = "certify"
    cancel: Annotated[str, Option(
        help="Early stopping of trials: against the champion's learning curve, by a forecast, or by one of "
        "Optuna's pruners; none trains every trial to its end.",
        group=DECISIONS, fixed=True, choices=(*plugins("tasks/cancellers"), "none"),
    )] = "curve"
    replicates: Annotated[int, Option(
        help="Training seeds per trial; their scores are averaged.",
        group=DECISIONS, fixed=True, bounds={"ge": 1, "le": 100},
    )] = 1
    trials: Annotated[int, Option(
        help="Stop after this many trials, without the baseline and the certificate. A trial that was stopped "
        "early counts by the part that was run.",
        group=LIMITS, bounds={"ge": 1, "le": 100_000},
    )] = 20
    hours: Annotated[float, Option(
        help="Time limit in hours for everything, the certificate included, summed over all runs of the "
        "campaign.",
        group=LIMITS, bounds={"gt": 0, "le": 24 * 365},
    )] = 8.0
    until: Annotated[str | None, Option(
        help="End by this time, the certificate included: a time of day such as 07:30, or an ISO date and "
        "time.",
        group=LIMITS, schema={"pattern": TIME},
    )] = None
    parallel: Annotated[int, Option(
        help="Trials at the same time, each in its own slot (a group of GPUs, or a share of the CPU).",
        group=EXECUTION, bounds={"ge": 1, "le": 64},
    )] = 1
    launch: Annotated[str, Option(
        help="Where trials run: here, or the name of a deployment of the flow trial, such as gpu-pair or slurm.",
        group=EXECUTION, schema={"minLength": 1},
    )] = "here"
    seed: Annotated[int | None, Option(
        help="Seed of proposals and trainings; the judge's draws are secret. Default: drawn at random.",
        group=SEARCH, fixed=True, bounds={"ge": 0, "lt": 2**31},
    )] = None
    tracking: Annotated[str | None, Option(
        help="MLflow tracking URI, or off. Default: the saved block, MLFLOW_TRACKING_URI, or a local file.",
        group=EXECUTION,
    )] = None


class AdvancedOptions:
    """What few campaigns change: the parameter `advanced` of the flow."""

    patience: Annotated[int | None, Option(
        help="Stop after this many trials without a new champion.",
        group=LIMITS, bounds={"ge": 1},
    )] = None
    crash_share: Annotated[float, Option(
        help="Stop when more than this share of the last 10 trials crashed.",
        group=LIMITS, title="Crash share", bounds={"gt": 0, "le": 1},
    )] = 0.8
    max_usd: Annotated[float | None, Option(
        help="Spending limit in USD for language models, agents and machines; a model that it does not pay for leaves "
        "the turn to the fallback, and no trial starts that could exceed it.",
        group=LIMITS, title="Most USD", bounds={"ge": 0, "le": 1e9},
    )] = None
    max_gpu_hours: Annotated[float | None, Option(
        help="Limit of GPU hours, the certificate included; no trial starts that could exceed it.",
        group=LIMITS, title="Most GPU hours", bounds={"ge": 0, "le": 1e9},
    )] = None
    usd_per_hour: Annotated[float, Option(
        help="Price of an hour of one slot, in USD, where the trials run; it counts towards the spending limit.",
        group=LIMITS, title="USD per hour", bounds={"ge": 0, "le": 1e6},
    )] = 0.0
    isolation: Annotated[Literal["auto", "bwrap", "landlock", "none"], Option(
        help="Sandbox level; auto takes the strongest that this machine offers.",
        group=EXECUTION,
    )] = "auto"
    allow_unsandboxed: Annotated[bool, Option(
        help="Run edited programs even at isolation none, where they can reach your files.",
        group=EXECUTION, title="Allow unsandboxed",
    )] = False
    looks: Annotated[Literal["one", "several"], Option(
        help="Certificates that may be attempted: one at the full error rate, or several that share it.",
        group=DECISIONS, fixed=True,
    )] = "one"
    ablation: Annotated[bool, Option(
        help="After a certificate, run the champion again and without each of its changes, to say which carry.",
        group=DECISIONS,
    )] = False
    fidelity: Annotated[str, Option(
        help="Short budgets first: the share of the budget, such as 0.3, at which new points of the search space run "
        "before the best of them run in full; or none.",
        group=SEARCH, fixed=True, schema={"examples": ["none", "0.3"], "pattern": FIDELITY},
    )] = "none"
    fallback: Annotated[str, Option(
        help="Fallback proposer: used when the main proposer fails; must not need a model.",
        group=SEARCH, fixed=True,
    )] = "tpe"
    approval: Annotated[Literal["none", "code", "all"], Option(
        help="Proposals that wait for approval: none, code (new programs), or all.",
        group=MODELS,
    )] = "none"
    approval_minutes: Annotated[float, Option(
        help="Minutes that a proposal waits for approval before it is rejected.",
        group=MODELS, title="Approval minutes", bounds={"gt": 0, "le": 60 * 24 * 30},
    )] = 60.0
    max_tokens: Annotated[int | None, Option(
        help="Limit of input and output tokens; then the fallback proposes.",
        group=MODELS, title="Most tokens", bounds={"ge": 0},
    )] = None
    learn_from: Annotated[list[str], Option(
        help="Earlier campaigns in the same environment whose trials the proposer may use.",
        group=SEARCH, title="Learn from", fixed=True,
    )] = []  # noqa: RUF012
    traces: Annotated[bool, Option(
        help="Record requests to language models and their answers in MLflow.",
        group=MODELS,
    )] = False
    rule_options: Annotated[dict[str, Any], Option(
        help="Options of the rule, as JSON.", group=DECISIONS,
        title="Rule options", fixed=True,
    )] = {}  # noqa: RUF012
    cancel_options: Annotated[dict[str, Any], Option(
        help='Options of early stopping, as JSON, such as {"fraction": 0.5} for curve.', group=DECISIONS,
        title="Cancel options", fixed=True,
    )] = {}  # noqa: RUF012
    options: Annotated[dict[str, Any], Option(
        help='Options of the proposer, as JSON, such as {"points": 5} for grid.', group=SEARCH,
        title="Proposer options", fixed=True,
    )] = {}  # noqa: RUF012
    overrides: Annotated[dict[str, Any], Option(
        help='Keys of environment.toml, as JSON, such as {"control.episodes": 20}.',
        fixed=True,
    )] = {}  # noqa: RUF012
class PersonalOptions:
    """What only a person at the command line says: no spec.toml, no form and no campaign holds it."""

    trust: Annotated[bool, Option(
        help="Agree to what the environment or the spec.toml asks for beyond its own folder. Remembered in the home.",
    )] = False
# fmt: on


FIXED = tuple(each.name for each in (*declared(CampaignOptions), *declared(AdvancedOptions)) if each.option.fixed)
"""What a resumed campaign cannot change."""
