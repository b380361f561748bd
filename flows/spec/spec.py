"""Spec: all that a campaign may be asked for, each option declared once.

The form in the Prefect UI (flows/spec/flow.py), the options of `run` and `resume` (flows/cli/options.py), spec.toml and
docs/options.md (by cyclopts, from those) are made from it.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo

import environments
from environments import FILE, Environment, plugins
from environments.plugins import Refused, names
from tasks import preparing
from tasks.stats import holdout_uses
from tasks.stats.certificate import Certificate
from tasks.stats.design import Design, alpha_of, design_of
from tasks.system.redact import URL_PASSWORD

GROUPS = SEARCH, DECISIONS, LIMITS, EXECUTION, MODELS = (
    "Search", "Decisions", "Limits", "Execution", "Language models and approval"
)  # fmt: skip
"""The headings above options, in their order."""
FORMER_GROUPS = {"search", "decisions", "limits", "execution", "models"}
"""Tables below `advanced` in schedules that were made with version 0.6."""
TABLES = ("overrides", "options", "rule_options", "cancel_options")
"""Options that are tables; the command line states their keys one by one, by --set."""
OF_PLUGINS = {"proposer": "options", "rule": "rule_options", "cancel": "cancel_options"}
"""The table of a plug-in's options, by the option that names the plug-in."""


def option(
    default: Any, help: str, group: str = "", *, fixed: bool = False, choices: Sequence[str] = (), **bounds: Any
) -> Any:
    """A field of a model: one option, with its bounds as pydantic's Field has them.

    Args:
        group: The heading above it.
        fixed: Whether it changes scores or verdicts, and so cannot change when a campaign is resumed.
        choices: Its values. The model takes others: whoever loads the plug-in of that name refuses them by name.
    """
    # In the JSON Schema, since Prefect drops the other descriptions of a field.
    facts = {"description": help, "enum": [*choices], "group": group, "fixed": fixed}
    extra: dict[str, Any] = {key: value for key, value in facts.items() if value}
    return Field(default, description=help, json_schema_extra=extra, **bounds)


def parsed(value: Any) -> Any:
    """A value, read from JSON where Prefect keeps it as text, as in a schedule; {} where the field was not touched."""
    if isinstance(value, dict) and value.get("__prefect_kind") == "json":
        value = value.get("value") or {}
        with suppress(ValueError):  # the model says what is wrong
            return json.loads(value) if isinstance(value, str) else value
    return value


def _table(value: Any) -> Any:
    value = parsed(value)
    if isinstance(value, dict) and _has_null(value):
        raise ValueError("null is no value: leave the key out")  # spec.toml could not hold it
    return value


def _has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(_has_null, inner))


def _without_password(uri: str | None) -> str | None:
    if uri and URL_PASSWORD.search(uri):
        raise Refused(  # and no ValueError, of which the value is shown
            "tracking holds a password, and would be stored and shown: set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD instead"
        )
    return uri


Table = Annotated[dict[str, Any], BeforeValidator(_table)]
Moment = Annotated[str | None, AfterValidator(lambda time: next_time(time).isoformat() if time else None)]
Uri = Annotated[str | None, AfterValidator(_without_password)]


def _for_form(schema: dict[str, Any]) -> None:
    """Number the fields, since PostgreSQL forgets their order, and leave out the type and default null. Prefect lets
    other keys pass: any option may stand here, and of a wrong one the spec tells more.
    """
    del schema["additionalProperties"]
    for position, field in enumerate(schema["properties"].values()):
        field["position"] = position
        if field.get("default", "") is None:
            del field["default"]
            field |= field.pop("anyOf")[0]


# fmt: off
class Advanced(BaseModel, frozen=True, extra="forbid", json_schema_extra=_for_form):
    """What few campaigns change: the parameter `advanced` of the flow, and the table [advanced] of a spec.toml."""

    overrides: Table = option(
        {}, 'Keys of environment.toml, as JSON, such as {"control.episodes": 20}.', fixed=True)
    options: Table = option(
        {}, 'Options of the proposer, as JSON, such as {"points": 5} for grid.', SEARCH, fixed=True)
    seed: int | None = option(
        None, "Seed of proposals and trainings; the judge's draws are secret. Default: drawn at random.", SEARCH,
        fixed=True, ge=0, lt=2**31)
    fallback: str = option("tpe", "Proposes when the proposer fails; must not need a model.", SEARCH, fixed=True)
    learn_from: list[str] = option(
        [], "Earlier campaigns in the same environment whose trials the proposer may use.", SEARCH, fixed=True)
    rule_options: Table = option({}, "Options of the rule, as JSON.", DECISIONS, fixed=True)
    cancel_options: Table = option(
        {}, 'Options of early stopping, as JSON, such as {"fraction": 0.5} for curve.', DECISIONS, fixed=True)
    ablation: bool = option(
        False, "After a certificate, run the champion again without each of its changes: which carry?", DECISIONS)
    patience: int | None = option(None, "Stop after this many trials without a new champion.", LIMITS, ge=1)
    crash_share: float = option(
        0.8, "Stop when more than this share of the last 10 trials crashed.", LIMITS, gt=0, le=1)
    max_usd: float | None = option(
        None, "Spending limit in USD for models, agents and machines; no trial starts that could exceed it. A model "
        "that it does not pay for leaves the turn to the fallback.", LIMITS, ge=0, le=1e9)
    max_gpu_hours: float | None = option(
        None, "Limit of GPU hours, the certificate included; no trial starts that could exceed it.", LIMITS,
        ge=0, le=1e9)
    usd_per_hour: float = option(
        0.0, "Price of an hour of one slot, where trials run, in USD; it counts towards the spending limit.", LIMITS,
        ge=0, le=1e6)
    isolation: Literal["auto", "bwrap", "landlock", "none"] = option(
        "auto", "Sandbox level; auto takes the strongest that this machine offers.", EXECUTION)
    allow_unsandboxed: bool = option(
        False, "Run edited programs even at isolation none, where they can reach your files.", EXECUTION)
    approval: Literal["none", "code", "all"] = option(
        "none", "Proposals that wait for approval: none, code (new programs), or all.", MODELS)
    approval_minutes: float = option(
        60.0, "Minutes that a proposal waits for approval before it is rejected.", MODELS, gt=0, le=60 * 24 * 30)
    max_tokens: int | None = option(
        None, "Limit of input and output tokens; then the fallback proposes.", MODELS, ge=0)
    traces: bool = option(False, "Record requests to language models and their answers in MLflow.", MODELS)


class Spec(BaseModel, frozen=True, extra="forbid"):
    """The options of a campaign, first what people change first. Those of `advanced` may also stand by themselves."""

    environment: str = option(
        ..., f"A bundled environment ({', '.join(environments.bundled())}), or the absolute path of a folder with an "
        "environment.toml on the worker's machine.", fixed=True, min_length=1)
    proposer: str = option("tpe", "Decides what to try next.", SEARCH, fixed=True, choices=names("tasks.proposers"))
    trials: int = option(
        20, "Stop after this many trials, without the baseline and the certificate. One that was stopped early counts "
        "by the part that was run.", LIMITS, ge=1, le=100_000)
    hours: float = option(
        8.0, "Time limit in hours, the certificate included, summed over all runs of the campaign.", LIMITS,
        gt=0, le=24 * 365)
    until: Moment = option(
        None, "End by this time, the certificate included: a time of day such as 07:30, or an ISO date and time.",
        LIMITS)
    parallel: int = option(
        1, "Trials at the same time, each in its own slot (a group of GPUs, or a share of the CPU).", EXECUTION,
        ge=1, le=64)
    launch: str = option(
        "here", "Where trials run: here, or the name of a deployment of the flow trial, such as gpu-pair.", EXECUTION,
        min_length=1)
    name: str | None = option(
        None, "Name of the campaign. An unfinished campaign of that name is resumed. Default: a new name.")
    rule: str = option(
        "certify", "What counts as better: certify runs a record again before it is kept, and certifies the champion "
        "on fresh runs at the end; greedy believes each score.", DECISIONS, fixed=True, choices=names("tasks.rules"))
    cancel: str = option(
        "curve", "Early stopping of trials: curve lets the best fifth by early progress go on, none trains every "
        "trial to its end.", DECISIONS, fixed=True,
        choices=(*names("tasks.cancellers"), "none"))
    replicates: int = option(
        1, "Training seeds per trial; their scores are averaged.", DECISIONS, fixed=True, ge=1, le=100)
    tracking: Uri = option(
        None, "MLflow tracking URI, or off. Default: MLFLOW_TRACKING_URI, or a local file.", EXECUTION)
    advanced: Advanced = option(Advanced(), "What few campaigns change.")

    @classmethod
    def of(cls, source: str = "campaign", /, **stated: Any) -> Self:
        """A spec from the parameters of the flow. Refused if some are invalid, with a line for each after `source`."""
        return plugins.validated(cls, spread(stated), source, OPTIONS)


class CertifyOptions(BaseModel):
    """What a certificate after the end of a campaign may be asked for."""

    on: list[str] = option(
        [], "Other environments to certify in, in place of the campaign's own, to see whether the champion wins there "
        "too.")
    runs: int | None = option(
        None, "Fresh runs of each arm at most. Default: as at the end of a campaign.", ge=2, le=100)
    budget: str = option(
        "", "Training budget of every run, as a multiple of the environment's, such as 4x or 0.5x, to see whether the "
        "gain holds for longer. Default: the environment's.")
# fmt: on


CERTIFY = CertifyOptions.model_fields
OPTIONS = {name: field for name, field in (Spec.model_fields | Advanced.model_fields).items() if name != "advanced"}
"""The options of a campaign as they are declared, by name."""


def declared(field: FieldInfo) -> dict[str, Any]:
    """What `option` was given besides type, default and bounds; choices as `enum`."""
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra


def flag(name: str) -> str:
    """An option on the command line."""
    return "--" + name.replace("_", "-")


FIXED = tuple(name for name, field in OPTIONS.items() if declared(field).get("fixed"))
"""What a resumed campaign cannot change."""


def spread(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the flow as the model has them: an option of `advanced` may stand by itself. What was left empty is
    left out.
    """
    advanced = parsed(stated.get("advanced") or {})
    if isinstance(advanced, BaseModel):
        advanced = advanced.model_dump()
    if not isinstance(advanced, dict):
        return {**stated, "advanced": advanced}  # the model says what is wrong
    for group in FORMER_GROUPS & advanced.keys():
        advanced = {**advanced, **advanced[group]}
        del advanced[group]
    spec: dict[str, Any] = {"advanced": {}}
    for name, value in {**stated, **advanced}.items():
        is_empty = name in OPTIONS and (value is None or (value == "" and OPTIONS[name].default is None))
        if name != "advanced" and not is_empty:
            (spec["advanced"] if name in Advanced.model_fields else spec)[name] = value
    return spec


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters over others, as `spread` has them: key by key in `advanced`, and in the tables there."""
    below, above = dict(base.get("advanced", {})), over.get("advanced", {})
    for plugin, table in OF_PLUGINS.items():
        if over.get(plugin) not in (None, base.get(plugin, OPTIONS[plugin].default)):
            below.pop(table, None)  # another plug-in would refuse them
    tables = {name: {**below.get(name, {}), **above.get(name, {})} for name in TABLES if name in below or name in above}
    return {**base, **over, "advanced": {**below, **above, **tables}}


def read_spec(path: Path) -> dict[str, Any]:
    """The parameters that a spec.toml states, as `spread` has them; a path of an environment is relative to the file.
    Raises Refused: it cannot be read, or a value is invalid; file and key are named.
    """
    stated = plugins.read_toml(path)
    if path.name == FILE:
        raise Refused(f"{path} is an environment, not a spec: name its folder, {path.absolute().parent}")
    environment = Spec.of(str(path), **stated).environment
    return spread({**stated, "environment": lasting(environment, path.parent)})


def lasting(reference: str, base: Path = Path()) -> str:
    """An environment's name, or its absolute path."""
    path = base / Path(reference).expanduser()
    return str(path.resolve()) if environments.is_path(reference, path) else reference


def next_time(text: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """The next moment after `now` at which the clock shows a time such as 07:30, or an ISO date and time as it is."""
    now = now or datetime.datetime.now().astimezone()
    try:
        if not re.fullmatch(r"\d{1,2}:\d{2}", text):
            return datetime.datetime.fromisoformat(text).astimezone()
        hour, minute = map(int, text.split(":"))
        # No time zone until the end: the clocks may change meanwhile.
        then = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
        return (then if then.astimezone() > now else then + datetime.timedelta(days=1)).astimezone()
    except (ValueError, OverflowError):  # beyond the first or the last year in this time zone
        raise ValueError("must be a time of day such as 07:30, or an ISO date and time") from None


def reserved(spec: Mapping[str, Any], environment: Environment, begun: float, made: Iterable[Certificate]) -> Design:
    """The certificate that time is reserved for, in a campaign begun at a Unix time that has made others before."""
    alpha = alpha_of(one.alpha for one in made)
    if pool := preparing.report_pool(environment):
        alpha = min(alpha, holdout_uses.pool_level(holdout_uses.uses(pool)))
    in_time = runs_in_time(spec, begun, environment.budget_seconds)
    return design_of(spec["trials"], environment.deterministic, alpha, in_time)


def end_of(spec: Mapping[str, Any]) -> float:
    """The Unix time by which a campaign is to end, as `until` says; infinity without it."""
    return datetime.datetime.fromisoformat(spec["until"]).timestamp() if spec.get("until") else math.inf


def runs_in_time(spec: Mapping[str, Any], begun: float, budget_seconds: float) -> float:
    """Training runs that the time of a campaign, begun at a Unix time, holds in all, counted by those of a trial."""
    seconds = min(spec["hours"] * 3600, max(end_of(spec) - begun, 0.0))
    return float(seconds * spec.get("parallel", 1) / spec.get("replicates", 1) / budget_seconds)
