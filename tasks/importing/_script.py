"""What the importers of a training script share: `train.py` beside a frozen harness, without arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Term, _runner
from tasks.importing import _repository as repository
from tasks.importing._repository import Literal
from tasks.importing._runner import REPOSITORY, is_seed

SCRIPT, INSTRUCTIONS = "train.py", "program.md"
BUDGET_SECONDS = 300.0
"""Where no file states a budget."""
GRACE_SECONDS = 30.0, 600.0
"""Least and most time for what a script does after its training, such as its own evaluation."""
NOTE = """\
# {title}

Imported from {origin}. Nightshift runs the loop: propose one change of `{repository}/{script}`, or values of its
constants; it is trained, scored and kept or discarded. What is said below about branches, commits, launching, logs
and `results.tsv` does not apply. Files other than `{repository}/{script}` cannot be changed.

---

{text}
"""


@dataclass(frozen=True)
class Script:
    """A folder with a training script and its harness, as read."""

    folder: Path
    harness: str
    """Module that the script imports its budget and its evaluation from."""
    tree: ast.Module
    """The script's."""
    instructions: str
    constants: Mapping[str, Literal]
    """Of the script."""
    frozen: Mapping[str, Literal]
    """Constants of the harness."""
    requires: Mapping[str, str]
    data: tuple[Path, ...]
    """Folders of the home directory that the programs read."""
    hub: Path | None
    """The cache of the Hugging Face hub, if they use it."""
    files: Mapping[str, str | Path]
    not_copied: tuple[Term, ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seeds(self) -> list[str]:
        return [name for name in self.constants if is_seed(name)]

    @property
    def budget(self) -> str:
        """The constant of the harness that holds the training time in seconds; empty if there is none."""
        numbers = (name for name, value in self.frozen.items() if isinstance(value, int | float) and value > 0)
        return next((name for name in numbers if "TIME_BUDGET" in name), "")

    @property
    def budget_seconds(self) -> float:
        return float(self.frozen[self.budget]) if self.budget else BUDGET_SECONDS


def read(folder: Path, harness: str) -> Script:
    """Read a repository's script and harness.

    Raises:
        Refused: one of them is not Python, or the script is not what is edited and run.
    """
    paths = (folder / SCRIPT, folder / f"{harness}.py")
    script, frozen = map(repository.parsed, paths)
    files, not_copied = repository.repository_files(folder)
    path = folder / INSTRUCTIONS
    instructions = repository.read_text(path) if path.is_file() else ""
    _check_script(folder, script, harness, instructions)
    return Script(
        folder=folder, harness=harness, tree=script, instructions=instructions,
        constants=repository.constants(script), frozen=repository.constants(frozen),
        requires=repository.required_modules((script, frozen), folder),
        data=tuple(repository.data_folders(map(repository.read_text, paths))),
        hub=repository.hub_cache((script, frozen)), files=files, not_copied=tuple(not_copied),
    )  # fmt: skip


def _check_script(folder: Path, script: ast.Module, harness: str, instructions: str) -> None:
    """Refuse a fork in which another file is edited or run."""
    nodes = (node for node in ast.walk(script) if isinstance(node, ast.Import | ast.ImportFrom))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(script) if isinstance(node, ast.ImportFrom) and node.module}
    edited = re.search(r"\b(?:edit|modify|change)s?\b[^.\n]{0,20}`(\w+\.py)`\s+(?:and nothing else|only)", instructions)
    run = re.findall(r"(?:python3?|uv run)\s+(\w+\.py)\s*>", instructions)
    reason = (
        f"{INSTRUCTIONS} has {edited[1]} edited" if edited and edited[1] != SCRIPT
        else f"{INSTRUCTIONS} runs {run[0]}" if run and SCRIPT not in run
        else f"{SCRIPT} imports no {harness}" if harness not in modules and not run
        else ""
    )  # fmt: skip
    if reason:
        raise Refused(
            f"{folder}: {reason}, so it is not {SCRIPT} that is to be edited and run: write an environment.toml for it "
            f"(docs/environments.md)"
        )


def how(script: Script) -> dict[str, Any]:
    """How the runner runs it: constants are set in a copy of the files, and it ends by its own clock."""
    space = repository.space(script.constants)
    return {
        "command": ["${interpreter}", SCRIPT], "at_end": "finish",
        "constants": {SCRIPT: [*space, *script.seeds]}, "seeds": script.seeds,
        "defaults": {name: script.constants[name] for name in space},
        "budget": [f"{script.harness}.py", script.budget] if script.budget else [],
        "home": str(Path.home()), "links": [str(place) for place in script.data],
        "variables": {"HF_HUB_CACHE": str(script.hub), "HF_HUB_OFFLINE": "1"} if script.hub else {},
    }  # fmt: skip


def keys(script: Script, metric: str, direction: str) -> dict[str, Any]:
    """The keys of environment.toml that no judge changes."""
    places = [*script.data, *([script.hub] if script.hub else [])]
    longest = repository.longest_seconds(script.instructions) or 0.0
    least, most = GRACE_SECONDS
    return {
        **_runner.keys(script.name, metric, direction, SCRIPT),
        "budget_seconds": script.budget_seconds,
        "startup_seconds": 120.0,
        "grace_seconds": min(max(least, longest - script.budget_seconds), most),
        **({"readable": [str(place) for place in places]} if places else {}),
        "requires": dict(script.requires),
        "space": repository.space(script.constants),
    }


def instructions(script: Script, origin: str) -> dict[str, str | Path]:
    """The original's words for the agent, with a note on top."""
    return {
        INSTRUCTIONS: NOTE.format(
            title=script.name, origin=origin, repository=REPOSITORY, script=SCRIPT, text=script.instructions
        )
    }


def carried(script: Script) -> list[Term]:
    """What became of the words that every such repository has."""
    found = repository.space(script.constants)
    budget = f"{script.harness}.{script.budget} = {script.budget_seconds:g}"
    terms = [
        Term("train.py, edited by the agent", f"{REPOSITORY}/{SCRIPT}, unchanged; editable, and nothing else is"),
        Term(f"{script.harness}.py, not to be modified", f"{REPOSITORY}/{script.harness}.py, which no edit can change"),
    ]
    if script.budget:
        terms.append(Term(budget, "budget_seconds, set in the copy that runs (--set budget_seconds=60)"))
    if found:
        terms.append(Term(f"constants of train.py: {', '.join(found)}", "[space]; ranges are guesses: correct them"))
    if script.seeds:
        terms.append(Term(", ".join(script.seeds), "the seed of the run"))
    terms += [Term(str(place), "readable: prepare data there with the original, as before") for place in script.data]
    if script.hub:
        terms.append(Term(str(script.hub), "readable, without a download: run the original once, which fills it"))
    return terms


def left(script: Script) -> list[Term]:
    """What could not be carried."""
    terms = list(script.not_copied)
    if not script.seeds:
        why = "every run draws the same numbers, so fresh runs differ only by timing: give it SEED"
        terms.append(Term("no constant SEED in train.py", why))
    if not script.budget:
        terms.append(
            Term(f"no TIME_BUDGET in {script.harness}.py", f"train.py must end by itself in {BUDGET_SECONDS:g} s")
        )
    if (script.folder / "pyproject.toml").is_file():
        terms.append(Term("versions in pyproject.toml", "Nightshift's own Python runs train.py; see [requires]"))
    if missing := [command for module, command in script.requires.items() if find_spec(module) is None]:
        terms.append(Term("modules not installed here", "; ".join(missing)))
    return terms
