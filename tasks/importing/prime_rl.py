"""prime-rl configurations: a train.toml of an old or a new prime-rl, such as vivekvkashyap/autoresearch-rl has it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import environments
from environments import toml_file
from environments.plugins import Refused
from environments.space import Value
from tasks.importing import Imported, Importer, Recognised, Term
from tasks.importing.reading import results_tsv
from tasks.importing.reading.prime_rl_config import PrimeRlConfig, files_of, fits, parameter_name, understood

TRAIN, CONSTANTS = "train.toml", "prepare.py"
BUDGET = "TIME_BUDGET"


class PrimeRl(Importer):
    """A configuration of prime-rl: a TOML file, or a folder with a train.toml (vivekvkashyap/autoresearch-rl)."""

    def recognise(self, place: str) -> Recognised:
        path = _file(place)
        if path is None:
            return Recognised(False, f"neither a file .toml nor a folder with a {TRAIN}")
        why = fits(path)
        return Recognised(not why, why or f"{path.name} has [orchestrator] and [trainer] or [model]")

    def convert(self, place: str) -> Imported:
        path = _file(place)
        assert path is not None, "it was recognised"
        found = understood(toml_file.read(path), str(path))
        folder = path.parent
        if seconds := _budget(folder / CONSTANTS):
            found.settings["budget_seconds"] = seconds
            ours = f"budget_seconds = {seconds}, from the first sign of work"
            found.carried.append(Term(f"{BUDGET} = {seconds}", ours))
        title = folder.resolve().name if path.name == TRAIN else path.stem
        files = files_of(found, None, title)
        history = results_tsv.trials(folder / results_tsv.FILE, lambda commit: _params(folder, commit, found))
        if history:
            known = sum(bool(one.params) for one in history)
            ours = f"{len(history)} earlier trials, {known} of them with the parameters of their commit"
            found.carried.append(Term(results_tsv.FILE, ours))
        return Imported(
            name=title, origin=f"prime-rl's {path}", files={**files, "program.md": described(found, title, path)},
            carried=tuple(found.carried), left=(*found.left, *_left(folder)), warnings=WARNINGS, history=history,
        )  # fmt: skip


def _file(place: str) -> Path | None:
    path = Path(place)
    path = path / TRAIN if path.is_dir() else path
    return path if path.is_file() and path.suffix == ".toml" else None


def _budget(path: Path) -> int | None:
    """The seconds that a constant TIME_BUDGET of a Python file states, which is not run."""
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    stated = re.search(rf"^{BUDGET}\s*=\s*(\d+)\b", text, re.MULTILINE)
    return int(stated[1]) if stated else None


def _params(folder: Path, commit: str, now: PrimeRlConfig) -> dict[str, Value]:
    """The parameters of the space as a commit's train.toml had them; empty where the commit is not known."""
    text = results_tsv.at_commit(folder, commit, TRAIN)
    try:
        then = understood(tomllib.loads(text), commit) if text else None
    except (ValueError, Refused):
        return {}
    if then is None or then.base != now.base:
        return {}
    named = {parameter_name(key): value for key, value in then.tuned.items()}
    return {name: named.get(name, one.default) for name, one in environments.named(now.base).space.items()}


def _left(folder: Path) -> tuple[Term, ...]:
    known: dict[str, Any] = {
        "run.py": "the trainer prime_rl launches `rl`, and the judge scores: nothing is read out of a log",
        "program.md": "its steps are for an agent that decides by itself; program.md here describes the problem",
    }
    return tuple(Term(name, why) for name, why in known.items() if (folder / name).is_file())


def described(found: PrimeRlConfig, title: str, path: Path) -> str:
    """The bundled environment's description, without what belongs to it alone, and what was imported."""
    text = (environments.find(found.base) / "program.md").read_text("utf-8")
    sections = text.split("\n## ")
    kept = [sections[0], *(one for one in sections[1:] if "math" in found.base and one.startswith("With MATH"))]
    body = "\n## ".join(kept).partition("\n")[2].strip()
    tuned = "".join(f"| `{key}` | {value!r} |\n" for key, value in sorted(found.tuned.items()))
    imported = (
        f"The baseline is the configuration of {path.name}, in today's keys:\n\n| key | value |\n|---|---|\n{tuned}"
    )
    return f"# {title}\n\n{body}\n\n## Imported\n\n{imported}"


WARNINGS = (
    "nothing of prime-rl has been run here: `nightshift doctor --for` the new environment says whether this machine "
    "can, and docs/gpus.md goes there",
    "scores of the original were read out of a log of the run that was being tuned, greedily, on the questions of each "
    "run; here a judge asks the trained model apart. The two do not compare",
)
