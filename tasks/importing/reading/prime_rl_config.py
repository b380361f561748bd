"""A configuration of prime-rl, laid over the bundled environment that has the same questions.

A file in today's keys is carried as it is, but for what the engine and the judge set. Of old versions the few keys are
known that the train.toml of vivekvkashyap/autoresearch-rl has (February 2026). Of all else prime-rl's own
`rl --dry-run` says whether it fits.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments import FILE, plugins, toml_file
from environments.plugins import Refused
from environments.space import Value
from tasks.importing import Term
from tasks.store.workspace import TRAINERS

RENAMED = {
    "orchestrator.rollouts_per_example": "orchestrator.group_size",
    "orchestrator.sampling.max_tokens": "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.temperature": "orchestrator.train.sampling.temperature",
}
"""Old keys, and today's of the same meaning."""
GONE = {
    "orchestrator.sampling": "gone: orchestrator.train.sampling has temperature and max_completion_tokens",
    "orchestrator.advantage": "gone: orchestrator.algo is of another kind",
    "orchestrator.buffer": "gone: orchestrator.train.source.curriculum counts otherwise",
    "trainer.loss.token_mask_low": "gone: the numbers of trainer.loss.dppo_mask_low mean something else",
    "trainer.loss.token_mask_high": "gone: the numbers of trainer.loss.dppo_mask_high mean something else",
}
"""Old keys without one of today's, and why."""
OTHER_NOW = {
    "trainer.loss.kl_tau": "the baseline's: it weighed a log ratio in the advantage, and weighs its square in the loss"
}
"""Keys that are still there and mean something else since the old ones were gone."""
_SET_HERE = {
    "the trial's own folder": "output_dir run clean resume ckpt",
    "MLflow has every trial": "wandb monitors",
    "gpus = 2: the slot says which": "inference_gpu_ids trainer_gpu_ids deployment slurm",
    "the environment says it": "max_steps model trainer.model.name orchestrator.model.name orchestrator.renderer",
    "by files, from which the model is made that is judged": "weight_broadcast",
    "the judge evaluates after training, and a curve is asked every 4 steps": "orchestrator.eval",
}
SET_HERE = {key: why for why, keys in _SET_HERE.items() for key in keys.split()}
"""Keys that the engine or the judge sets, and in place of what."""
SETTINGS = {
    "max_steps": "budget_steps",
    "model.name": "prepare.settings.model",
    "orchestrator.eval.num_examples": "text.questions",
    "orchestrator.eval.sampling.max_tokens": "text.max_tokens",
    "orchestrator.eval.sampling.max_completion_tokens": "text.max_tokens",
}
"""Keys that one of environment.toml takes the place of."""
MOST_QUESTIONS = 500
"""That a bundled environment's judge has to search with."""
OLD_SOURCES, SOURCE = ("orchestrator.env", "orchestrator.eval.env"), "orchestrator.train.source"
SOURCES = (*OLD_SOURCES, SOURCE, "orchestrator.eval.source")
TASKSETS = {
    "gsm8k": "gsm8k", "hendrycks_math": "math", "math": "math", "reverse_text": "reverse_text", "i3_math": "math",
}  # fmt: skip
"""prime-rl's packages of questions that a bundled environment has a taskset for."""
BUNDLED = {
    frozenset({"gsm8k"}): "gsm8k", frozenset({"gsm8k", "math"}): "gsm8k_math",
    frozenset({"reverse_text"}): "reverse_text",
}  # fmt: skip
COPIED = ("prepare.py", "taskset.py")


@dataclass
class PrimeRlConfig:
    """What a configuration says."""

    base: str
    """The bundled environment with the same questions."""
    is_old: bool
    tuned: dict[str, Any] = field(default_factory=dict)
    """Values by today's dotted keys."""
    settings: dict[str, Value] = field(default_factory=dict)
    """Keys of environment.toml, dotted."""
    carried: list[Term] = field(default_factory=list)
    left: list[Term] = field(default_factory=list)


def keys() -> Any:
    """The trainer's part that knows the names of parameters, by the name that it has in a workspace."""
    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:
        sys.path.append(folder)
    import prime_rl_parts.keys

    return prime_rl_parts.keys


def parameter_name(key: str) -> str:
    """The parameter of one of prime-rl's keys: its short name, or the key itself."""
    return next((name for name, dotted in keys().DOTTED.items() if dotted == key), key)


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables. An empty table is a value, and so is one whose keys are no words."""
    for name, value in table.items():
        if isinstance(value, dict) and value and all(re.fullmatch(r"\w+", inner) for inner in value):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def fits(path: Path) -> str:
    """Why a file is no configuration of prime-rl's; empty if it is one."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as wrong:
        return f"{path.name} is not TOML: {wrong}"[:200]
    is_one = "orchestrator" in table and bool({"trainer", "model"} & table.keys())
    return "" if is_one else f"{path.name} has no [orchestrator] beside [trainer] or [model]"


def understood(table: Mapping[str, Any], where: str) -> PrimeRlConfig:
    """A configuration in today's keys, and what could not be carried.

    Raises:
        Refused: its questions are not those of a bundled environment.
    """
    stated = dict(flat(table))
    base, questions = _bundled(stated, where)
    is_old = any(key in RENAMED or key in OLD_SOURCES or _above(key, GONE) for key in stated)
    config = PrimeRlConfig(base, is_old, carried=questions)
    for key, value in stated.items():
        if key not in SOURCES:
            _take(config, key, value)
    _take_source(config, stated.get(SOURCE))
    return config


def today(key: str, is_old: bool) -> tuple[str, str]:
    """Today's name of a key; or none, and why it cannot be carried."""
    now = RENAMED.get(key, key)
    why = "" if key in RENAMED else _above(key, GONE) or _above(key, SET_HERE) or (is_old and OTHER_NOW.get(key)) or ""
    return ("", why) if why else (now, "")


def _above(key: str, table: Mapping[str, str]) -> str:
    return next((why for above, why in table.items() if f"{key}.".startswith(f"{above}.")), "")


def _take(config: PrimeRlConfig, key: str, value: Any) -> None:
    """Take a key over, or say why not."""
    theirs = f"{key} = {value!r}"
    theirs = theirs if len(theirs) <= 60 else f"{theirs[:57]}..."
    now, why = today(key, config.is_old)
    setting = SETTINGS.get(key)
    if setting and (isinstance(value, str) if key == "model.name" else _fits(setting, value)):
        config.settings[setting] = value
        config.carried.append(Term(theirs, f"{setting} = {value!r}"))
    elif why:
        config.left.append(Term(theirs, why))
    else:
        config.tuned[now] = value
        config.carried.append(Term(theirs, "the same key" if now == key else f"{now} = {value!r}"))


def _fits(setting: str, value: object) -> bool:
    return type(value) is int and 0 < value <= (MOST_QUESTIONS if setting == "text.questions" else value)


def _take_source(config: PrimeRlConfig, sources: object) -> None:
    """Take over what the one source says beside its questions, such as its curriculum."""
    own = [{key: value for key, value in one.items() if key not in ("name", "env")} for one in _tables(sources)]
    if not any(own):
        return
    if len(own) > 1:
        config.left.append(Term(SOURCE, "what several sources say; here is one, with the questions of all"))
        return
    config.tuned[SOURCE] = own
    config.carried.append(Term(f"{SOURCE}: {', '.join(own[0])}", "the same keys of the one source"))


def _bundled(stated: Mapping[str, Any], where: str) -> tuple[str, list[Term]]:
    """The bundled environment that asks the same questions, and what becomes of each."""
    names = list(dict.fromkeys(name for key in SOURCES for one in _tables(stated.get(key)) for name in _ids(one)))
    if not names:
        raise Refused(f"{where}: no [[orchestrator.train.source]] and no [[orchestrator.env]] says what is trained on")
    ours = [TASKSETS.get(_plain(name)) for name in names]
    if None in ours:
        raise Refused(
            f"{where}: {names[ours.index(None)]!r}: no environment here has its questions (known: "
            f"{', '.join(sorted(TASKSETS))}): write a taskset and a recipe, as environments/reverse_text has them, and "
            "put this file's keys into its train.toml"
        )
    base = BUNDLED.get(frozenset(one for one in ours if one))
    if base is None:
        raise Refused(f"{where}: no environment here has {', '.join(names)} together: leave one out in a copy")
    return base, [Term(f"questions of {name}", f"those of {base}: its recipe, taskset and judge") for name in names]


def _tables(value: object) -> list[dict[str, Any]]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _ids(source: Mapping[str, Any]) -> Iterator[str]:
    """The package of a source's questions, as an old or a new prime-rl states it."""
    for stated in (source.get("id"), keys().at(source, "env.taskset.id")):
        if isinstance(stated, str):
            yield stated


def _plain(name: str) -> str:
    """`primeintellect/reverse-text@0.1` -> `reverse_text`."""
    return name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()


def files_of(config: PrimeRlConfig, space: Mapping[str, Any] | None, title: str) -> dict[str, str | Path]:
    """The environment's files: those of the bundled one with the configuration laid over.

    Args:
        space: The whole [space], where it is not the bundled one's.
    """
    folder = environments.find(config.base)
    document, table = tomlkit.parse((folder / FILE).read_text("utf-8")), toml_file.read(folder / FILE)
    document.pop(environments.VARIANTS, None)
    settings = table.get(environments.VARIANTS, {}).get(config.base, {}) | config.settings | {"title": title}
    bundled = table["prepare"]["settings"]["model"]
    if settings.get("prepare.settings.model", bundled) != bundled:
        settings["prepare.settings.model_revision"] = "main"
        config.left.append(Term("revision of the model", "main, which may change: pin prepare.settings.model_revision"))
    for key, value in settings.items():
        *above, last = key.split(".")
        place = document
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    if space is not None:
        document["space"] = {name: dict(one) for name, one in space.items()}
    rest = {key: value for key, value in config.tuned.items() if not _as_parameter(document, config, key, value)}
    below = tomllib.loads((folder / "train.toml").read_text("utf-8")) if config.is_old else {}
    train = tomlkit.dumps(keys().laid_over(below, keys().as_tables(rest)))
    return {FILE: tomlkit.dumps(document), "train.toml": train} | {name: folder / name for name in COPIED}


def _as_parameter(document: Any, config: PrimeRlConfig, key: str, value: Any) -> bool:
    """Whether a key is a parameter, which is written over train.toml: the baseline gets its value."""
    name = parameter_name(key)
    if name in document["fixed"]:
        document["fixed"][name] = value
    elif (parameter := document["space"].get(name)) is None:
        return False
    elif parameter.get("log") and value <= 0:
        why = f"the baseline's {parameter['default']}: {name} is searched on a log scale, which has no {value}"
        config.left.append(Term(f"{key} = {value!r}", why))
    else:
        if parameter["type"] == "choice" and value not in parameter["values"]:
            parameter["values"] = [*parameter["values"].unwrap(), value]
        elif parameter["type"] != "choice":
            parameter["low"] = min(parameter["low"], value)
            parameter["high"] = max(parameter["high"], value)
        parameter["default"] = value
    return True
