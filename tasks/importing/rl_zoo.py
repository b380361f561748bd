"""An entry of RL Zoo's hyperparameters: `rl_zoo3.train` runs it, and the control judge plays its model."""

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environments import plugins
from environments.plugins import Refused
from tasks.importing import Imported, Term, _original, _runner, sb3
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, choice, is_number, number

ENTRY, SAMPLER, STEPS = "hyperparams.yml", "hyperparams_opt.py", "n_timesteps"
CLASSES = {name.lower(): name for name in sb3.DEFAULTS} | {"ppo_lstm": "RecurrentPPO"}
SCHEDULE = "lin_"
TRAIN = ("rl_zoo3.train", "--conf-file", ENTRY, "-f", "logs", "--eval-freq=-1")
WRAPPED = ("env_wrapper", "vec_env_wrapper", "frame_stack")


def read(place: str) -> Imported | str:
    """An entry of RL Zoo's hyperparameters, `hyperparams/ppo.yml#CartPole-v1`; the file's name is the algorithm."""
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    if isinstance(found := entry_of(place), str):
        return found
    path, name, entry = found
    algorithm = path.stem
    if algorithm not in CLASSES:
        return f"{path.name}: its name is no algorithm of {', '.join(CLASSES)}"
    if wrapped := next((key for key in WRAPPED if entry.get(key)), None):
        raise Refused(
            f"{path}: {name}: {wrapped}: the judge plays {name} without it, so the model would see something else: "
            "take it out in a copy, or register the wrapped environment in a module of your own"
        )
    schedules = [key for key, value in entry.items() if str(value).startswith(SCHEDULE)]
    plain = {key: _plain(value) for key, value in entry.items()}
    sampler = _sampler(path)
    space = _ranges(plain, CLASSES[algorithm], _suggested(sampler, algorithm) if sampler else {})
    left = [] if sampler else [Term(f"ranges of {SAMPLER}", "not found: guessed around the entry's values")]
    if rest := [key for key in entry if key not in (*space, STEPS)]:
        left.append(Term(", ".join(rest), f"as they are in {ENTRY}: edit it, or put them into [space]"))
    steps, kwargs = plain[STEPS], entry.get("env_kwargs")
    return sb3.environment(
        f"{algorithm} on {name}", f"RL Zoo's entry {name} in {path}", [ENTRY],
        {f"{REPOSITORY}/{ENTRY}": str(yaml.safe_dump({name: entry}, sort_keys=False))},
        program=path,
        call=[json.dumps({"schedules": schedules}), *TRAIN, "--algo", algorithm, "--env", name],
        space=space,
        steps=int(steps) if is_number(steps) else 0,
        problem={"id": name, **({"kwargs": kwargs} if isinstance(kwargs, dict) else {})},
        left=left,
    )  # fmt: skip


def entry_of(place: str) -> tuple[Path, str, dict[str, Any]] | str:
    """File, name and content of an entry `ppo.yml#CartPole-v1`, or why there is none. Refused: its name is unknown."""
    file, _, name = place.partition("#")
    path = Path(file)
    if isinstance(table := _original.yaml_table(path), str):
        return table
    entries = {key: one for key, one in table.content.items() if isinstance(one, dict) and STEPS in one}
    if not entries:
        return f"no entry of {path.name} has {STEPS}"
    if not name and len(entries) > 1:
        raise Refused(f"{path} has {len(entries)} entries: name one, as in {path}#{[*entries][-1]}")
    name = name or next(iter(entries))
    plugins.require(name, entries, "entry", str(path))
    return path, name, entries[name]


def _plain(value: object) -> Any:
    """A value, of a schedule the first: `lin_0.001` begins with a thousandth."""
    try:
        return float(value.removeprefix(SCHEDULE)) if isinstance(value, str) else value
    except ValueError:
        return value


def _sampler(path: Path) -> Path | None:
    """The file with the ranges: above the entry's, in a checkout of RL Zoo, in its virtual environment, or ours."""
    above, prefix = path.resolve().parent.parent, Path(_runner.python_of(path) or sys.prefix)
    installed = prefix.glob(f"lib/python3*/site-packages/rl_zoo3/{SAMPLER}")
    likely = (above / SAMPLER, above / "rl_zoo3" / SAMPLER, *installed)
    return next((each for each in likely if each.is_file()), None)


def _suggested(sampler: Path, algorithm: str) -> dict[str, tuple[str, list[Any]]]:
    """What the sampler of an algorithm suggests, by name: the kind of range, and its values or ends."""
    functions = {node.name: node for node in _original.parsed(sampler).body if isinstance(node, ast.FunctionDef)}
    function = functions.get(f"sample_{algorithm}_params")
    ranges: dict[str, tuple[str, list[Any]]] = {}
    while function and not ranges:  # one that only calls another has the ranges of that
        for call in _original.calls(function, "suggest_int", "suggest_float", "suggest_categorical"):
            if len(call.args) < 2:  # a fork's, by keywords
                continue
            name, *rest = map(_original.literal, call.args[:3])
            values = call.args[1].elts if isinstance(call.args[1], ast.List) else []
            kind = ast.unparse(call.func).rpartition("_")[2]
            ranges[str(name)] = kind, [_original.literal(value) for value in values] or rest
        inner = [ast.unparse(call.func) for call in _original.calls(function)]
        function = next((functions[name] for name in inner if name.startswith("sample_") and name in functions), None)
    return ranges


def _ranges(
    entry: Mapping[str, Any], algorithm: str, suggested: Mapping[str, tuple[str, list[Any]]]
) -> dict[str, dict[str, Any]]:
    """[space] from a sampler, widened to the entry's values or the algorithm's own; guesses without one.

    A power of two that the sampler draws becomes a choice of its values, and one minus a value that value.
    """
    values = {**sb3.DEFAULTS[algorithm], **entry}
    made: dict[str, ConvertedParameter] = {}
    for drawn, (kind, ends) in suggested.items():
        name = drawn.removeprefix("one_minus_").removesuffix("_pow")
        default = values.get(name)
        if not is_number(default) or not all(map(is_number, ends)):
            continue
        if drawn.endswith("_pow"):
            ends, kind = [2**power for power in range(ends[0], ends[1] + 1)], "categorical"
        if drawn.startswith("one_minus_"):
            ends = [round(1 - end, 12) for end in reversed(ends)]
        if kind == "categorical":
            made[name] = choice(sorted({*ends, default}), default)
        else:
            low, high = min(ends[0], default), max(ends[1], default)
            log = low > 0 and high / low > 20 and not drawn.startswith("one_minus_")
            made[name] = number(low, high, whole=kind == "int", log=log, default=default)
    return {name: one.table for name, one in made.items() if one.table} or sb3.space(algorithm, entry)
