"""The configuration of epappas/autoresearch-rl: the keys that can be carried, typed; the rest is listed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from environments import plugins
from environments.plugins import Refused
from environments.score import METRIC
from tasks.importing._runner import is_seed


def _words(value: object) -> object:
    """A command that is written as one text, in words as a shell takes it apart."""
    try:
        return shlex.split(value) if isinstance(value, str) else value
    except ValueError as wrong:
        raise ValueError(f"{wrong}: close it, or write the command as a list of words") from wrong


Command = Annotated[tuple[str, ...], BeforeValidator(_words)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    def unknown(self, above: str = "") -> Iterator[str]:
        """The dotted keys that are stated and stand nowhere here."""
        yield from (f"{above}{key}" for key in self.model_extra or ())
        for key, value in self:
            if isinstance(value, _Part):
                yield from value.unknown(f"{above}{key}.")


class _Objective(_Part):
    metric: str = Field(default="val_bpb", pattern=METRIC)
    direction: Literal["min", "max"] = "min"


class _Basilica(_Part):
    gpu_count: int = Field(default=1, ge=1)


class _Target(_Part):
    type: str = "command"
    workdir: str = "."
    prepare_cmd: Command | None = None
    train_cmd: Command | None = None
    eval_cmd: Command | None = None
    timeout_s: float = Field(default=3600, gt=0)
    basilica: _Basilica = _Basilica()


class _Policy(_Part):
    type: str = "static"
    params: dict[str, list[bool | int | float | str]] = {}
    seed: int = 7
    mutable_file: str | None = None
    program_file: str | None = None
    required_calls: tuple[str, ...] = ("emit_progress",)
    llm_api_url: str | None = None
    llm_model: str | None = None
    llm_api_key_env: str | None = None


class _Cancelling(_Part):
    enabled: bool = False


class _Parallel(_Part):
    enabled: bool = False
    max_concurrency: int = Field(default=1, ge=1)


class _Controller(_Part):
    max_wall_time_s: float | None = Field(default=None, gt=0)
    max_iterations: int | None = Field(default=None, ge=1)
    no_improve_limit: int | None = Field(default=None, ge=1)
    failure_rate_limit: float | None = Field(default=None, gt=0, le=1)
    intra_iteration_cancel: _Cancelling = _Cancelling()
    parallel: _Parallel = _Parallel()


class TargetConfig(_Part):
    """A config.yaml; keys that stand nowhere here are not carried."""

    name: str = "autoresearch-run"
    program_path: str | None = None
    objective: _Objective = _Objective()
    target: _Target = _Target()
    policy: _Policy = _Policy()
    controller: _Controller = _Controller()

    def space(self) -> dict[str, dict[str, Any]]:
        """Each list of values as a choice; the first value of each makes the baseline."""
        found = {}
        for name, stated in self.policy.params.items():
            if stated and not is_seed(name):
                values = list({(isinstance(value, bool), value): value for value in stated}.values())
                found[name] = {"type": "choice", "values": values, "default": values[0]}
        return found


def checked(table: Mapping[str, Any], path: Path) -> TargetConfig:
    """The configuration. Refused with the key and the value that cannot be."""
    try:
        return TargetConfig(**table)
    except ValidationError as wrong:
        raise plugins.explain(wrong, str(path)) from wrong
    except TypeError as wrong:  # a key that is no text
        raise Refused(f"{path}: its keys must be texts: {wrong}") from wrong
