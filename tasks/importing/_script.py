"""What the importers of a training script share: `train.py` beside a frozen harness, without arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.importing import Term, _caches
from tasks.importing import _repository as repository
from tasks.importing._repository import REPOSITORY, Literal

PROGRAMS = Path(__file__).parent / "programs"
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
    left: list[Term] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def budget(self) -> str:
        """The constant of the harness that holds the training time in seconds; empty if there is none."""
        return next((name for name, value in self.frozen.items() if "TIME_BUDGET" in name and _positive(value)), "")

    @property
    def budget_seconds(self) -> float:
        return float(self.frozen[self.budget]) if self.budget else BUDGET_SECONDS

    @property
    def grace_seconds(self) -> float:
        longest = repository.longest_seconds(self.instructions) or 0.0
        return min(max(GRACE_SECONDS[0], longest - self.budget_seconds), GRACE_SECONDS[1])


def _positive(value: Literal) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def read(folder: Path, harness: str) -> Script:
    """Read a repository's script and harness. Refused where one is not Python."""
    trees = {name: repository.parsed(folder / f"{name}.py") for name in (Path(SCRIPT).stem, harness)}
    files, left = repository.repository_files(folder)
    instructions = folder / INSTRUCTIONS
    return Script(
        folder=folder, harness=harness,
        instructions=repository.read_text(instructions) if instructions.is_file() else "",
        constants=repository.constants(trees[Path(SCRIPT).stem]), frozen=repository.constants(trees[harness]),
        requires=repository.required_modules(trees, folder), data=tuple(_caches.data_folders(trees.values())),
        hub=_caches.hub_cache(trees.values()), files=files, left=left,
    )  # fmt: skip


def keys(script: Script, metric: str, direction: str) -> dict[str, Any]:
    """The keys of environment.toml that no judge changes."""
    places = [*script.data, *([script.hub] if script.hub else [])]
    return {
        "title": script.name,
        "metric": metric,
        "direction": direction,
        "trainer": "command",
        "train_cmd": "python train.py",
        "program": ["train.py", "script.json", REPOSITORY],
        "editable": [f"{REPOSITORY}/{SCRIPT}"],
        "budget_seconds": script.budget_seconds,
        "startup_seconds": 120.0,
        "grace_seconds": script.grace_seconds,
        **({"readable": [str(place) for place in places]} if places else {}),
        "requires": dict(script.requires),
        "space": repository.space(script.constants),
    }


def files(script: Script, origin: str, agent_of: str = "") -> dict[str, str | Path]:
    """The original's files, the program that runs its script, and the instructions."""
    how = {
        "script": SCRIPT, "harness": script.harness, "budget": script.budget, "agent_of": agent_of,
        "seeds": repository.seeds(script.constants), "constants": dict(script.constants),
        "home": str(Path.home()), "hub": str(script.hub or ""),
    }  # fmt: skip
    note = NOTE.format(title=script.name, origin=origin, repository=REPOSITORY, script=SCRIPT, text=script.instructions)
    return {
        **script.files,
        "train.py": (PROGRAMS / "script.py").read_text(),
        "script.json": json.dumps(how, indent=2) + "\n",
        INSTRUCTIONS: note,
    }


def carried(script: Script) -> list[Term]:
    """What became of the words that every such repository has."""
    found = repository.space(script.constants)
    budget = f"{script.harness}.{script.budget} = {script.budget_seconds:g}"
    terms = [
        Term("train.py, edited by the agent", f"{REPOSITORY}/{SCRIPT}, unchanged; editable, and nothing else is"),
        Term(f"{script.harness}.py, not to be modified", f"{REPOSITORY}/{script.harness}.py, which no edit can change"),
        Term("program.md", "program.md, with a note on top; proposers read it"),
        Term("the agent", "--proposer agent, llm_diff or hybrid; tpe (the default) varies constants, without a model"),
        Term("git branch, keep or reset", "the campaign: nightshift status, report, export --git"),
    ]
    if script.budget:
        terms.insert(2, Term(budget, "budget_seconds, handed on to it (--set budget_seconds=60)"))
    if found:
        terms.append(Term(f"constants of train.py: {', '.join(found)}", "[space]; ranges are guesses: correct them"))
    if names := repository.seeds(script.constants):
        terms.append(Term(", ".join(names), "the seed of the run"))
    terms += [Term(str(place), "readable: prepare data there with the original, as before") for place in script.data]
    if script.hub:
        terms.append(Term(str(script.hub), "readable, without a download: run the original once, which fills it"))
    return terms


def left(script: Script) -> list[Term]:
    """What could not be carried."""
    terms = list(script.left)
    if not repository.seeds(script.constants):
        terms.append(
            Term(
                "no constant SEED in train.py",
                "every run draws the same numbers, so fresh runs differ only by timing: give it SEED",
            )
        )
    if not script.budget:
        terms.append(
            Term(f"no TIME_BUDGET in {script.harness}.py", f"train.py must end by itself in {BUDGET_SECONDS:g} s")
        )
    if (script.folder / "pyproject.toml").is_file():
        terms.append(Term("versions in pyproject.toml", "Nightshift's own Python runs train.py; see [requires]"))
    if missing := [command for module, command in script.requires.items() if find_spec(module) is None]:
        terms.append(Term("modules not installed here", "; ".join(missing)))
    return terms
