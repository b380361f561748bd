"""The rules of the house: how much there is of it, what stands where, who may import whom."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks", "blocks", "environments")
HEAVY_FOR_TESTS = re.compile(
    r"datasets|huggingface_hub|litellm|matplotlib|mlflow|optuna|peft|safetensors|sklearn|torch|transformers|trl|verifiers"
)
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
SOURCE_LINES = 40_585
"""Only ever lowered."""


def run(*command: str, cwd: Path = CHECKOUT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)


def dependency_names() -> set[str]:
    project = PYPROJECT["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["ppo"]]
    return {re.split(r"[^\w.-]", requirement)[0].replace("-", "_") for requirement in requirements}


def test_the_import_layers_hold() -> None:
    done = run(str(Path(sys.executable).parent / "lint-imports"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_file_imports_what_is_heavy_before_a_test_of_it_runs() -> None:
    """Every worker of a test run collects every file. `LazyModule` imports on first use."""
    imports = re.compile(rf"^(?:from|import) (?:{HEAVY_FOR_TESTS.pattern})\b", re.MULTILINE)
    files = {path: path.read_text() for path in (CHECKOUT / "tests").rglob("*.py")}
    suspects = {path: ast.parse(text) for path, text in files.items() if imports.search(text)}  # it may be in a string
    found = {
        str(path): name
        for path, tree in suspects.items()
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if HEAVY_FOR_TESTS.fullmatch(name.partition(".")[0])
    }
    assert found == {}


def test_no_name_of_ours_shadows_a_module_of_the_standard_library_or_of_a_dependency() -> None:
    on_the_path = (CHECKOUT, CHECKOUT / "tests", CHECKOUT / "tasks/trainers")  # pytest puts them on sys.path
    ours = {path.stem for folder in on_the_path for path in folder.iterdir() if importable(path)}

    assert not ours & (sys.stdlib_module_names | dependency_names())


def importable(path: Path) -> bool:
    """Whether it can hide a module: a folder without an __init__.py is found only where nothing else is."""
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def test_the_source_has_no_more_lines_than_before() -> None:
    files = [path for package in PACKAGES for path in (CHECKOUT / package).rglob("*.py")]

    assert sum(len(path.read_text().splitlines()) for path in files) <= SOURCE_LINES


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", (CHECKOUT / "README.md").read_text(), re.MULTILINE))

    assert {"demo", "test", "setup", "check", "test-all", "bench"} <= targets
    assert {"demo", "test"} <= named <= targets
