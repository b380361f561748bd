"""prime-rl configurations, laid over the bundled environment that has the same questions.

A file in today's keys is carried as it is, but for what the engine and the judge set. Of old versions the few keys are
known that the train.toml of vivekvkashyap/autoresearch-rl has (February 2026). Of all else prime-rl's own
`rl --dry-run` says whether it fits.
"""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments import FILE, plugins
from environments.plugins import Refused
from tasks.importing import Imported, Term, _original
from tasks.store.workspace import TRAINERS

TRAIN, CONSTANTS = "train.toml", "prepare.py"
RENAMED = {
    "orchestrator.rollouts_per_example": "orchestrator.group_size",
    "orchestrator.sampling.max_tokens": "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.temperature": "orchestrator.train.sampling.temperature",
}
"""Old keys, and today's of the same meaning."""
MODEL = "prepare.settings.model"
SETTINGS = {"max_steps": "budget_steps", "model.name": MODEL}
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


def read(place: str) -> Imported | str:
    """A configuration of prime-rl: a TOML file, or a folder with a train.toml (vivekvkashyap/autoresearch-rl)."""
    path = Path(place) / TRAIN if Path(place).is_dir() else Path(place)
    if path.suffix != ".toml" or not path.is_file():
        return f"neither a file .toml nor a folder with a {TRAIN}"
    table = plugins.read_toml(path)
    if "orchestrator" not in table or not {"trainer", "model"} & table.keys():
        return f"{path.name} has no [orchestrator] beside [trainer] or [model]"
    stated = dict(_original.flat(table))
    bundled = environments.find(_bundled(stated, path))
    document = tomlkit.parse((bundled / FILE).read_text("utf-8"))
    document.pop(environments.VARIANTS, None)
    document["title"] = title = path.parent.resolve().name if path.name == TRAIN else path.stem
    constants, model = path.parent / CONSTANTS, dict(_original.flat(document))[MODEL]
    if constants.is_file():
        with suppress(Refused):  # it may be of another Python
            budget = _original.constants(_original.parsed(constants)).get("TIME_BUDGET")
            if type(budget) in (int, float):
                document["budget_seconds"] = budget
    is_old = any(key in RENAMED or key in OLD_SOURCES for key in stated)
    reasons = dict.fromkeys(GONE, "of an old prime-rl: gone, or it means something else now") if is_old else {}
    reasons |= dict.fromkeys(NOT_CARRIED, "set by the slot, the environment, the judge or MLflow here")
    train = tomllib.loads((bundled / TRAIN).read_text("utf-8")) if is_old else {}
    left: list[Term] = []
    for key, value in stated.items():
        now = RENAMED.get(key, key)
        why = next((why for above, why in reasons.items() if f"{now}.".startswith(f"{above}.")), "")
        if key in SETTINGS:
            environments.lay_over(document, SETTINGS[key], value)
        elif why:
            left.append(Term(f"{key} = {value!r}"[:60], why))
        elif not _is_parameter(document, now, value):
            environments.lay_over(train, now, value)
    if stated.get("model.name", model) != model:
        environments.lay_over(document, f"{MODEL}_revision", "main")
        left.append(Term("revision of the model", f"main, which may change: pin {MODEL}_revision"))
    first = (bundled / "program.md").read_text("utf-8").partition("\n## ")[0].partition("\n")[2].strip()
    files: dict[str, str | Path] = {
        FILE: tomlkit.dumps(document), TRAIN: tomlkit.dumps(train), "program.md": f"# {title}\n\n{first}\n",
        **{name: bundled / name for name in COPIED},
    }  # fmt: skip
    return Imported(title, f"prime-rl's {path}", files, tuple(left), WARNINGS)


def _is_parameter(document: Any, key: str, value: Any) -> bool:
    """Whether a key is a parameter of the environment, which lies over train.toml: the baseline gets its value."""
    trainer = _original.parsed(plugins.folder(TRAINERS) / "prime_rl.py")  # whose parameters have names of their own
    dotted = _original.entries(_original.assigned(trainer)["DOTTED"])
    name = next((name for name, node in dotted.items() if _original.literal(node) == key), key)
    if name in document["fixed"]:
        document["fixed"][name] = value
    elif one := document["space"].get(name):
        one["default"] = value
        if one["type"] == "choice":
            one["values"] = list(dict.fromkeys([*one["values"].unwrap(), value]))
        else:
            one["low"], one["high"] = min(one["low"], value), max(one["high"], value)
    return name in document["fixed"] or name in document["space"]


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
