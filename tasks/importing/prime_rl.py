"""prime-rl configurations, laid over the bundled environment that has the same questions.

A file in today's keys is carried as it is, but for what the engine and the judge set. Of old versions the few keys are
known that the train.toml of vivekvkashyap/autoresearch-rl has (February 2026). Of all else prime-rl's own
`rl --dry-run` says whether it fits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
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
SETTINGS = {"max_steps": "budget_steps", "model.name": "prepare.settings.model"}
"""Keys that one of environment.toml takes the place of."""
OLD_SOURCES = ("orchestrator.env", "orchestrator.eval.env")
SOURCES = (*OLD_SOURCES, "orchestrator.train.source", "orchestrator.eval.source")
NOT_CARRIED = (
    "output_dir", "run", "clean", "resume", "ckpt", "wandb", "monitors", "inference_gpu_ids", "trainer_gpu_ids",
    "deployment", "slurm", "model", "trainer.model.name", "orchestrator.model.name", "orchestrator.renderer",
    "weight_broadcast", "orchestrator.eval", *SOURCES,
)  # fmt: skip
"""Keys that slot, environment, judge or MLflow set here, themselves and all below them."""
GONE = (
    "orchestrator.sampling", "orchestrator.advantage", "orchestrator.buffer", "trainer.loss.token_mask_high",
    "trainer.loss.kl_tau",
)  # fmt: skip
"""Keys of old files that are gone, or mean something else now."""
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
        reasons = dict.fromkeys(GONE, "of an old prime-rl: gone, or it means something else now") if is_old else {}
        reasons |= dict.fromkeys(NOT_CARRIED, "set by the slot, the environment, the judge or MLflow here")
        tuned: dict[str, Any] = {}  # by today's dotted keys
        left: list[Term] = []
        for key, value in stated.items():
            now = RENAMED.get(key, key)
            why = next((why for above, why in reasons.items() if f"{now}.".startswith(f"{above}.")), "")
            if key in SETTINGS:
                settings[SETTINGS[key]] = value
            elif why:
                left.append(Term(f"{key} = {value!r}"[:60], why))
            else:
                tuned[now] = value
        files = _laid_over(environments.find(base), settings, tuned, is_old, left)
        return Imported(settings["title"], f"prime-rl's {path}", files, tuple(left), WARNINGS)


def _put(table: Any, key: str, value: object) -> None:
    """Set a dotted key."""
    *above, last = key.split(".")
    for part in above:
        table = table.setdefault(part, {})
    table[last] = value


def _laid_over(
    bundled: Path, settings: dict[str, Any], tuned: Mapping[str, Any], is_old: bool, left: list[Term]
) -> dict[str, str | Path]:
    """The files of a bundled environment with a configuration laid over; what of it does not fit is added to `left`."""
    document, table = tomlkit.parse((bundled / FILE).read_text("utf-8")), plugins.read_toml(bundled / FILE)
    document.pop(environments.VARIANTS, None)
    model = table["prepare"]["settings"]["model"]
    if settings.get("prepare.settings.model", model) != model:
        settings["prepare.settings.model_revision"] = "main"
        left.append(Term("revision of the model", "main, which may change: pin prepare.settings.model_revision"))
    for key, value in settings.items():
        _put(document, key, value)
    trainer = _original.parsed(plugins.folder(TRAINERS) / "prime_rl.py")  # whose parameters have names of their own
    dotted = _original.entries(_original.assigned(trainer)["DOTTED"])
    names = {_original.literal(key): name for name, key in dotted.items()}
    train = tomllib.loads((bundled / TRAIN).read_text("utf-8")) if is_old else {}
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
            _put(train, key, value)
    first = (bundled / "program.md").read_text("utf-8").partition("\n## ")[0].partition("\n")[2].strip()
    return {
        FILE: tomlkit.dumps(document),
        TRAIN: tomlkit.dumps(train),
        "program.md": f"# {settings['title']}\n\n{first}\n",
        **{name: bundled / name for name in COPIED},
    }


def _bundled(stated: Mapping[str, Any], path: Path) -> str:
    """The bundled environment that asks the same questions."""
    sources = [dict(_original.flat(one)) for key in SOURCES for one in stated.get(key) or [] if isinstance(one, dict)]
    names = [str(one[key]) for one in sources for key in ("id", "env.taskset.id") if key in one]
    # primeintellect/reverse-text@0.1 -> reverse_text
    plain = {name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower() for name in names}
    if len(plain) != 1 or not plain <= {*TASKSETS}:
        raise Refused(
            f"{path}: no environment here has the questions of {', '.join(names) or 'no source'} (known: "
            f"{', '.join(TASKSETS)}): write a taskset and a recipe, as environments/reverse_text has them, and put "
            "this file's keys into its train.toml"
        )
    return plain.pop()
