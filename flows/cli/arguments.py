"""What several verbs take on the command line: parameters, diffs, `--set key=value`, and a spec.toml under options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from environments.plugins import Refused, explain
from environments.space import Value
from flows.spec import permissions
from flows.spec.spec import OF_PLUGINS, Spec, laid_over, lasting, read_spec, spread
from tasks.editing.edits import EditFailed, changed, diff_of
from tasks.store import lineage
from tasks.trial import Params

PARAMS = TypeAdapter(dict[str, Value])


def parse_params(text: str | bytes, what: str) -> Params:
    """Parameters as JSON; `what` names them in a refusal."""
    try:
        return PARAMS.validate_json(text)
    except ValidationError as wrong:
        raise explain(wrong, what) from wrong


def read_diff(path: Path, what: str) -> str:
    """A unified diff; `what` names it in a refusal."""
    text = path.read_text(errors="replace")
    if not text.strip():
        raise Refused(f"{what} {path} is empty: give a unified diff, as `diff -u a/train.py b/train.py` writes it")
    return text


def placed(diff: str, what: str, program: Mapping[str, str], editable: Sequence[str]) -> str:
    """A diff with the line numbers that its context has in the program. Raises Refused: a hunk fits nowhere, or in
    several places, or it changes another file; `what` names it.
    """
    if lineage.PARAMS not in program and not (diff := lineage.without_parameters(diff)).strip():
        only = f"it changes nothing but {lineage.PARAMS}, which the lineage alone has"
        raise Refused(f"{what}: {only}: give parameters as such")
    try:
        return diff_of(program, {**program, **changed(diff, program, editable)})
    except EditFailed as wrong:
        raise Refused(f"{what}: {str(wrong).replace(' of the answer', '')}") from wrong  # a diff is one whole answer


def stated(environment: str | None, *, settings: list[str], trust: bool = False, **given: Any) -> dict[str, Any]:
    """The parameters of the flow that the command line gives, with those of a spec.toml; those left out are absent.
    Raises Refused: an option or a value of the file is invalid, or nobody agrees to what the file asks for.
    """
    tables: dict[str, dict[str, Any]] = {}
    for key, value in parse_settings(settings).items():
        plugin, _, name = key.partition(".")
        table = OF_PLUGINS.get(plugin) if name else None
        tables.setdefault(table or "overrides", {})[name if table else key] = value
    over = spread({**given, **tables})
    Spec.of("command line", environment="any", **over)
    if environment is None:
        return over
    if not environment.endswith(".toml"):
        return {"environment": lasting(environment), **over}
    base = read_spec(Path(environment))
    permissions.require_spec(base, Path(environment), trust)
    return laid_over(base, over)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """The values of --set by their keys. Values that are not valid TOML are texts."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise Refused(f"--set {setting!r}: give key=value, such as budget_seconds=30")
        try:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            if text in ("True", "False", "None"):
                raise Refused(f"--set {setting}: TOML has true and false, and no None") from None
            values[key] = text
    return values


def overrides_only(settings: list[str]) -> dict[str, Any]:
    """The keys of environment.toml, for a verb without a campaign. Refused if an option of a plug-in is among them."""
    values = parse_settings(settings)
    for key in values:
        if "." in key and key.partition(".")[0] in OF_PLUGINS:
            raise Refused(f"--set {key}: it belongs to a campaign, and there is none here: leave it out")
    return values
