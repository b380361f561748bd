"""A lone training script like CleanRL's: options of `tyro.cli` or argparse, scalars written for TensorBoard."""

import ast
import re
from pathlib import Path

from environments.plugins import Refused
from environments.score import METRIC
from tasks.importing import Imported, Term, _original, _runner, sb3
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import guesses, is_seed

WINDOW = 100
"""Logged values whose mean is the score: one episode's return says little."""
STEPS = ("total_timesteps", "total_steps", "total_env_steps")
PROBLEMS = ("env_id", "gym_id")
SWITCHES = frozenset({
    "torch_deterministic", "cuda", "track", "capture_video", "save_model", "upload_model", "verbose", "debug",
})  # fmt: skip
"""Options that say how a run is kept and shown, not how it learns."""
RETURN = "the score is the return of training, with what exploration costs"
OLD_GYMNASIUM = "it reads `final_info`, which gymnasium has up to 0.29: without that in its `python` it logs no return"


def read(place: str) -> Imported | str:
    """A script like CleanRL's ppo.py: options of tyro.cli or argparse, and add_scalar."""
    path, tree = Path(place), _original.script(place)
    if isinstance(tree, str):
        return tree
    options, text = _original.options(tree), _original.read_text(path)
    if "add_scalar" not in text or sb3.makes_model(tree):
        return "it never calls add_scalar, or makes a model of Stable-Baselines3"
    metric = _metric(path, tree)
    stated = {name: value for name, value in options.stated.items() if name not in options.flags}
    values = {name: value for name, value in stated.items() if value is not None}
    seeds = [name for name, value in stated.items() if is_seed(name) and type(value or 0) is int]
    steps, problem = _option(values, STEPS, int), _option(values, PROBLEMS, str)
    space = guesses({  # none around 0 and 1, which may be switches, ends or counts that cannot vary
        name: value for name, value in values.items()
        if name != steps and name.replace("-", "_") not in SWITCHES
        and (isinstance(value, bool) or value not in (0, 1))
    })  # fmt: skip
    rest = ", ".join(name for name in options.stated if name not in {*space, problem, steps, *seeds})
    how = {
        "command": ["${interpreter}", "${program}", *([] if options.dataclass else ["${args}"])],
        "window": WINDOW, "says_ready": bool(options.dataclass),
        "own": {steps: "budget_steps"} if steps else {},
    }  # fmt: skip
    keys = {
        "direction": "maximize", "startup_seconds": 120.0, "budget_steps": values.get(steps), "space": space,
        "fixed": {problem: values[problem]} if problem else None,
    }  # fmt: skip
    return _runner.imported(
        f"{path.stem} on {values[problem]}" if problem else path.stem, f"the script {path}", path.name,
        f"It trains an agent; the mean of the last {WINDOW} values that it logs as `{metric}` is the score.\n",
        program=path,
        metric=metric,
        how=how,
        keys=keys,
        originals={f"{REPOSITORY}/{file}": each for file, each in _original.with_modules(path).items()},
        seeds=seeds,
        stand_ins=("tyro", _runner.TENSORBOARD),
        left=[Term(rest, "at their defaults, as no range can be guessed: put them into [space]")] if rest else [],
        warnings=[RETURN, *([OLD_GYMNASIUM] if "final_info" in text else [])],
    )  # fmt: skip


def _option(values: dict[str, _original.Literal], names: tuple[str, ...], kind: type) -> str:
    """The first of some options that has a value of that type other than 0; empty if none has."""
    fitting = (name for name, one in values.items() if name.replace("-", "_") in names and type(one) is kind and one)
    return next(fitting, "")


def _metric(path: Path, tree: ast.Module) -> str:
    """The logged scalar that holds the return of training episodes. Refused if it is not seen."""
    calls = _original.calls(tree, "add_scalar")
    logged = dict.fromkeys(_original.literal(call.args[0]) for call in calls if call.args)
    names = [name for name in logged if isinstance(name, str) and not name.startswith("eval")]
    for wanted in (r"(.*/)?episodic_return", r".*episodic_return", r".*(return|reward)s?"):
        fitting = [name for name in names if re.fullmatch(wanted, name) and re.fullmatch(METRIC, name)]
        if len(fitting) == 1:
            return fitting[0]
    raise Refused(
        f"{path}: its score is not seen: of the scalars that it logs ({', '.join(names) or 'none'}) one must be the "
        'return of an episode: writer.add_scalar("charts/episodic_return", ...) in a copy of the file'
    )
