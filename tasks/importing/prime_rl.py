"""prime-rl configurations, laid over the bundled environment that has the same questions.

A file in today's keys is carried as it is, but for what the engine and the judge set. Of old versions the few keys are
known that the train.toml of vivekvkashyap/autoresearch-rl has (February 2026). Of all else prime-rl's own
`rl --dry-run` says whether it fits.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments import FILE, plugins
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original
from tasks.store.workspace import TRAINERS

TRAIN, CONSTANTS, BUDGET = "train.toml", "prepare.py", re.compile(r"^TIME_BUDGET\s*=\s*(\d+)\b", re.MULTILINE)
RENAMED = {
    "orchestrator.rollouts_per_example": "orchestrator.group_size",
    "orchestrator.sampling.max_tokens": "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.temperature": "orchestrator.train.sampling.temperature",
}
"""Old keys, and today's of the same meaning."""
SETTINGS = {
    "max_steps": "budget_steps",
    "model.name": "prepare.settings.model",
    "orchestrator.eval.num_examples": "text.questions",
    "orchestrator.eval.sampling.max_tokens": "text.max_tokens",
    "orchestrator.eval.sampling.max_completion_tokens": "text.max_tokens",
}
"""Keys that one of environment.toml takes the place of."""
MOST_QUESTIONS = 500
"""That a bundled judge has to search with."""
NOT_CARRIED = (
    "output_dir", "run", "clean", "resume", "ckpt", "wandb", "monitors", "inference_gpu_ids", "trainer_gpu_ids",
    "deployment", "slurm", "model", "trainer.model.name", "orchestrator.model.name", "orchestrator.renderer",
    "weight_broadcast", "orchestrator.eval",
)  # fmt: skip
"""Keys that slot, environment, judge or MLflow set here, themselves and all below them."""
GONE = (
    "orchestrator.sampling", "orchestrator.advantage", "orchestrator.buffer", "trainer.loss.token_mask_high",
    "trainer.loss.kl_tau",
)  # fmt: skip
"""Keys of old files that are gone, or mean something else now."""
OLD_SOURCES = ("orchestrator.env", "orchestrator.eval.env")
SOURCES = (*OLD_SOURCES, "orchestrator.train.source", "orchestrator.eval.source")
TASKSETS = ("gsm8k", "reverse_text")
"""prime-rl's packages of questions that a bundled environment of the same name has a taskset for."""
COPIED = ("prepare.py", "taskset.py")
WARNINGS = (
    "nothing of prime-rl has been run here: `nightshift doctor --for` the new environment says whether it can be",
    "scores of the original come out of a log of the run that was tuned; here a judge asks the trained model apart",
)


class PrimeRl(Importer):
    """A configuration of prime-rl: a TOML file, or a folder with a train.toml (vivekvkashyap/autoresearch-rl)."""

    def read(self, place: str) -> Imported | str:
        path = Path(place) / TRAIN if Path(place).is_dir() else Path(place)
        if path.suffix != ".toml" or not path.is_file():
            return f"neither a file .toml nor a folder with a {TRAIN}"
        table = plugins.read_toml(path)
        if "orchestrator" not in table or not {"trainer", "model"} & table.keys():
            return f"{path.name} has no [orchestrator] beside [trainer] or [model]"
        stated = dict(_original.flat(table))
        base = _bundled(stated, path)
        is_old = any(key in RENAMED or key in OLD_SOURCES for key in stated)
        settings: dict[str, Any] = {"title": path.parent.resolve().name if path.name == TRAIN else path.stem}
        constants = path.parent / CONSTANTS
        if constants.is_file() and (budget := BUDGET.search(_original.read_text(constants))):
            settings["budget_seconds"] = int(budget[1])
        tuned: dict[str, Any] = {}  # by today's dotted keys
        left: list[Term] = []
        for key, value in stated.items():
            setting, now, why = SETTINGS.get(key, ""), RENAMED.get(key, key), ""
            if setting == "prepare.settings.model" or (setting and value > 0):  # -1: all questions
                settings[setting] = min(value, MOST_QUESTIONS) if setting == "text.questions" else value
            elif key in SOURCES:
                why = "only its questions are carried" if any({*one} - {"id", "name", "env"} for one in value) else ""
            elif _is_below(now, NOT_CARRIED):
                why = "set by the slot, the environment, the judge or MLflow here"
            elif is_old and _is_below(now, GONE):
                why = "of an old prime-rl: gone, or it means something else now"
            else:
                tuned[now] = value
            if why:
                left.append(Term(f"{key} = {value!r}"[:60], why))
        files = _laid_over(environments.find(base), settings, tuned, is_old, left)
        return Imported(settings["title"], f"prime-rl's {path}", files, tuple(left), WARNINGS)


def _keys() -> Any:
    """The trainer, which knows the names of parameters. It finds `_program` by the name that it has in a workspace."""
    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"{TRAINERS}.prime_rl")


def _laid_over(
    bundled: Path, settings: dict[str, Any], tuned: Mapping[str, Any], is_old: bool, left: list[Term]
) -> dict[str, str | Path]:
    """The files of a bundled environment with a configuration laid over; what of it does not fit is added to `left`."""
    document, table = tomlkit.parse((bundled / FILE).read_text("utf-8")), plugins.read_toml(bundled / FILE)
    keys = _keys()
    document.pop(environments.VARIANTS, None)
    model = table["prepare"]["settings"]["model"]
    if settings.get("prepare.settings.model", model) != model:
        settings["prepare.settings.model_revision"] = "main"
        left.append(Term("revision of the model", "main, which may change: pin prepare.settings.model_revision"))
    for key, value in settings.items():
        *above, last = key.split(".")
        inner: Any = document
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    names, rest = {dotted: name for name, dotted in keys.DOTTED.items()}, {}
    for key, value in tuned.items():
        name = names.get(key, key)
        if one := document["space"].get(name):  # it is written over train.toml: the baseline gets its value
            one["default"] = value
            if one["type"] == "choice":
                one["values"] = list(dict.fromkeys([*one["values"].unwrap(), value]))
            else:
                one["low"], one["high"] = min(one["low"], value), max(one["high"], value)
        elif name in table["fixed"]:
            document["fixed"][name] = value
        else:
            rest[key] = value
    below = tomllib.loads((bundled / TRAIN).read_text("utf-8")) if is_old else {}
    first = (bundled / "program.md").read_text("utf-8").partition("\n## ")[0].partition("\n")[2].strip()
    return {
        FILE: tomlkit.dumps(document),
        TRAIN: tomlkit.dumps(keys.laid_over(below, keys.as_tables(rest))),
        "program.md": f"# {settings['title']}\n\n{first}\n",
        **{name: bundled / name for name in COPIED},
    }


def _is_below(key: str, above: Iterable[str]) -> bool:
    return any(f"{key}.".startswith(f"{one}.") for one in above)


def _bundled(stated: Mapping[str, Any], path: Path) -> str:
    """The bundled environment that asks the same questions."""
    sources = [one for key in SOURCES for one in stated.get(key) or [] if isinstance(one, dict)]
    names = [str(name) for one in sources for name in (one.get("id"), _keys().at(one, "env.taskset.id")) if name]
    # primeintellect/reverse-text@0.1 -> reverse_text
    plain = {name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower() for name in names}
    if len(plain) != 1 or not plain <= {*TASKSETS}:
        raise Refused(
            f"{path}: no environment here has the questions of {', '.join(names) or 'no source'} (known: "
            f"{', '.join(TASKSETS)}): write a taskset and a recipe, as environments/reverse_text has them, and put "
            "this file's keys into its train.toml"
        )
    return plain.pop()
