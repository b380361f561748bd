"""Environments: a problem, and everything that stays fixed while it is worked on. One folder each.

A folder, in this package or anywhere else, holds `environment.toml` (read here; docs/environments.md has every key),
`program.md` (for a person or a model that proposes), and the files of its program and its judge. A table
[variants.NAME] with dotted keys is the same folder under another name, with these keys laid over it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from environments import earlier_trials, plugins
from environments.judges import Judge, Misbehaved
from environments.limits import Limits
from environments.plugins import Refused
from environments.recipe import Recipe
from environments.remote import SECTIONS, RemoteSettings
from environments.score import METRIC, Guard
from environments.space import Constant, Space, Value

FILE = "environment.toml"
VARIANTS = "variants"
NOT_FROZEN = frozenset({"__pycache__", ".git", ".venv"})
"""Folders inside an environment that are not part of its content, and are not copied when it is frozen."""
LONGEST = 14 * 86_400.0
"""Longest training of one run, in seconds."""


class Environment(BaseModel, frozen=True, extra="forbid"):
    """A problem: metric, direction, budget, search space, baseline program and configuration, frozen judge."""

    name: str
    folder: Path
    prepared: Path | None = None
    """Folder of its recipe's output; None without a recipe (`tasks.preparing`)."""
    title: str = ""
    metric: str = Field(pattern=METRIC)
    direction: Literal["maximize", "minimize"]
    range: tuple[float, float] | None = None
    """Smallest and largest possible value of one unit; a score outside is rejected."""
    trainer: str
    judge: Judge
    budget_seconds: float = Field(gt=0, le=LONGEST)
    """Training time of one run, from ready to the end, on the engine's clock."""
    budget_steps: int = Field(default=0, ge=0)
    """Steps after which the program stops by itself; 0 = none. Whichever budget is reached first binds."""
    startup_seconds: float = Field(default=15.0, gt=0, le=3_600)
    """After so many seconds the budget starts, even if the program is not ready."""
    grace_seconds: float = Field(default=5.0, gt=0, le=600)
    """Between SIGTERM at the end of the budget and the kill: time to save a checkpoint."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = Field(default=1, ge=1, le=64)
    """GPUs per run, where it runs on GPUs."""
    cores: int = Field(default=1, ge=0, le=1024)
    """Processor cores per run, on the CPU its own; 0: runs share all, for programs that mostly wait."""
    requires: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")], Annotated[str, Field(pattern=r"^[ -~]{1,200}$")]
    ] = Field(default_factory=dict)
    """Modules that must be installed, each with the command that installs it."""
    program: tuple[str, ...] = ()
    """Files or folders of the environment's own program; empty = the trainer's file, as train.py."""
    python: str = ""
    """Virtual environment or interpreter that `python` stands for in command lines; empty: Nightshift's own."""
    train_cmd: str = "python train.py"
    """The program's command. `{seed}`, `{out}`, `{budget_seconds}` ... and any parameter's name are filled in."""
    check_cmd: str = ""
    """Command that checks whether an edited program can start; empty: some seconds of training."""
    editable: tuple[str, ...] = ("train.py",)
    """Files of the program that a code edit may change."""
    required_calls: tuple[str, ...] = ()
    """Calls that an edited program must still make, such as `optimizer.step`."""
    readable: tuple[str, ...] = ()
    """Paths that the program may read besides its workspace; relative ones are in the environment's folder."""
    network: bool = False
    """Whether the program may use the network; its trials are then marked."""
    deterministic: bool = False
    """Whether training uses no randomness, so that runs under different seeds may coincide."""
    allow_untrained: bool = False
    """Whether a program that is good without training may be shipped."""
    cancel: dict[str, dict[str, Value]] = Field(default_factory=dict)
    """Options of early stopping that fit this problem, by canceller."""
    prepare: Recipe | None = None
    """Program that makes data once, before the first run."""
    limits: Limits = Limits()
    remote: RemoteSettings | None = None
    """Where it is trained, the section of a remote trainer; None: on this machine."""
    space: Space = Field(default_factory=dict)
    fixed: dict[str, Constant] = Field(default_factory=dict)
    """Parameters that every trial gets unchanged."""
    guards: dict[Annotated[str, Field(pattern=METRIC)], Guard] = Field(default_factory=dict)
    """Metrics measured besides the objective that may not get much worse, by name (a key of `Score.also`)."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Environment:
        if both := sorted(set(self.space) & set(self.fixed)):
            raise ValueError(f"{both[0]!r} stands in [space] and in [fixed]: keep one")
        return self

    @property
    def higher_is_better(self) -> bool:
        return self.direction == "maximize"

    @property
    def scores_are_reported(self) -> bool:
        """Whether its scores come from where it was trained, and nothing here measures them."""
        return plugins.name_of(self.judge) == "reported"

    @property
    def rented_gpus(self) -> int:
        """GPUs that one trial has on another machine."""
        stated = self.remote.gpu_count if self.remote else 0
        return stated or (self.gpus if self.device == "cuda" else 0)

    @property
    def defaults(self) -> dict[str, Value]:
        """The baseline's parameters: every default of the space, and the fixed ones."""
        return {name: parameter.default for name, parameter in self.space.items()} | self.fixed

    @property
    def lacks(self) -> str:
        """What it or its judge requires and is not installed, with the command that installs it; empty if all is."""
        judged = () if self.python else self.judge.imports
        needed = {module: f"pip install {module}" for module in judged} | self.requires
        missing = [(module, remedy) for module, remedy in needed.items() if find_spec(module) is None]
        return "; ".join(f"{self.name} needs the module {module!r}: run `{remedy}`" for module, remedy in missing)

    def at(self, share: float) -> Environment:
        """The same environment with a share of the training budget, above 0; more than 1 is a longer one."""
        least = self.limits.least_seconds
        return self.model_copy(update={
            "budget_seconds": round(self.budget_seconds * share, 6),
            "budget_steps": max(round(self.budget_steps * share), 1) if self.budget_steps else 0,
            "limits": self.limits.model_copy(update={"least_seconds": None if least is None else least * share}),
        })  # fmt: skip

    def complete(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """The baseline's parameters with `params` replacing some, each checked against the space. Raises Refused."""
        complete = self.defaults
        for name, value in params.items():
            if name in self.fixed and value != self.fixed[name]:
                raise Refused(f"parameter {name!r} is fixed at {self.fixed[name]!r} in {self.name}, got {value!r}")
            plugins.require(name, complete, "parameter")
            if name in self.space:
                try:
                    complete[name] = self.space[name].check(value)
                except ValueError as wrong:
                    raise Refused(f"parameter {name!r} {wrong}") from wrong
        return complete

    def check(self) -> None:
        """Check everything that can be checked before a run, the judge's problem too. Raises Refused."""
        self.check_files()
        if self.lacks:
            raise Refused(self.lacks)
        source, judge = self.folder / FILE, plugins.name_of(self.judge)
        if not self.judge.shows_prepared and self.prepare is None:
            raise Refused(f"{source}: [{judge}] asks questions that a recipe makes, and there is none: add [prepare]")
        try:
            self.judge.check(self.folder)
        except (ValueError, Misbehaved) as wrong:
            raise Refused(f"{source}: [{judge}] {wrong}") from wrong
        measured = self.judge.measures()
        for name in self.guards if measured is not None else ():
            plugins.require(name, measured or (), "metric of the judge", f"{source}: guards")

    def check_files(self) -> None:
        """Check the files and paths that it names; no code of the environment runs. Raises Refused."""
        earlier_trials.read(self.folder)
        source, here = self.folder / FILE, Path(os.path.realpath(self.folder))
        inside = [("program", name) for name in self.program]
        if self.prepare:
            inside += [("prepare", name) for name in (self.prepare.program, *self.prepare.files)]
            list(self.prepare.texts(self.folder))
        # An absolute path need only be where trials run (`tasks.sandbox.isolation.check_given`); a relative one that
        # leads out would be looked for beside the frozen copy, where other files are.
        listed = [("readable", path) for path in self.readable]
        listed += [(f"[{plugins.name_of(self.judge)}] readable", path) for path in self.judge.reads]
        inside += [(key, path) for key, path in listed if not Path(path).is_absolute()]
        for key, path in inside:
            target = Path(os.path.realpath(self.folder / path))  # unlike resolve(), it takes links in a circle
            if here not in target.parents or ".." in Path(path).parts or not target.exists():
                raise Refused(f"{source}: {key}: {path!r} is not in the environment's folder")
        for path in self.readable:
            target = Path(os.path.realpath(self.folder / path))
            if here.is_relative_to(target):
                raise Refused(f"{source}: readable: {path!r} holds the whole environment, with its judge")
            for word in self.judge.command().split():
                asked = (self.folder / word).resolve()
                shown = asked.is_file() and asked.is_relative_to(target) and word not in self.program
                if shown and Path(word).name != "python":  # which is no secret: vLLM's is that of prime-rl
                    raise Refused(f"{source}: readable: {path!r} shows {word!r} of the judge to the program")


def is_bundled(folder: Path) -> bool:
    """Whether the folder is that of an environment that comes with Nightshift."""
    return folder.resolve() in {path.resolve() for path in bundled().values()}


@cache
def bundled() -> Mapping[str, Path]:
    """The folders of the environments that come with Nightshift, by name; a variant's is that of its base."""
    folders = [path.parent for path in Path(__file__).parent.glob(f"*/{FILE}")]
    variants = ((tomllib.loads((folder / FILE).read_text()).get(VARIANTS, ()), folder) for folder in folders)
    return dict(sorted((name, folder) for names, folder in variants for name in (folder.name, *names)))


def is_path(reference: str, path: Path) -> bool:
    """Whether `path` is meant, and no bundled environment: by its slash or dot, or since an environment is there."""
    if "/" in reference or reference.startswith("."):
        return True
    return reference not in bundled() and (path / FILE).is_file()


def find(reference: str) -> Path:
    """The folder of an environment, by the name of a bundled one (or of a variant of it) or by path, or Refused."""
    path = Path(reference).expanduser()
    if not is_path(reference, path):
        plugins.require(reference, bundled(), what="environment")
        return bundled()[reference]
    if not (path / FILE).is_file():
        raise Refused(f"{path} has no {FILE}, so it is no environment: `nightshift env new` writes one")
    return path.resolve()


def named(reference: str, overrides: Mapping[str, Value] | None = None) -> Environment:
    """The environment that a name or a path refers to, read as `load` does. Refused when there is none."""
    return load(find(reference), overrides, reference if reference in bundled() else "")


def load(folder: Path, overrides: Mapping[str, Value] | None = None, name: str = "") -> Environment:
    """Read a folder's environment.toml, with dotted `overrides` such as {"control.episodes": 20}.

    The environment's name is `name`, or else the folder's. A variant's name applies that variant's keys before the
    overrides. Refused with one line per error: file, key, value and remedy.
    """
    source, table = str(folder / FILE), table_of(folder, overrides, name)
    for key, value in table.items():
        try:
            json.dumps(value)
        except TypeError as wrong:  # programs and records have JSON, which has no dates
            raise Refused(f"{source}: {key}: {wrong}: write it as text, in quotes") from wrong
    kind, trainer = str(table.get("judge")), str(table.get("trainer"))
    cls = plugins.load("environments.judges", kind, Judge, f"{source}: judge")  # type: ignore[type-abstract]
    own: dict[str, object] = {"name": name or folder.name, "folder": folder, "prepared": None, "remote": None}
    own["judge"] = plugins.validated(cls, table.pop(kind, {}), f"{source}: [{kind}]")
    if trainer in SECTIONS:
        own["remote"] = plugins.validated(SECTIONS[trainer], table.pop(trainer, {}), f"{source}: [{trainer}]")
    if isinstance(guards := table.get("guards"), dict):  # one that states no direction has the objective's
        way = {"direction": table.get("direction")}
        own["guards"] = {name: way | guard if isinstance(guard, dict) else guard for name, guard in guards.items()}
    return plugins.validated(Environment, table | own, source)


def table_of(
    folder: Path, overrides: Mapping[str, Value] | None = None, name: str = "",
    read: Callable[[Path], dict[str, Any]] = plugins.read_toml,
) -> dict[str, Any]:  # fmt: skip
    """The content of a folder's environment.toml, with the keys of the variant of that name and `overrides` laid over.

    Refused if it is no TOML, or a key has no place in it.
    """
    table = read(folder / FILE)
    variants = table.pop(VARIANTS, {})
    if not isinstance(variants, dict) or not isinstance(own := variants.get(name, {}), dict):
        raise Refused(f"{folder / FILE}: {VARIANTS}: must be tables of dotted keys, by name, got {variants!r}")
    recipe = table.get("prepare")
    settings = recipe.get("settings") if isinstance(recipe, dict) else None
    for key, value in {**own, **(overrides or {})}.items():
        if isinstance(settings, dict) and key == "prepare.settings":
            raise Refused(f"{folder / FILE}: {key}: give its keys one by one, as prepare.settings.KEY=VALUE")
        setting = key.removeprefix("prepare.settings.")
        if isinstance(settings, dict) and setting != key:  # or a recipe may overlook it
            plugins.require(setting.partition(".")[0], [*settings], "setting", f"{folder / FILE}: prepare.settings")
            kind, usual = map(_kind, (value, settings.get(setting)))
            if usual not in (None, kind) and (kind, usual) != (int, float):
                raise Refused(f"{folder / FILE}: {key} must be like {settings[setting]!r}, got {value!r}")
        lay_over(table, key, value)
    return table


def _kind(value: object) -> type | None:
    """The type of a value of TOML; None if it is none."""
    return next((kind for kind in (bool, int, float, str, list, dict) if isinstance(value, kind)), None)


def lay_over(table: dict[str, Any], key: str, value: object) -> None:
    """Set a dotted key in nested tables; missing tables are created."""
    *path, last = key.split(".")
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise Refused(f"--set {key}: {part!r} is a value, not a table")
    table[last] = value


def files(folder: Path) -> Iterator[Path]:
    """Every regular file of an environment's folder, in a stable order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not NOT_FROZEN & set(path.relative_to(folder).parts):
            yield path
