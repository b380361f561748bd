"""A configuration of prime-rl, old or new, in the keys that may be tuned here."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import plugins
from environments.plugins import Refused
from environments.space import Value
from tasks.importing import Term
from tasks.importing.reading.prime_rl_values import CURRICULUM, curricula, refused, rewritten
from tasks.store.workspace import TRAINERS

SAME = {
    "orchestrator.rollouts_per_example": "orchestrator.group_size",
    "orchestrator.sampling.max_tokens": "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.temperature": "orchestrator.train.sampling.temperature",
    "orchestrator.max_concurrent": "orchestrator.concurrency.max_inflight",
    "inference.gpu_memory_utilization": "inference.vllm.gpu_memory_utilization",
    "inference.model.max_model_len": "inference.vllm.max_model_len",
    "inference.model.enforce_eager": "inference.vllm.enforce_eager",
    "inference.model.enable_prefix_caching": "inference.vllm.enable_prefix_caching",
}
"""Old keys, and today's of the same meaning."""
OTHER_NOW = {
    "trainer.loss.kl_tau": "the baseline's: it weighed a log ratio in the advantage, and weighs its square in the loss"
}
"""Keys that are still there and mean something else since the old ones were gone."""
ENGINES = {
    "output_dir": "the trial's own folder",
    "run": "the trial's own folder",
    "wandb": "MLflow has every trial",
    "monitors": "MLflow has every trial",
    "inference_gpu_ids": "gpus = 2: the slot says which",
    "trainer_gpu_ids": "gpus = 2: the slot says which",
    "deployment": "gpus = 2: the slot says which",
    "orchestrator.eval.interval": "the baseline's curve: asked every 4 steps",
    "orchestrator.eval.sampling.temperature": "the judge samples at 1 and shows greedy answers beside the score",
    "orchestrator.eval.eval_base_model": "the judge scores a model without training where it matters",
    "orchestrator.eval.skip_first_step": "the judge scores a model without training where it matters",
}  # fmt: skip
MODELS = ("model.name", "trainer.model.name", "orchestrator.model.name")
STEPS = ("max_steps", "trainer.max_steps", "orchestrator.max_steps")
LENGTHS = ("orchestrator.eval.sampling.max_tokens", "orchestrator.eval.sampling.max_completion_tokens")
SOURCES = ("orchestrator.env", "orchestrator.train.source", "orchestrator.eval.env", "orchestrator.eval.source")
TASKSETS = {
    "gsm8k": "gsm8k", "hendrycks_math": "math", "math": "math", "reverse_text": "reverse_text", "i3_math": "math",
}  # fmt: skip
"""prime-rl's packages of questions that a bundled environment has a taskset for."""
BUNDLED = {
    frozenset({"gsm8k"}): "gsm8k", frozenset({"gsm8k", "math"}): "gsm8k_math",
    frozenset({"reverse_text"}): "reverse_text",
}  # fmt: skip


@dataclass
class PrimeRlConfig:
    """What was found of a configuration."""

    base: str = ""
    """The bundled environment with the same questions."""
    tuned: dict[str, Value] = field(default_factory=dict)
    """Values by today's dotted keys."""
    settings: dict[str, Value] = field(default_factory=dict)
    """Keys of environment.toml, dotted."""
    carried: list[Term] = field(default_factory=list)
    left: list[Term] = field(default_factory=list)


def keys() -> Any:
    """The module of the trainer's parts that knows prime-rl's keys, by the name that it has in a workspace."""
    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:
        sys.path.append(folder)
    import prime_rl_parts.keys

    return prime_rl_parts.keys


def fits(path: Path) -> str:
    """Why a file is no configuration of prime-rl's; empty if it is one."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as wrong:
        return f"{path.name} is not TOML: {wrong}"[:200]
    if not isinstance(table.get("orchestrator"), dict):
        return f"{path.name} has no table [orchestrator]"
    if not (isinstance(table.get("trainer"), dict) or isinstance(table.get("model"), dict)):
        return f"{path.name} has neither [trainer] nor [model]"
    return ""


def translated(table: Mapping[str, Any], where: str) -> PrimeRlConfig:
    """A configuration in today's keys, and what could not be carried.

    Raises:
        Refused: its questions are not those of a bundled environment.
    """
    known, found = keys(), PrimeRlConfig()
    flat = dict(known.flat(dict(table)))
    is_old = any(known.stranger(key).startswith("is of an older") for key in flat if key not in known.KEYS)
    found.base = _bundled(flat, where, found)
    for key, value in flat.items():
        if key in SOURCES or any(key.startswith(f"{one}.") for one in SOURCES):
            continue
        if setting := _setting(key, value, found.base):
            name, ours, words = setting
            found.settings[name] = ours
            found.carried.append(Term(f"{key} = {value!r}", words))
        elif today := rewritten(key, flat):
            _rewritten(found, f"{key} = {value!r}", today)
        else:
            _key(found, key, value, is_old)
    _curriculum(found, flat.get("orchestrator.train.source"))
    for key, why in refused(found.tuned).items():
        found.carried[:] = [term for term in found.carried if not term.theirs.startswith(f"{key} =")]
        found.left.append(Term(f"{key} = {found.tuned.pop(key)!r}", why))
    return found


def _rewritten(found: PrimeRlConfig, theirs: str, today: Mapping[str, Value]) -> None:
    faults = [f"{key} {fault}" for key, ours in today.items() if (fault := keys().KEYS[key].fault(ours))]
    if faults:
        found.left.append(Term(theirs, faults[0]))
        return
    found.tuned |= today
    found.carried.append(Term(theirs, ", ".join(f"{key} = {ours!r}" for key, ours in today.items())))


def _curriculum(found: PrimeRlConfig, sources: object) -> None:
    """Take over how questions are drawn and filtered, which a source states."""
    tables = curricula(sources)
    if len(tables) > 1 or (tables and len(_listed(sources)) > 1):
        found.left.append(Term(CURRICULUM, "of several sources; here is one, with the questions of all"))
        return
    for table in tables:
        for key, value in keys().flat({"orchestrator": {"train": {"source": {"curriculum": table}}}}):
            _key(found, key, value, False)


def _bundled(flat: Mapping[str, Any], where: str, found: PrimeRlConfig) -> str:
    """The bundled environment that asks the same questions."""
    names = [name for key in SOURCES for one in _listed(flat.get(key)) for name in _ids(one)]
    if not names:
        raise Refused(f"{where}: no [[orchestrator.train.source]] and no [[orchestrator.env]] says what is trained on")
    ours = {name: TASKSETS.get(_plain(name)) for name in dict.fromkeys(names)}
    if unknown := [name for name, one in ours.items() if one is None]:
        has = ", ".join(sorted({*TASKSETS}))
        raise Refused(
            f"{where}: {unknown[0]!r}: no environment here has its questions (known: {has}): write a taskset and a "
            "recipe, as environments/reverse_text has them, and put this file's keys into its train.toml"
        )
    base = BUNDLED.get(frozenset(one for one in ours.values() if one))
    if base is None:
        raise Refused(f"{where}: no environment here has {', '.join(ours)} together: leave one out in a copy")
    for name in ours:
        found.carried.append(Term(f"questions of {name}", f"those of {base}: its recipe, its taskset, its judge"))
    return base


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _ids(source: object) -> Iterator[str]:
    """The package of a source's questions, as an old or a new prime-rl states it."""
    if isinstance(source, dict):
        env = source.get("env")
        taskset = env.get("taskset") if isinstance(env, dict) else None
        for stated in (source.get("id"), taskset.get("id") if isinstance(taskset, dict) else None):
            if isinstance(stated, str):
                yield stated


def _plain(name: str) -> str:
    """`primeintellect/reverse-text@0.1` -> `reverse_text`."""
    return name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()


def _setting(key: str, value: object, base: str) -> tuple[str, Value, str] | None:
    """A key that a key of environment.toml takes the place of: its name, its value, and what to say of it."""
    if key in STEPS and isinstance(value, int) and value > 0:
        return "budget_steps", value, f"budget_steps = {value}"
    if key in MODELS and isinstance(value, str):
        return "prepare.settings.model", value, f"prepare.settings.model = {value!r}"
    if key == "orchestrator.eval.num_examples" and isinstance(value, int) and 0 < value <= 500:
        return "text.questions", value, f"text.questions = {value}, drawn anew for each judgement"
    if key in LENGTHS and isinstance(value, int) and value > 0:
        return "text.max_tokens", value, f"text.max_tokens = {value}"
    return None


def _key(found: PrimeRlConfig, key: str, value: object, is_old: bool) -> None:
    """Take a key over, or say why not."""
    known = keys()
    now = SAME.get(key, key)
    if is_old and now in OTHER_NOW:
        found.left.append(Term(f"{key} = {value!r}", OTHER_NOW[now]))
    elif why := next((words for above, words in ENGINES.items() if f"{key}.".startswith(f"{above}.")), None):
        found.left.append(Term(_short(key, value), why))
    elif now not in known.KEYS:
        if value != {} or not any(one.startswith(f"{key}.") for one in known.KEYS):
            found.left.append(Term(_short(key, value), known.stranger(key)))
    elif fault := known.KEYS[now].fault(value):
        found.left.append(Term(_short(key, value), f"{now} {fault}"))
    else:
        plain = ",".join(value) if isinstance(value, list) else value
        assert isinstance(plain, Value), "a key that may be tuned takes plain values, or a list of words"
        found.tuned[now] = plain
        called = {dotted: name for name, dotted in known.DOTTED.items()}.get(now, "")
        renamed = f"{now} = {value!r}" if now != key else "the same key"
        found.carried.append(Term(_short(key, value), renamed + (f", the parameter {called}" if called else "")))


def _short(key: str, value: object) -> str:
    text = f"{key} = {value!r}"
    return text if len(text) <= 60 else f"{text[:57]}..."
