"""Model files of a program are bytes to the engine: nothing outside the sandbox unpickles them.

Programs do load models: their trainers, and the programs that judge text, which run in the sandbox.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.toy import FIT, GREEDY, nightshift, quadratic, status

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


BOMBS = """
import numpy, zipfile
bomb = b"cos\\nmkdir\\n(V" + CANARY.encode() + b"\\ntR."
for name in ("model.pkl", "model.pt", "model.pth", "model.joblib", "model.safetensors", "data.bin"):
    (args.out / name).write_bytes(bomb)
for name in ("zip.pt", "zip.ckpt", "zip.keras"):
    with zipfile.ZipFile(args.out / name, "w") as archive:
        for member in ("archive/data.pkl", "data.pkl"): archive.writestr(member, bomb)
with (args.out / "model.npy").open("wb") as file:
    numpy.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    file.write(bomb)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_red_team_no_verb_unpickles_what_a_program_left(tmp_path: Path, home: Path) -> None:
    """A campaign whose models are bombs: certified, compared, run again, recorded, shown, pruned. None goes off."""
    canary = tmp_path / "canary"
    folder = quadratic(tmp_path / "env", fit=f"CANARY = {str(canary)!r}\n{FIT}{BOMBS}")
    options = ("--trials", "2", "--proposer", "tpe", "--seed", "3")
    done = nightshift("run", str(folder), "--name", "bombs", *options, *GREEDY)
    assert done.returncode == 0, done.stdout + done.stderr
    verbs = (
        ("certify", "bombs"), ("compare", "bombs", "bombs/baseline", "--runs", "2"), ("rerun", "bombs", "1"), ("sync",),
        ("status", "bombs", "--json"), ("logs", "bombs", "1"), ("env", "validate", str(folder)), ("prune", "bombs"),
    )  # fmt: skip
    for verb in verbs:
        said = nightshift(*verb)
        assert said.returncode in (0, 1), (verb, said.stdout + said.stderr)
        assert "Traceback" not in said.stderr, verb
        assert not canary.exists(), verb
    assert json.dumps(status("bombs")["trials"]).count('"score": null') == 0
