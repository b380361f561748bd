"""Stands in for the package wandb in an imported sweep: parameters from config.json, no account, no network.

`wandb.config` has the trial's parameters, laid over what `init(config=...)` states, as in a sweep. What is logged goes
to out/wandb.jsonl, where the judge finds it, and to out/progress.jsonl, which shows it as curves. Images, tables and
other media are dropped. Whatever else of wandb is used raises an AttributeError that names it.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

_HERE = Path(os.environ["NIGHTSHIFT_SWEEP"])
_CONFIG = json.loads((_HERE / "config.json").read_text())
_HOW = json.loads((_HERE / "sweep.json").read_text())
_OUT, _BEGAN = Path(_CONFIG["out"]), time.monotonic()
__version__ = "0.0-nightshift"


def _parameters() -> dict[str, Any]:
    """The trial's parameters as the sweep's agent hands them out: nested where the sweep nests them."""
    found: dict[str, Any] = dict(_HOW["constants"])
    for name, value in _CONFIG["params"].items():
        found[name] = json.loads(value) if name in _HOW["as_json"] else value
    nested: dict[str, Any] = {}
    for name, value in found.items():
        *above, last = _HOW["paths"].get(name, [name])
        table = nested
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    return nested


class SweepSettings(MutableMapping[str, Any]):
    """Settings, by key or attribute. Those of the sweep cannot be changed, as with an agent."""

    def __init__(self) -> None:
        self.__dict__["_own"] = _parameters()
        self.__dict__["_more"] = {}

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._more[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._more[name] = value

    def __delitem__(self, name: str) -> None:
        del self._more[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._more, **self._own})

    def __len__(self) -> int:
        return len({**self._more, **self._own})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"wandb.config has no {name!r}: it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, *args: Any, allow_val_change: bool = False, **more: Any) -> None:
        """Lay settings over; those of the sweep stay."""
        for one in (*args, more):
            self._more.update(one if isinstance(one, Mapping) else vars(one))

    def setdefaults(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            self._more.setdefault(name, value)

    def as_dict(self) -> dict[str, Any]:
        return dict(self)


class LoggedSummary(dict[str, Any]):
    """The last value of everything; a value that is set here replaces the logged one."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        _write({"summary": _numbers({name: value})})

    def update(self, *args: Any, **more: Any) -> None:
        for name, value in dict(*args, **more).items():
            self[name] = value


class LoggedRun:
    """The one run of a trial."""

    def __init__(self) -> None:
        self.config, self.summary, self.dir, self.step = config, summary, str(_OUT), 0
        self.id = self.name = self.project = self.entity = self.group = self.sweep_id = "nightshift"
        self.url, self.tags, self.disabled, self.resumed = "", (), False, False
        self._held: dict[str, float] = {}

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any) -> None:
        """Log numbers; with commit = False together with the next ones."""
        self._held.update(_numbers(data))
        self.step = self.step if step is None else int(step)
        if commit is False or not self._held:
            return
        dict.update(summary, self._held)
        _write({"step": self.step, "log": self._held})
        finite = {name: value for name, value in self._held.items() if math.isfinite(value)}
        line = {"elapsed": time.monotonic() - _BEGAN, "step": self.step, "metrics": finite}
        print(json.dumps(line), file=_progress)
        self.step, self._held = self.step + 1, {}

    def define_metric(self, name: str, *_: Any, summary: str | None = None, **__: Any) -> None:
        """Note whether the least, the largest or the last value counts; min, max and last are known."""
        if summary in ("min", "max", "last"):
            _write({"define": {name: summary}})

    def finish(self, *_: Any, **__: Any) -> None:
        """Log what is still held back."""
        if self._held:
            self.log({})

    def _nothing(self, *_: Any, **__: Any) -> None:
        """What is for the site alone."""

    def _no_page(self) -> str:
        """The address of a page, of which there is none."""
        return ""

    get_url = get_sweep_url = get_project_url = _no_page
    watch = unwatch = save = alert = log_artifact = log_code = mark_preempting = _nothing

    def __enter__(self) -> LoggedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


class DroppedMedia:
    """A picture, a table or the like: taken and dropped."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


Image = Video = Audio = Table = Histogram = Html = Object3D = Molecule = Plotly = Artifact = Settings = DroppedMedia


def init(*_: Any, config: Any = None, **__: Any) -> LoggedRun:
    """The run, with these settings below those of the sweep."""
    if config is not None:
        globals()["config"].setdefaults(config if isinstance(config, Mapping) else vars(config))
    return run


def login(*_: Any, **__: Any) -> bool:
    return True


def _numbers(data: Mapping[str, Any], above: str = "") -> dict[str, float]:
    """The numbers of what is logged, also of arrays with one element; nested names are joined by dots."""
    found: dict[str, float] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{above}{name}.")
        elif not isinstance(value, str | bytes | DroppedMedia):
            try:
                found[f"{above}{name}"] = float(value)
            except (TypeError, ValueError):
                continue  # a list, or an array of several numbers
    return found


def _write(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=_log)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"the stand-in for wandb has no {name!r}: leave it out of the program, or write it there")


_log = (_OUT / "wandb.jsonl").open("a", buffering=1)
_progress = (_OUT / "progress.jsonl").open("a", buffering=1)
config, summary = SweepSettings(), LoggedSummary()
run = LoggedRun()
log, define_metric, finish, watch, unwatch = run.log, run.define_metric, run.finish, run.watch, run.unwatch
join = finish
save, alert, log_artifact = run.save, run.alert, run.log_artifact
atexit.register(run.finish)
print('{"ready": true}', file=_progress)
