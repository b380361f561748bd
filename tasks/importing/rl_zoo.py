"""An entry of RL Zoo's hyperparameters: `rl_zoo3.train` runs it, and the control judge plays its model."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments import plugins
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _runner, _sb3, _source
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, choice, guesses, is_number, number, sections
from tasks.importing._sb3 import DEFAULTS

ENTRY, SAMPLER = "hyperparams.yml", "hyperparams_opt.py"
CLASSES = {name.lower(): name for name in DEFAULTS} | {"ppo_lstm": "RecurrentPPO"}
STEPS = "n_timesteps"
WRAPPED = ("env_wrapper", "vec_env_wrapper", "frame_stack")


class RlZoo(Importer):
    """An entry of RL Zoo's hyperparameters, `hyperparams/ppo.yml#CartPole-v1`; the file's name is the algorithm."""

    def why_not(self, place: str) -> str:
        path, _ = _parted(place)
        entries = _original.yaml_table(path)
        if isinstance(entries, str):
            return entries
        if path.stem not in CLASSES:
            return f"{path.name}: its name is no algorithm of {', '.join(CLASSES)}"
        known = any(isinstance(entry, dict) and STEPS in entry for entry in entries.content.values())
        return "" if known else f"no entry of {path.name} has {STEPS}"

    def convert(self, place: str) -> Imported:
        path, name = _parted(place)
        entries = _original.yaml_table(path)
        assert not isinstance(entries, str), "it was recognised"
        names = [one for one, entry in entries.content.items() if isinstance(entry, dict) and STEPS in entry]
        name = name or (names[0] if len(names) == 1 else "")
        if not name:
            raise Refused(f"{path} has {len(names)} entries: name one, as in {path}#{names[-1]}")
        plugins.require(name, names, "entry", str(path))
        entry, algorithm = entries.content[name], path.stem
        if strange := next((key for key in WRAPPED if entry.get(key)), None):
            raise Refused(
                f"{path}: {name}: {strange}: the judge plays {name} without it, so the model would see something else: "
                "take it out in a copy, or register the wrapped environment in a module of your own"
            )
        python = _runner.python_of(path)
        source = next((each for each in _samplers(path, python) if each.is_file()), None)
        tables, left = space(entry, CLASSES[algorithm], _suggested(source, algorithm) if source else {})
        steps, kwargs = _parts(entry[STEPS])[1], entry.get("env_kwargs")
        arguments = ["--algo", algorithm, "--env", name, "--conf-file", ENTRY, "-f", "logs", "--eval-freq", "-1"]
        call = {
            "program": "rl_zoo3.train", "arguments": arguments,
            "hyperparameters": {name: _parts(entry.get(name))[0] for name in tables},
        }  # fmt: skip
        return _sb3.environment(
            f"{algorithm} on {name}",
            f"RL Zoo's entry {name} in {path}",
            [ENTRY],
            {f"{REPOSITORY}/{ENTRY}": _text({name: entry})},
            call=call,
            space=tables,
            steps=int(steps) if is_number(steps) else 0,
            problem={"id": name, **({"kwargs": kwargs} if isinstance(kwargs, dict) else {})},
            python=python,
            left=left,
        )


def _parted(place: str) -> tuple[Path, str]:
    """A file, and the entry in it that is named, if any."""
    where, _, name = place.partition("#")
    return (Path(place), "") if Path(place).exists() else (Path(where), name)


def _text(entries: Mapping[str, Any]) -> str:
    import yaml  # type: ignore[import-untyped]  # comes with Prefect

    return str(yaml.safe_dump(entries, sort_keys=False))


def _parts(value: object) -> tuple[str, Any]:
    """What precedes a value, `lin_` or nothing, and the value: `lin_0.001` begins with a thousandth."""
    if not isinstance(value, str):
        return "", value
    prefix = "lin_" if value.startswith("lin_") else ""
    try:
        return prefix, float(value.removeprefix(prefix))
    except ValueError:
        return "", value


def _samplers(path: Path, python: str) -> list[Path]:
    """Where the sampler may be: above the file, in a checkout of RL Zoo, installed there, installed here."""
    above = path.resolve().parent.parent
    installed = [*Path(python).glob(f"lib/python3*/site-packages/rl_zoo3/{SAMPLER}")] if python else []
    spec = find_spec("rl_zoo3")
    own = [Path(spec.origin).with_name(SAMPLER)] if spec and spec.origin else []
    return [above / SAMPLER, above / "rl_zoo3" / SAMPLER, *installed, *own]


def _suggested(source: Path, algorithm: str) -> dict[str, tuple[str, list[Any]]]:
    """What the sampler of an algorithm suggests, by name: the kind of range, and its values or ends."""
    functions = {node.name: node for node in _source.parsed(source).body if isinstance(node, ast.FunctionDef)}
    function = functions.get(f"sample_{algorithm}_params")
    found: dict[str, tuple[str, list[Any]]] = {}
    while function and not found:
        for call in _source.calls(function, "suggest_int", "suggest_float", "suggest_categorical"):
            name, *rest = map(_source.literal, call.args[:1] + call.args[1:3])
            values = call.args[1].elts if isinstance(call.args[1], ast.List) else []
            kind = ast.unparse(call.func).rpartition("_")[2]
            found[str(name)] = kind, [_source.literal(value) for value in values] or rest
        inner = [ast.unparse(call.func) for call in _source.calls(function)]
        function = next((functions[name] for name in inner if name.startswith("sample_") and name in functions), None)
    return found


def space(
    entry: Mapping[str, Any], algorithm: str, suggested: Mapping[str, tuple[str, list[Any]]]
) -> tuple[dict[str, dict[str, Any]], list[Term]]:
    """[space] from a sampler, around the entry's values or the algorithm's own; and what is not searched.

    A power of two that the sampler draws becomes a choice of its values, and one minus a value that value.
    """
    numbers = {name: _parts(value)[1] for name, value in {**DEFAULTS[algorithm], **entry}.items()}
    plain = {name: value for name, value in numbers.items() if is_number(value) and name != STEPS}
    made: dict[str, ConvertedParameter] = {}
    for theirs, (kind, values) in suggested.items():
        name = theirs.removeprefix("one_minus_").removesuffix("_pow")
        default = plain.get(name)
        if default is None or not all(map(is_number, values)):
            continue
        if theirs.endswith("_pow"):
            values, kind = [2**power for power in range(values[0], values[1] + 1)], "categorical"
        if theirs.startswith("one_minus_"):
            values = [round(1 - value, 12) for value in reversed(values)]
        if kind == "categorical":
            made[name] = choice(sorted({*values, default}), default)
        else:
            low, high = min(values[0], default), max(values[1], default)
            log = low > 0 and high / low > 20 and not theirs.startswith("one_minus_")
            made[name] = number(low, high, whole=kind == "int", log=log, default=default)
    tables = sections(made)["space"] or guesses(
        {name: value for name, value in plain.items() if value not in (0, 1) and name in DEFAULTS[algorithm]}
    )
    rest = [name for name in entry if name not in (*tables, STEPS)]
    why = f"as they are in {ENTRY}: no number, or nothing gives a range: edit it, or put them into [space]"
    return tables, [Term(", ".join(rest), why)] if rest else []
