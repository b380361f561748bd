"""prime-rl configurations, laid over the bundled environment that has the same questions.

A file in today's keys is carried as it is, but for what the engine and the judge set. Of old versions the few keys are
known that the train.toml of vivekvkashyap/autoresearch-rl has (February 2026). Of all else prime-rl's own
`rl --dry-run` says whether it fits.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments import FILE, plugins, toml_file
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
    "orchestrator.sampling", "orchestrator.advantage", "orchestrator.buffer", "trainer.loss.token_mask_low",
    "trainer.loss.token_mask_high", "trainer.loss.kl_tau",
)  # fmt: skip
"""Keys of old files that are gone, or mean something else now."""
OLD_SOURCES, SOURCE = ("orchestrator.env", "orchestrator.eval.env"), "orchestrator.train.source"
SOURCES = (*OLD_SOURCES, SOURCE, "orchestrator.eval.source")
TASKSETS = ("gsm8k", "reverse_text")
"""prime-rl's packages of questions that a bundled environment of the same name has a taskset for."""
COPIED = ("prepare.py", "taskset.py")
WARNINGS = (
    "nothing of prime-rl has been run here: `nightshift doctor --for` the new environment says whether it can be",
    "scores of the original come out of a log of the run that was tuned; here a judge asks the trained model apart",
)


class PrimeRl(Importer):
    """A configuration of prime-rl: a TOML file, or a folder with a train.toml (vivekvkashyap/autoresearch-rl)."""

    def why_not(self, place: str) -> str:
        path = _file(place)
        if path is None:
            return f"neither a file .toml nor a folder with a {TRAIN}"
        try:
            table = tomllib.loads(_original.read_text(path))
        except ValueError as wrong:
            return f"{path.name} is not TOML: {wrong}"[:200]
        fits = "orchestrator" in table and bool({"trainer", "model"} & table.keys())
        return "" if fits else f"{path.name} has no [orchestrator] beside [trainer] or [model]"

    def convert(self, place: str) -> Imported:
        path = _file(place)
        assert path is not None, "it was recognised"
        constants = path.parent / CONSTANTS
        stated_budget = BUDGET.search(_original.read_text(constants)) if constants.is_file() else None
        title = path.parent.resolve().name if path.name == TRAIN else path.stem
        config = Configuration(dict(_original.flat(toml_file.read(path))), path)
        config.settings |= {"title": title, **({"budget_seconds": int(stated_budget[1])} if stated_budget else {})}
        return Imported(title, f"prime-rl's {path}", config.files(), tuple(config.left), WARNINGS)


def _file(place: str) -> Path | None:
    path = Path(place)
    path = path / TRAIN if path.is_dir() else path
    return path if path.is_file() and path.suffix == ".toml" else None


def _keys() -> Any:
    """The trainer's part that knows the names of parameters, by the name that it has in a workspace."""
    if (folder := str(plugins.folder(TRAINERS))) not in sys.path:
        sys.path.append(folder)
    import prime_rl_parts.keys

    return prime_rl_parts.keys


class Configuration:
    """A configuration in today's keys. Refused if its questions are not those of a bundled environment."""

    def __init__(self, stated: Mapping[str, Any], path: Path) -> None:
        self.path, self.base, self.left = path, _bundled(stated, path), list[Term]()
        self.tuned: dict[str, Any] = {}
        """Values by today's dotted keys."""
        self.settings: dict[str, Any] = {}
        """Keys of environment.toml, dotted."""
        self.is_old = any(key in RENAMED or key in OLD_SOURCES for key in stated)
        for key, value in stated.items():
            setting, now = SETTINGS.get(key, ""), RENAMED.get(key, key)
            if setting == "prepare.settings.model" or (setting and value > 0):  # -1: all questions
                self.settings[setting] = min(value, MOST_QUESTIONS) if setting == "text.questions" else value
            elif key in SOURCES:
                if any({*one} - {"id", "name", "env"} for one in _tables(value)):
                    self._leave(key, value, f"only its questions are carried: write the rest into [[{SOURCE}]]")
            elif _is_below(now, NOT_CARRIED):
                self._leave(key, value, "set by the slot, the environment, the judge or MLflow here")
            elif self.is_old and _is_below(now, GONE):
                self._leave(key, value, "of an old prime-rl: gone, or it means something else now")
            else:
                self.tuned[now] = value

    def _leave(self, key: str, value: object, why: str) -> None:
        self.left.append(Term(f"{key} = {value!r}"[:60], why))

    def files(self) -> dict[str, str | Path]:
        """The environment's files: those of the bundled one with the configuration laid over."""
        folder, keys, settings = environments.find(self.base), _keys(), self.settings
        document, table = tomlkit.parse((folder / FILE).read_text("utf-8")), toml_file.read(folder / FILE)
        document.pop(environments.VARIANTS, None)
        bundled = table["prepare"]["settings"]["model"]
        if settings.get("prepare.settings.model", bundled) != bundled:
            settings["prepare.settings.model_revision"] = "main"
            why = "main, which may change: pin prepare.settings.model_revision"
            self.left.append(Term("revision of the model", why))
        for key, value in (table.get(environments.VARIANTS, {}).get(self.base, {}) | settings).items():
            *above, last = key.split(".")
            inner: Any = document
            for part in above:
                inner = inner.setdefault(part, {})
            inner[last] = value
        names, rest = {dotted: name for name, dotted in keys.DOTTED.items()}, {}
        for key, value in self.tuned.items():
            name = names.get(key, key)
            if one := document["space"].get(name):  # it is written over train.toml: the baseline gets its value
                if not _widened(one, value):
                    self._leave(key, value, f"not in the range of {name}: the baseline keeps {one['default']!r}")
            elif name in table["fixed"]:
                document["fixed"][name] = value
            else:
                rest[key] = value
        below = tomllib.loads((folder / TRAIN).read_text("utf-8")) if self.is_old else {}
        first = (folder / "program.md").read_text("utf-8").partition("\n## ")[0].partition("\n")[2].strip()
        return {
            FILE: tomlkit.dumps(document),
            TRAIN: tomlkit.dumps(keys.laid_over(below, keys.as_tables(rest))),
            "program.md": f"# {settings['title']}\n\n{first}\n\nThe baseline is that of {self.path.name}.\n",
            **{name: folder / name for name in COPIED},
        }


def _is_below(key: str, above: Iterable[str]) -> bool:
    return any(f"{key}.".startswith(f"{one}.") for one in above)


def _bundled(stated: Mapping[str, Any], path: Path) -> str:
    """The bundled environment that asks the same questions."""
    sources = [one for key in SOURCES for one in _tables(stated.get(key))]
    names = [name for one in sources for name in (one.get("id"), _keys().at(one, "env.taskset.id")) if name]
    # primeintellect/reverse-text@0.1 -> reverse_text
    plain = [str(name).rpartition("/")[2].partition("@")[0].replace("-", "_").lower() for name in names]
    if len({*plain}) != 1 or plain[0] not in TASKSETS:
        raise Refused(
            f"{path}: no environment here has the questions of {', '.join(map(str, names)) or 'no source'} (known: "
            f"{', '.join(TASKSETS)}): write a taskset and a recipe, as "
            "environments/reverse_text has them, and put this file's keys into its train.toml"
        )
    return plain[0]


def _tables(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _widened(parameter: Any, value: Any) -> bool:
    """Make a value the default of a parameter, whose range gets it where it has it not; whether that could be."""
    if parameter["type"] == "choice" and isinstance(value, bool | int | float | str):
        parameter["values"] = list(dict.fromkeys([*parameter["values"].unwrap(), value]))
    elif type(value) in (int, float) and not (parameter.get("log") and value <= 0):
        parameter["low"], parameter["high"] = min(parameter["low"], value), max(parameter["high"], value)
    else:
        return False
    parameter["default"] = value
    return True
