"""What importers share: the runner that they write into an environment, and its keys."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from environments import FILE
from tasks.importing import Imported, Term, environment_toml
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, is_seed

PROGRAMS = Path(__file__).parent / "programs"
TENSORBOARD, SB3 = "sitecustomize", "sb3_call"
"""The stand-ins for TensorBoard's writers, and around Stable-Baselines3, which hands on the seed by itself."""
BUDGET_SECONDS = 1200
"""Where the original states no time; a night of 8 hours holds the certificate."""
NO_TIME = Term("no time limit", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")
NO_SEED = Term("no seed", "fresh runs may be alike: let it use the variable AR_SEED, or state deterministic = true")
SELF_SCORED = (
    "the score is what {edited} gives as {metric!r}: an edit can give any number. Let it save its model, and have "
    "a frozen program measure that (docs/environments.md), or read every diff (--approval code)"
)
PACKAGES = Term("its packages", "`python` says where they are; without it Nightshift's own Python runs it")
NOTE = """\
# {title}

Imported from {origin}. Nightshift runs the loop: propose one change of `{script}`, or values of its parameters; it is
trained, scored and kept or discarded. What is said below about branches, commits, launching and logs does not apply.
No other file can be changed.

---

{text}
"""


def imported(
    name: str, origin: str, script: str, text: str, *, program: Path, metric: str, how: Mapping[str, Any],
    keys: Mapping[str, Any], originals: Mapping[str, str | Path],
    parameters: Mapping[str, ConvertedParameter] = {}, control: Mapping[str, Any] | None = None,
    seeds: Sequence[str] = (), left: Iterable[Term] = (), stand_ins: Sequence[str] = (),
    warnings: Iterable[str] = (), options: tuple[str, ...] = (),
) -> Imported:  # fmt: skip
    """The environment of a program: its files, the runner, what tells the runner how, and the account.

    Args:
        script: The original's file that is edited; empty: none is.
        text: The original's words for the agent.
        program: Where it lies: a virtual environment may lie beside it.
        metric: As the program calls it.
        how: Keys of `HOW` in programs/run.py.
        keys: Keys of environment.toml, laid over the usual ones; None: without it. At the default of a parameter in
            its `space` the program's own value stays.
        originals: The original's files by place.
        parameters: Of [space] and [fixed], where the original states the ranges; seeds among them get that of the run.
        control: Keys of the judge that plays what training leaves; None: what the program gives is the score.
        seeds: Further parameters that get the seed of the run.
        stand_ins: Modules of `programs` in place of installed ones.
    """
    seeds = [*seeds, *filter(is_seed, parameters)]
    parameters = {each: one for each, one in parameters.items() if each not in seeds}
    place = f"{REPOSITORY}/{script}"
    ours = re.sub(r"[^A-Za-z0-9_\-. :/@]+", " ", metric)[:100].strip() or "value"  # what ours may have
    how = {
        "metric": "" if control else metric, "name": ours, **how,
        "own": dict.fromkeys(seeds, "seed") | how.get("own", {}),
        "defaults": {each: one["default"] for each, one in keys.get("space", {}).items()},
    }  # fmt: skip
    word = shlex.quote(place.replace("{", "{{").replace("}", "}}"))  # of a command with placeholders
    judged: dict[str, Any] = {"judge": "command", "command": {"eval_cmd": "cp {out}/result.json {result}"}}
    player = list[str]()
    if control:
        judged, player = {"judge": "control", "control": control, "device": "cpu"}, ["act.py"]
    stated = {
        "title": name, "metric": ours, "budget_seconds": BUDGET_SECONDS, "python": python_of(program) or None,
        "trainer": "command", "train_cmd": f"python train.py {word}" if script else "python train.py",
        "program": ["train.py", "run.json", "standin", REPOSITORY, *player], "editable": [place] if script else [],
        "space": {each: one.table for each, one in parameters.items() if one.table},
        "fixed": {each: one.fixed for each, one in parameters.items() if not one.table} or None,
        **judged, **keys,
    }  # fmt: skip
    files = {
        **originals,
        "train.py": PROGRAMS / "run.py",
        "run.json": json.dumps(how, indent=1) + "\n",
        # The package by which programs and stand-ins report.
        "standin/autoresearch_rl/__init__.py": "from autoresearch_rl.target.progress import emit_progress\n",
        "standin/autoresearch_rl/target/progress.py": PROGRAMS / "progress.py",
        **{f"standin/{module}.py": PROGRAMS / f"{module}.py" for module in stand_ins},
        **{module: PROGRAMS / module for module in player},
        "program.md": NOTE.format(title=name, origin=origin, script=place, text=text),
        FILE: environment_toml(stated, origin),
    }
    terms = [Term(seed, "not searched: it gets the seed of the run") for seed in seeds]
    terms += [Term(each, one.lost) for each, one in parameters.items() if one.lost]
    terms += [NO_TIME] if "budget_seconds" not in keys else []
    terms += [NO_SEED] if not seeds and SB3 not in stand_ins and "deterministic" not in keys else []
    if ours != metric:
        terms.append(Term(f"metric {metric}", f"called {ours!r} here: a name has letters, digits, _ - . space : / @"))
    if not control and not how.get("evaluate"):
        warnings = (SELF_SCORED.format(edited=place, metric=metric), *warnings)
    return Imported(name, origin, files, (*terms, *left, PACKAGES), tuple(warnings), options)


def python_of(program: Path) -> str:
    """The virtual environment that a program is likely run with: beside it, above it, or the active one; or empty."""
    likely = [folder / name for folder in program.resolve().parents[:3] for name in (".venv", "venv")]
    likely += [Path(active)] if (active := os.environ.get("VIRTUAL_ENV")) else []
    first = next((each for each in likely if (each / "pyvenv.cfg").is_file()), None)
    return str(first) if first and first.resolve() != Path(sys.prefix).resolve() else ""
