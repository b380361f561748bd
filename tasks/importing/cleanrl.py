"""A lone training script like CleanRL's: options in a dataclass read by `tyro.cli`, scalars written for TensorBoard."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments import FILE
from environments.plugins import Refused
from environments.score import METRIC
from tasks.importing import Imported, Importer, Recognised, Term, _runner, environment_toml
from tasks.importing import _repository as repository
from tasks.importing._runner import REPOSITORY, is_seed
from tasks.importing.reading.dataclass_options import ScriptOptions, scalars, script_options
from tasks.importing.reading.local_modules import LocalModules, local_modules

BUDGET_SECONDS = 3600
"""No such script states how long it may take."""
WINDOW = 100
"""Logged values whose mean is the score: one episode's return says little."""
STEPS = ("total_timesteps", "total_steps", "total_env_steps")
PROBLEMS = ("env_id", "gym_id")
SWITCHES = frozenset({
    "torch_deterministic", "cuda", "track", "capture_video", "save_model", "upload_model", "verbose", "debug",
})  # fmt: skip
"""Options that say how a run is kept and shown, not how it learns."""
STOOD_IN = frozenset({"tyro", "tensorboard", "tensorboardX"})
OLD_GYMNASIUM = ("final_info", "final_observation")
"""Keys of `infos` that gymnasium has had until 0.29."""
REMOVED = re.compile(r"\b(?:FrameStack|GrayScaleObservation|vector\.make)\b")
"""Names of gymnasium 0.29 that gymnasium 1 has not."""
EXTRAS = {"mujoco": "mujoco", "box2d": "Box2D"}
"""Modules that parts of gymnasium need, by the part's name."""


@dataclass(frozen=True)
class LoneScript:
    """A script as read."""

    path: Path
    text: str
    tree: ast.Module
    options: ScriptOptions
    modules: LocalModules

    def option(self, names: tuple[str, ...], kind: type) -> str:
        """The first of some options that it has with a value of that type; empty if it has none."""
        return next((name for name in names if isinstance(self.options.values.get(name), kind)), "")

    @property
    def seeds(self) -> list[str]:
        return [name for name, value in self.options.values.items() if type(value) is int and is_seed(name)]

    @property
    def steps(self) -> str:
        name = self.option(STEPS, int)
        return name if name and int(self.options.values[name]) > 0 else ""

    @property
    def problem(self) -> str:
        return self.option(PROBLEMS, str)

    @property
    def old_gymnasium(self) -> bool:
        return "gymnasium" in self.modules.installed and any(key in self.text for key in OLD_GYMNASIUM)

    @cached_property
    def space(self) -> dict[str, dict[str, Any]]:
        """Ranges around its options. None around 0 and 1, which may be switches, ends or counts that cannot vary."""
        own = {*SWITCHES, *self.seeds, self.steps}
        found = {
            name: value for name, value in self.options.values.items()
            if name not in own and (isinstance(value, bool) or value not in (0, 1))
        }  # fmt: skip
        ranges = {name: repository.space({name.upper(): value}) for name, value in found.items()}
        return {name: table for name, guessed in ranges.items() for table in guessed.values()}

    @cached_property
    def metric(self) -> str:
        """The logged scalar that holds the return of training episodes."""
        names = [name for name in scalars(self.tree) if not name.startswith("eval")]
        for wanted in (r"(.*/)?episodic_return", r".*episodic_return", r".*(return|reward)s?"):
            if len(found := [name for name in names if re.fullmatch(wanted, name) and re.fullmatch(METRIC, name)]) == 1:
                return found[0]
        logged = ", ".join(names) or "none"
        raise Refused(
            f"{self.path}: its score is not seen: of the scalars that it logs ({logged}) one must be the return of an "
            'episode: writer.add_scalar("charts/episodic_return", ...) in a copy of the file'
        )


class Cleanrl(Importer):
    """A script like CleanRL's ppo.py: a dataclass of options read by tyro.cli."""

    def recognise(self, place: str) -> Recognised:
        path = Path(place)
        if path.suffix != ".py" or not path.is_file():
            return Recognised(False, "a folder: name the script in it" if path.is_dir() else "no file .py")
        try:
            options = script_options(repository.parsed(path))
        except Refused as unreadable:
            return Recognised(False, str(unreadable))
        if options is None:
            return Recognised(False, f"{path.name} gives no dataclass of its own to tyro.cli")
        return Recognised(True, f"{path.name} reads its options by tyro.cli({options.name})")

    def convert(self, place: str) -> Imported:
        script = _read(Path(place))
        name, metric = script.path.name, script.metric
        problem = f" on {script.options.values[script.problem]}" if script.problem else ""
        title = f"{script.path.stem}{problem}"
        how = {
            "command": ["${interpreter}", "${here}/start.py", name, *["--final-info"] * script.old_gymnasium],
            "metric": metric, "name": metric, "window": WINDOW, "says_ready": True, "steps": script.steps,
            "seeds": script.seeds, "defaults": {name: script.options.values[name] for name in script.space},
        }  # fmt: skip
        return Imported(
            name=script.path.stem,
            origin=f"the script {script.path}, with options of tyro.cli({script.options.name})",
            files={
                f"{REPOSITORY}/{name}": script.path,
                **{f"{REPOSITORY}/{beside}": file for beside, file in script.modules.files.items()},
                **_runner.files(how),
                "start.py": _runner.program("options_script.py"),
                FILE: environment_toml(_keys(script, title), f"Imported by `nightshift env import` from {name}."),
                "program.md": PROGRAM_MD.format(title=title, name=name, metric=metric, count=WINDOW),
            },
            carried=tuple(_carried(script)),
            left=tuple(_left(script)),
            warnings=(_runner.warning(f"{REPOSITORY}/{name}", metric), EXPLORATION),
        )


def _read(path: Path) -> LoneScript:
    tree = repository.parsed(path)
    options = script_options(tree)
    assert options is not None, "it was recognised"
    if options.required:
        raise Refused(
            f"{path}: {options.name}.{options.required[0]} has no default, and the baseline needs one: state it in a "
            "copy of the file"
        )
    return LoneScript(path, repository.read_text(path), tree, options, local_modules(path, tree))


def _keys(script: LoneScript, title: str) -> dict[str, Any]:
    keys = _runner.keys(title, script.metric, "maximize", script.path.name)
    keys["program"].append("start.py")
    steps = {"budget_steps": script.options.values[script.steps]} if script.steps else {}
    fixed = {"fixed": {script.problem: script.options.values[script.problem]}} if script.problem else {}
    return {
        **keys, "budget_seconds": BUDGET_SECONDS, **steps, "startup_seconds": 120.0, "requires": _requires(script),
        "space": script.space, **fixed,
    }  # fmt: skip


def _requires(script: LoneScript) -> dict[str, str]:
    """The modules that it needs, each with what installs it."""
    commands = {name: repository.install(name) for name in sorted(script.modules.installed - STOOD_IN)}
    part = _gymnasium_part(script)
    return commands | ({EXTRAS[part]: f"pip install 'gymnasium[{part}]'"} if part in EXTRAS else {})


def _gymnasium_part(script: LoneScript) -> str | None:
    """The part of gymnasium that has its problem; empty if that is of another package, None if nobody here has it."""
    if not script.problem or find_spec("gymnasium") is None:
        return ""
    import gymnasium

    found = gymnasium.registry.get(str(script.options.values[script.problem]))
    if found is None:
        return None
    place = re.match(r"gymnasium\.envs\.(\w+)", str(found.entry_point))
    return place[1] if place else ""


def _carried(script: LoneScript) -> Iterator[Term]:
    values, name = script.options.values, script.path.name
    yield Term(name, f"{REPOSITORY}/{name}, unchanged; editable, and nothing else is")
    if beside := sorted({Path(file).parts[0] for file in script.modules.files}):
        yield Term(f"what it imports: {', '.join(beside)}", f"{REPOSITORY}/, which no edit can change")
    yield Term(f"options: {', '.join(script.space)}", "[space]; ranges are guesses: correct them")
    if script.problem:
        yield Term(f"{script.problem} = {values[script.problem]}", f"[fixed]; or --set fixed.{script.problem}=...")
    if script.steps:
        yield Term(f"{script.steps} = {values[script.steps]}", "budget_steps, handed on (--set budget_steps=20000)")
    for seed in script.seeds:
        yield Term(seed, "the seed of the run")
    yield Term(f"add_scalar({script.metric!r}, ...)", f"metric, maximize: the mean of the last {WINDOW} values")
    if script.old_gymnasium:
        yield Term("final_info of gymnasium 0.29", "start.py brings it back under gymnasium 1, for returns of episodes")


def _left(script: LoneScript) -> Iterator[Term]:
    values = script.options.values
    yield Term("no time limit in a script", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")
    own = {*script.space, script.problem, script.steps, *script.seeds}
    kept = [name for name in (*values, *script.options.others) if name not in own]
    if kept:
        yield Term(f"at their defaults: {', '.join(kept)}", "no range can be guessed: put them into [space] or [fixed]")
    if not script.seeds:
        yield Term("no option seed", "fresh runs differ only by chance and timing: give it seed")
    yield Term("event files, videos, W&B, saved models", "left out; MLflow has the curves")
    if renamed := sorted({*REMOVED.findall(script.text)}):
        yield Term(f"of gymnasium 0.29: {', '.join(renamed)}", "not in gymnasium 1 by these names: change the script")
    if script.problem and _gymnasium_part(script) is None:
        why = "gymnasium here does not know it: install its package, and import that in the script"
        yield Term(f"{values[script.problem]}", why)
    if missing := [command for module, command in _requires(script).items() if find_spec(module) is None]:
        yield Term("modules not installed here", "; ".join(missing))


EXPLORATION = (
    "the score is the return of training, with what exploration costs. A script that saves its agent and answers as "
    "`train.py act` can have the control judge instead (docs/environments.md)"
)
PROGRAM_MD = """\
# {title}

Imported from {name}, which is `repository/{name}` here. It trains an agent, and the mean of the last {count} values
that it logs as `{metric}` is the score. Options of its dataclass are the parameters; an edit may change their defaults
and everything else in that file. It has to keep the call of `tyro.cli`, and those of `add_scalar` as they are.
"""
