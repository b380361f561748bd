"""What importers share: the runner that they write into an environment, and its keys."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environments.score import METRIC
from tasks.importing import Term
from tasks.importing._original import REPOSITORY

PROGRAMS = Path(__file__).parent / "programs"
REPORTS: dict[str, str | Path] = {
    "standin/autoresearch_rl/__init__.py": "from autoresearch_rl.target.progress import emit_progress\n",
    "standin/autoresearch_rl/target/__init__.py": "",
    "standin/autoresearch_rl/target/progress.py": PROGRAMS / "progress.py",
}
"""The package by which programs and stand-ins report."""
TENSORBOARD = ("sitecustomize", "tensorboardX")
"""The stand-ins for TensorBoard's writers."""
UP = 2
"""Folders above that of a program in which its virtual environment may lie."""
PYTHON = "Nightshift's own Python runs it; python = \"/path/of/its/.venv\" in environment.toml takes the original's"
"""Of packages: what runs the original, and how to change that."""
NOTE = """\
# {title}

Imported from {origin}. Nightshift runs the loop: propose one change of `{repository}/{script}`, or values of its
parameters; it is trained, scored and kept or discarded. What is said below about branches, commits, launching, logs
and `results.tsv` does not apply. Files other than `{repository}/{script}` cannot be changed.

---

{text}
"""


def files(how: Mapping[str, Any], *stand_ins: str) -> dict[str, str | Path]:
    """The runner, how it runs the original, and the modules that take the place of installed ones."""
    return {
        "train.py": PROGRAMS / "run.py",
        "run.json": json.dumps(how, indent=1) + "\n",
        **REPORTS,
        **{f"standin/{name}.py": PROGRAMS / f"{name}.py" for name in stand_ins},
    }


def keys(title: str, metric: str, direction: str, script: str, editable: bool = True) -> dict[str, Any]:
    """The keys of environment.toml that every problem with the runner has; `script` may be empty."""
    place = f"{REPOSITORY}/{script}"
    return {
        "title": title,
        "metric": metric,
        "direction": direction,
        "trainer": "command",
        "train_cmd": f"python train.py {place}" if script else "python train.py",
        "program": ["train.py", "run.json", "standin", REPOSITORY],
        "editable": [place] if script and editable else [],
        "judge": "command",
        "command": {"eval_cmd": "cp {out}/result.json {result}"},
    }


def instructions(title: str, origin: str, script: str, text: str) -> dict[str, str | Path]:
    """The original's words for the agent, with a note on top."""
    note = NOTE.format(title=title, origin=origin, repository=REPOSITORY, script=script, text=text)
    return {"program.md": note}


def python_of(place: Path) -> str:
    """The virtual environment that a program is likely run with, beside it, above it, or the active one; or empty."""
    above = [place.resolve().parent, *place.resolve().parents[1 : UP + 1]]
    beside = [folder / name for folder in above for name in (".venv", "venv")]
    active = os.environ.get("VIRTUAL_ENV")
    likely = [*beside, *([Path(active)] if active else [])]
    found = next((each for each in likely if (each / "pyvenv.cfg").is_file()), None)
    return str(found) if found and found.resolve() != Path(sys.prefix).resolve() else ""


def metric_name(name: str) -> str:
    """A metric's name with the characters that ours may have."""
    kept = re.sub(r"[^A-Za-z0-9_\-. :/@]+", " ", name)[:100].strip()
    return kept if re.match(METRIC, kept) else "value"


def metric_term(theirs: str, ours: str, direction: str) -> Term:
    """What became of a metric, with its new name where it has one."""
    renamed = f" {ours!r}, since a name has letters, digits, _ - . space : / @" if ours != theirs else ""
    return Term(f"metric {theirs}", f"metric{renamed}, {direction}")


def warning(edited: str, metric: str) -> str:
    """That the score comes from what is scored."""
    return (
        f"the score is what {edited} gives as {metric!r}, and that is the program which is scored: an edit can give "
        f"any number. Before code is edited, let it save its model, and have a frozen program measure that "
        f"(docs/environments.md); until then read the diff of every champion (--approval code)"
    )
