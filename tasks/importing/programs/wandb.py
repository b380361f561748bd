"""In place of the package wandb in an imported program: parameters in, numbers out, no account, no network.

`wandb.config` has the trial's parameters, laid over what `init(config=...)` states. Numbers that are logged become
reports; media, and whatever else is for the site, are dropped.
"""

from __future__ import annotations

import json
import os
from collections import UserDict
from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock, Mock

from autoresearch_rl.target.progress import emit_progress, emit_ready, numbers  # type: ignore[import-not-found]

_OWN = json.loads(os.environ.get("AR_PARAMS_JSON", "{}"))


class Settings(dict[str, Any]):
    """Settings, by key or attribute. Those of the sweep cannot be changed, as with W&B's agent."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _OWN.get(name, value))

    __setattr__ = __setitem__
    as_dict = dict.copy

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"wandb.config has no {name!r}: it has {', '.join(self)}")

    def update(self, settings: Any = (), *, allow_val_change: bool = False, **more: Any) -> None:  # type: ignore[override]
        for name, value in dict(settings if isinstance(settings, (Mapping, tuple)) else vars(settings), **more).items():
            self[name] = value


class Summary(UserDict[str, Any]):
    """The last value of everything; what is set here is reported too."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        emit_progress(step=run.step, step_target=0, metrics=numbers({name: value}))


class Run(MagicMock):
    """What is for the site takes every call and does nothing; it is no number."""

    def _get_child_mock(self, /, **_: Any) -> Mock:
        return Mock()


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any) -> None:
    """Report numbers; without `commit` the next ones belong to the same step."""
    values, run.step = numbers(data), run.step if step is None else int(step)
    summary.data.update(values)
    if values:
        emit_progress(step=run.step, step_target=0, metrics=values)
    run.step += commit is not False


def init(*_: Any, config: Any = (), **__: Any) -> Run:
    """The run, with these settings below those of the sweep."""
    run.config.update(config or ())
    return run


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Mock()


config, summary = Settings(_OWN), Summary()
run = Run(config=config, summary=summary, log=log, step=0, dir=os.environ.get("AR_RUN_DIR", "."), project="")
"""The one run of a trial."""
run.id = run.name = run.group = "nightshift"
run.__enter__.return_value = run
__version__ = "0"
emit_ready()
