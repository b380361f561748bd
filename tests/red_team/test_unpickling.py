"""Model files of a program are bytes to the engine: nothing outside the sandbox unpickles them.

Programs do load models: their trainers, and the programs that judge text, which run in the sandbox.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SANDBOXED = ("tasks/trainers/", "tasks/importing/programs/", "environments/judges/_generate.py")
"""Programs that are run in the sandbox."""
UNPICKLING = {"pickle", "cPickle", "_pickle", "joblib", "dill", "cloudpickle", "shelve"}
LOADING = {"load", "loads", "read_pickle", "load_model", "from_pretrained", "fromfile", "load_file"}
LIBRARIES = {"numpy", "np", "torch", "pandas", "pd", "mlflow", "safetensors", "transformers", "keras", "yaml", "scipy"}
"""Libraries that unpickle, or may, when they load."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("flows", "tasks", "environments", "blocks"):
        for path in sorted((CHECKOUT / package).rglob("*.py")):
            name = path.relative_to(CHECKOUT).as_posix()
            if not name.startswith(SANDBOXED):
                yield name, ast.parse(path.read_text())


def loads(tree: ast.Module) -> Iterator[str]:
    """The owners of calls of the form `owner.load(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOADING:
            yield ast.unparse(node.func.value)


def test_red_team_no_source_outside_the_sandbox_can_unpickle() -> None:
    """Neither the modules that do, nor a `load` of a library that may."""
    found = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [
                    f"{name} imports {one.name}" for one in node.names if one.name.partition(".")[0] in UNPICKLING
                ]
            if isinstance(node, ast.ImportFrom) and (library := (node.module or "").partition(".")[0]):
                names = {one.name for one in node.names}
                if library in UNPICKLING or (library in LIBRARIES and names & LOADING):
                    found.append(f"{name} imports {names} of {library}")
        found += [f"{name}: {owner}.load" for owner in loads(tree) if owner.partition(".")[0] in LIBRARIES]
    assert found == []
