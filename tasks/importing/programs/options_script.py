"""Runs an imported script whose options are a dataclass, as it is, in a trial. `script.json` beside this says which.

The script runs in a copy of its files that it may write to. `tyro.cli` gives it the parameters of the trial; those at
the value of the import stay at the file's own default, so an edit of a default counts. Scalars go to
`summary_writer.py` in place of TensorBoard's files.
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HOW: dict[str, Any] = json.loads((HERE / "script.json").read_text())
CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text())
WRITERS = ("torch.utils.tensorboard", "tensorboardX", "tensorboard")


def main() -> None:
    import summary_writer  # type: ignore[import-not-found]

    sys.modules.update(dict.fromkeys(WRITERS, summary_writer))
    sys.modules["tyro"] = standin_for_tyro()
    if HOW["gymnasium_029"]:
        import gymnasium_029  # type: ignore[import-not-found]

        gymnasium_029.restore()
    copy = Path(tempfile.gettempdir()) / "repository"
    shutil.copytree(HERE / "repository", copy, copy_function=shutil.copyfile)
    os.chdir(copy)
    sys.path[0] = str(copy)
    sys.argv = [HOW["script"]]
    runpy.run_path(HOW["script"], run_name="__main__")


def standin_for_tyro() -> types.ModuleType:
    """A module `tyro` that has `cli` alone; whatever else of tyro is used raises an AttributeError that names it."""
    module = types.ModuleType("tyro")
    module.cli = cli  # type: ignore[attr-defined]
    return module


def cli(options: type, *_: object, **__: object) -> object:
    """The script's options, with the values of the trial. The budget begins here: packages are imported."""
    values, known = chosen(), {field.name for field in dataclasses.fields(options)}
    if missing := sorted(values.keys() - known):
        raise SystemExit(f"{options.__name__} in {HOW['script']} has no {', '.join(missing)} any more")
    with (Path(CONFIG["out"]) / "progress.jsonl").open("a") as progress:
        progress.write('{"ready": true}\n')
    return options(**values)


def chosen() -> dict[str, Any]:
    """Options that the trial sets: parameters with another value than at the import, the seed, and the steps."""
    params, imported = CONFIG["params"], HOW["defaults"]
    values = {name: value for name, value in params.items() if name not in imported or imported[name] != value}
    if HOW["seed"]:
        values[HOW["seed"]] = CONFIG["seed"]
    if HOW["steps"] and CONFIG["budget_steps"]:
        values[HOW["steps"]] = CONFIG["budget_steps"]
    return values


if __name__ == "__main__":
    main()
