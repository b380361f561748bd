"""An entry of RL Zoo's hyperparameters: `rl_zoo3.train` runs it, and the control judge plays its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from environments import plugins
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _sb3
from tasks.importing._original import REPOSITORY, Table
from tasks.importing._parameters import is_number

ENTRY, STEPS = "hyperparams.yml", "n_timesteps"
CLASSES = {name.lower(): name for name in _sb3.DEFAULTS} | {"ppo_lstm": "RecurrentPPO"}
WRAPPED = ("env_wrapper", "vec_env_wrapper", "frame_stack")


class RlZoo(Importer):
    """An entry of RL Zoo's hyperparameters, `hyperparams/ppo.yml#CartPole-v1`; the file's name is the algorithm."""

    def read(self, place: str) -> Imported | str:
        import yaml  # type: ignore[import-untyped]  # comes with Prefect

        path, name = _parted(place)
        table, algorithm = _original.yaml_table(path), path.stem
        if isinstance(table, str):
            return table
        if algorithm not in CLASSES:
            return f"{path.name}: its name is no algorithm of {', '.join(CLASSES)}"
        if not (entries := _entries(table)):
            return f"no entry of {path.name} has {STEPS}"
        if not name and len(entries) > 1:
            raise Refused(f"{path} has {len(entries)} entries: name one, as in {path}#{[*entries][-1]}")
        name = name or next(iter(entries))
        plugins.require(name, entries, "entry", str(path))
        entry = entries[name]
        if wrapped := next((key for key in WRAPPED if entry.get(key)), None):
            raise Refused(
                f"{path}: {name}: {wrapped}: the judge plays {name} without it, so the model would see something else: "
                "take it out in a copy, or register the wrapped environment in a module of your own"
            )
        parts = {key: _parts(value) for key, value in entry.items()}
        plain = {key: value for key, (_, value) in parts.items()}
        space = _sb3.space(CLASSES[algorithm], plain)
        left = []
        if rest := [key for key in entry if key not in (*space, STEPS)]:
            left.append(Term(", ".join(rest), f"as they are in {ENTRY}: edit it, or put them into [space]"))
        steps, kwargs = plain[STEPS], entry.get("env_kwargs")
        return _sb3.environment(
            f"{algorithm} on {name}", f"RL Zoo's entry {name} in {path}", [ENTRY],
            {f"{REPOSITORY}/{ENTRY}": str(yaml.safe_dump({name: entry}, sort_keys=False))},
            program=path,
            call={
                "program": "rl_zoo3.train",
                "arguments": ["--algo", algorithm, "--env", name, "--conf-file", ENTRY, "-f", "logs", "--eval-freq=-1"],
                "hyperparameters": {key: parts.get(key, ("", None))[0] for key in space},
            },
            space=space,
            steps=int(steps) if is_number(steps) else 0,
            problem={"id": name, **({"kwargs": kwargs} if isinstance(kwargs, dict) else {})},
            left=left,
        )  # fmt: skip


def _parted(place: str) -> tuple[Path, str]:
    """A file, and the entry in it that is named, if any."""
    file, _, name = place.partition("#")
    return (Path(place), "") if Path(place).exists() else (Path(file), name)


def _entries(table: Table) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in table.content.items() if isinstance(one, dict) and STEPS in one}


def _parts(value: object) -> tuple[str, Any]:
    """What precedes a value, `lin_` or nothing, and the value: `lin_0.001` begins with a thousandth."""
    prefix = "lin_" if isinstance(value, str) and value.startswith("lin_") else ""
    try:
        return prefix, float(value.removeprefix(prefix)) if isinstance(value, str) else value
    except ValueError:
        return "", value
