"""A lone training script like CleanRL's: options of `tyro.cli` or argparse, scalars written for TensorBoard."""

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
from tasks.importing import Imported, Importer, Term, _original, _runner, _source, environment_toml
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import guesses, is_seed
from tasks.importing._source import Options

BUDGET_SECONDS = 1200
"""No such script states how long it may take."""
WINDOW = 100
"""Logged values whose mean is the score: one episode's return says little."""
STEPS = ("total_timesteps", "total_steps", "total_env_steps")
PROBLEMS = ("env_id", "gym_id")
SWITCHES = frozenset({
    "torch_deterministic", "cuda", "track", "capture_video", "save_model", "upload_model", "verbose", "debug",
})  # fmt: skip
"""Options that say how a run is kept and shown, not how it learns."""
OLD_GYMNASIUM = ("final_info", "final_observation")
"""Keys of `infos` that gymnasium has had until 0.29."""
REMOVED = re.compile(r"\b(?:FrameStack|GrayScaleObservation|vector\.make)\b")
"""Names of gymnasium 0.29 that gymnasium 1 has not."""
EXPLORATION = (
    "the score is the return of training, with what exploration costs. A script that saves its agent and answers as "
    "`train.py act` can have the control judge instead (docs/environments.md)"
)


@dataclass(frozen=True)
class LoneScript:
    """A script as read."""

    path: Path
    text: str
    tree: ast.Module
    options: Options

    def option(self, names: tuple[str, ...], kind: type) -> str:
        """The first of some options that it has with a value of that type; empty if it has none."""
        values = self.options.values
        return next((name for name in values if name.replace("-", "_") in names and type(values[name]) is kind), "")

    @property
    def seeds(self) -> list[str]:
        values = self.options.values
        names = (name for name in (*values, *self.options.others) if is_seed(name))
        return [name for name in names if type(values.get(name, 0)) is int]  # its default may be None

    @property
    def steps(self) -> str:
        name = self.option(STEPS, int)
        return name if name and int(self.options.values[name]) > 0 else ""

    @property
    def problem(self) -> str:
        return self.option(PROBLEMS, str)

    @property
    def old_gymnasium(self) -> bool:
        return "gymnasium" in _source.imports(self.tree) and any(key in self.text for key in OLD_GYMNASIUM)

    @cached_property
    def space(self) -> dict[str, dict[str, Any]]:
        """Ranges around its options. None around 0 and 1, which may be switches, ends or counts that cannot vary."""
        own = {*self.options.flags, *self.seeds, self.steps}
        return guesses({
            name: value for name, value in self.options.values.items()
            if name not in own and name.replace("-", "_") not in SWITCHES
            and (isinstance(value, bool) or value not in (0, 1))
        })  # fmt: skip

    @cached_property
    def metric(self) -> str:
        """The logged scalar that holds the return of training episodes."""
        names = [name for name in _source.scalars(self.tree) if not name.startswith("eval")]
        for wanted in (r"(.*/)?episodic_return", r".*episodic_return", r".*(return|reward)s?"):
            if len(found := [name for name in names if re.fullmatch(wanted, name) and re.fullmatch(METRIC, name)]) == 1:
                return found[0]
        logged = ", ".join(names) or "none"
        raise Refused(
            f"{self.path}: its score is not seen: of the scalars that it logs ({logged}) one must be the return of an "
            'episode: writer.add_scalar("charts/episodic_return", ...) in a copy of the file'
        )


class Cleanrl(Importer):
    """A script like CleanRL's ppo.py: options of tyro.cli or argparse, and add_scalar."""

    def why_not(self, place: str) -> str:
        path = Path(place)
        if path.suffix != ".py" or not path.is_file():
            return "a folder: name the script in it" if path.is_dir() else "no file .py"
        try:
            tree = _source.parsed(path)
        except Refused as unreadable:
            return str(unreadable)
        options = _source.options(tree)
        if not options.dataclass and not options.values:
            return f"{path.name} gives no dataclass of its own to tyro.cli, and argparse no option with a default"
        return "" if "add_scalar" in _original.read_text(path) else f"{path.name} never calls add_scalar"

    def convert(self, place: str) -> Imported:
        path = Path(place)
        tree = _source.parsed(path)
        script = LoneScript(path, _original.read_text(path), tree, _source.options(tree))
        if required := script.options.required:
            raise Refused(
                f"{path}: {script.options.dataclass}.{required[0]} has no default, and the baseline needs one: state "
                "it in a copy of the file"
            )
        name, metric, values = path.name, script.metric, script.options.values
        origin, modules = f"the script {path}", _source.local_modules(path)
        title = f"{path.stem} on {values[script.problem]}" if script.problem else path.stem
        how = {
            "command": ["${interpreter}", "${program}", *([] if script.options.dataclass else ["${args}"])],
            "metric": metric, "name": metric, "window": WINDOW, "says_ready": bool(script.options.dataclass),
            "own": dict.fromkeys(script.seeds, "seed") | ({script.steps: "budget_steps"} if script.steps else {}),
            "defaults": {name: values[name] for name in script.space},
            "variables": {"GYMNASIUM_029": "1"} if script.old_gymnasium else {},
        }  # fmt: skip
        keys = {
            **_runner.keys(title, metric, "maximize", name),
            "budget_seconds": BUDGET_SECONDS,
            **({"budget_steps": values[script.steps]} if script.steps else {}),
            "startup_seconds": 120.0,
            "space": script.space,
            **({"fixed": {script.problem: values[script.problem]}} if script.problem else {}),
        }
        said = f"It trains an agent; the mean of the last {WINDOW} values that it logs as `{metric}` is the score.\n"
        return Imported(
            name=path.stem,
            origin=origin,
            files={
                f"{REPOSITORY}/{name}": path,
                **{f"{REPOSITORY}/{beside}": file for beside, file in modules.items()},
                **_runner.files(how, "tyro", *_runner.TENSORBOARD),
                **_runner.instructions(title, origin, name, said),
                FILE: environment_toml(keys, origin),
            },
            carried=tuple(_carried(script, modules)),
            left=tuple(_left(script)),
            warnings=(_runner.warning(f"{REPOSITORY}/{name}", metric), EXPLORATION),
        )


def _carried(script: LoneScript, modules: dict[str, Path]) -> Iterator[Term]:
    values, name = script.options.values, script.path.name
    copied = [name, *sorted({Path(file).parts[0] for file in modules})]
    yield Term(", ".join(copied), f"{REPOSITORY}/, unchanged; {name} is editable, and nothing else is")
    yield Term(f"options: {', '.join(script.space)}", "[space]; ranges are guesses: correct them")
    if script.problem:
        yield Term(f"{script.problem} = {values[script.problem]}", f"[fixed]; or --set fixed.{script.problem}=...")
    if script.steps:
        yield Term(f"{script.steps} = {values[script.steps]}", "budget_steps, handed on (--set budget_steps=20000)")
    for seed in script.seeds:
        yield Term(seed, "the seed of the run")
    if script.old_gymnasium:
        yield Term("final_info of gymnasium 0.29", "brought back under gymnasium 1, for returns of episodes")


def _left(script: LoneScript) -> Iterator[Term]:
    values = script.options.values
    yield Term("no time limit in a script", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")
    own = {*script.space, script.problem, script.steps, *script.seeds}
    if kept := [name for name in (*values, *script.options.others) if name not in own]:
        yield Term(f"at their defaults: {', '.join(kept)}", "no range can be guessed: put them into [space] or [fixed]")
    if not script.seeds:
        yield Term("no option seed", "fresh runs differ only by chance and timing: give it seed")
    yield Term("packages of its own environment", _runner.PYTHON)
    if renamed := sorted({*REMOVED.findall(script.text)}):
        yield Term(f"of gymnasium 0.29: {', '.join(renamed)}", "not in gymnasium 1 by these names: change the script")
    if script.problem and find_spec("gymnasium"):
        import gymnasium

        if (problem := str(values[script.problem])) not in gymnasium.registry:
            yield Term(problem, "gymnasium here does not know it: install its package, and import that in the script")
