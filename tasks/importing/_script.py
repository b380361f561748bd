"""What the importers of a training script share: `train.py` beside a frozen harness, without arguments."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Term, _original, _parameters, _runner, _source
from tasks.importing._original import REPOSITORY
from tasks.importing._source import Literal

SCRIPT, INSTRUCTIONS = "train.py", "program.md"
BUDGET_SECONDS = 300.0
"""Where no file states a budget."""
GRACE_SECONDS = 30.0, 600.0
"""Least and most time for what a script does after its training, such as its own evaluation."""
HOME = re.compile(r"""(?:expanduser\(\s*["']~/?([\w./-]*)["']\s*\)|\bPath\.home\(\))((?:\s*[,/]\s*["'][\w.-]+["'])*)""")
"""A path below the home directory: `os.path.join(os.path.expanduser("~"), "data")`, `Path.home() / "data"`."""
HUGGING_FACE = frozenset({"kernels", "transformers", "datasets", "huggingface_hub"})
"""Modules that read the cache of the Hugging Face hub."""


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
    data: tuple[Path, ...]
    """Folders of the home directory that the programs read: a trial has a home of its own."""
    hub: Path | None
    """The cache of the Hugging Face hub, if they use it. The token lies beside it and stays out of reach."""
    files: Mapping[str, str | Path]
    not_copied: tuple[Term, ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seeds(self) -> list[str]:
        return [name for name in self.constants if _parameters.is_seed(name)]

    @property
    def space(self) -> dict[str, dict[str, Any]]:
        return _parameters.guesses(self.constants)

    @property
    def budget(self) -> str:
        """The constant of the harness that holds the training time in seconds; empty if there is none."""
        numbers = (name for name, value in self.frozen.items() if isinstance(value, int | float) and value > 0)
        return next((name for name in numbers if "TIME_BUDGET" in name), "")

    @property
    def budget_seconds(self) -> float:
        return float(self.frozen[self.budget]) if self.budget else BUDGET_SECONDS

    @property
    def metric(self) -> str:
        """The metric that the instructions have looked up in the log."""
        if found := re.search(r"grep\s+(?:-\w+\s+)?[\"']\^?([A-Za-z_]\w*):", self.instructions):
            return found[1]
        raise Refused(
            f"{self.folder / INSTRUCTIONS}: no metric is stated: say how it is read from the log, such as: grep "
            '"^val_loss:" run.log'
        )

    @property
    def direction(self) -> str:
        """Whether that is minimised or maximised, by the words near its name."""
        near = " ".join(re.findall(rf"[^.\n]{{0,60}}\b{self.metric}\b[^.\n]{{0,60}}", self.instructions))
        less = bool(re.search(r"\b(lower|lowest|minimi[sz]e|smallest)\b", near, re.IGNORECASE))
        more = bool(re.search(r"\b(higher|highest|maximi[sz]e|largest)\b", near, re.IGNORECASE))
        if less != more:
            return "minimize" if less else "maximize"
        raise Refused(
            f"{self.folder / INSTRUCTIONS}: whether {self.metric} is better high or low is not stated: write 'get the "
            f"highest {self.metric}' or 'get the lowest {self.metric}'"
        )


def why_not(place: str, *names: str) -> str:
    """Why a place is no folder with these files."""
    missing = [name for name in names if not (Path(place) / name).is_file()]
    return f"no {', no '.join(missing)} in it" if missing else ""


def read(folder: Path, harness: str) -> Script:
    """Read a repository's script and harness.

    Raises:
        Refused: one of them is not Python, or the script is not what is edited and run.
    """
    paths = (folder / SCRIPT, folder / f"{harness}.py")
    script, frozen = map(_source.parsed, paths)
    path = folder / INSTRUCTIONS
    instructions = _original.read_text(path) if path.is_file() else ""
    _check_script(folder, script, harness, instructions)
    files, not_copied = _original.repository_files(folder)
    named = [match for each in paths for match in HOME.finditer(_original.read_text(each))]
    data = {Path.home().joinpath(match[1] or "", *re.findall(r"[\w.-]+", match[2])) for match in named} - {Path.home()}
    uses_hub = HUGGING_FACE & (_source.imports(script) | _source.imports(frozen))
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    return Script(
        folder=folder, harness=harness, tree=script, instructions=instructions,
        constants=_source.constants(script), frozen=_source.constants(frozen),
        data=tuple(sorted(place for place in data if not data & {*place.parents})),
        hub=Path(os.environ.get("HF_HUB_CACHE") or home / "hub").absolute() if uses_hub else None,
        files=files, not_copied=tuple(not_copied),
    )  # fmt: skip


def _check_script(folder: Path, script: ast.Module, harness: str, instructions: str) -> None:
    """Refuse a fork in which another file is edited or run."""
    edited = re.search(r"\b(?:edit|modify|change)s?\b[^.\n]{0,20}`(\w+\.py)`\s+(?:and nothing else|only)", instructions)
    run = re.findall(r"(?:python3?|uv run)\s+(\w+\.py)\s*>", instructions)
    reason = (
        f"{INSTRUCTIONS} has {edited[1]} edited" if edited and edited[1] != SCRIPT
        else f"{INSTRUCTIONS} runs {run[0]}" if run and SCRIPT not in run
        else f"{SCRIPT} imports no {harness}" if harness not in _source.imports(script) and not run
        else ""
    )  # fmt: skip
    if reason:
        raise Refused(
            f"{folder}: {reason}, so it is not {SCRIPT} that is to be edited and run: write an environment.toml for it "
            f"(docs/environments.md)"
        )


def how(script: Script) -> dict[str, Any]:
    """How the runner runs it: constants are set in a copy of the files, and it ends by its own clock."""
    own = dict.fromkeys(script.seeds, "seed")
    clock = {script.budget: "budget_seconds"} if script.budget else {}
    return {
        "command": ["${interpreter}", "${program}"], "at_end": "finish", "own": own | clock,
        "constants": {SCRIPT: [*script.space, *own], f"{script.harness}.py": [*clock]},
        "defaults": {name: script.constants[name] for name in script.space},
        "home": str(Path.home()), "links": [str(place) for place in script.data],
        "variables": {"HF_HUB_CACHE": str(script.hub), "HF_HUB_OFFLINE": "1"} if script.hub else {},
    }  # fmt: skip


def keys(script: Script, direction: str) -> dict[str, Any]:
    """The keys of environment.toml that no judge changes."""
    places = [*script.data, *([script.hub] if script.hub else [])]
    least, most = GRACE_SECONDS
    longest = re.search(r"exceeds?\s+(\d+(?:\.\d+)?)\s*minute", script.instructions)  # "exceeds 10 minutes, kill it"
    after = 60 * float(longest[1]) - script.budget_seconds if longest else least
    return {
        **_runner.keys(script.name, script.metric, direction, SCRIPT),
        "budget_seconds": script.budget_seconds,
        "startup_seconds": 120.0,
        "grace_seconds": min(max(least, after), most),
        "readable": [str(place) for place in places],
        "space": script.space,
    }


def carried(script: Script) -> list[Term]:
    """What became of the words that every such repository has."""
    terms = [
        Term(SCRIPT, f"{REPOSITORY}/{SCRIPT}, unchanged; editable, and nothing else is"),
        Term(f"constants of {SCRIPT}: {', '.join(script.space)}", "[space]; ranges are guesses: correct them"),
        *(Term(seed, "the seed of the run") for seed in script.seeds),
        *(Term(str(place), "readable: prepare data there with the original, as before") for place in script.data),
    ]
    if script.budget:
        budget = f"{script.harness}.{script.budget} = {script.budget_seconds:g}"
        terms.append(Term(budget, "budget_seconds, set in the copy that runs (--set budget_seconds=60)"))
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
        terms.append(Term("versions in pyproject.toml", _runner.PYTHON))
    return terms
