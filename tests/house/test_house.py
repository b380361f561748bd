"""The rules of the house: what stands where, who may import whom, and what the command line costs."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import environments
from environments import plugins

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks", "blocks", "environments")
HEAVY = (
    "prefect",
    "mlflow",
    "torch",
    "gymnasium",
    "litellm",
    "pandas",
    "numpy",
    "scipy",
    "optuna",
    "pydantic",
    "httpx",
)
HEAVY_FOR_TESTS = re.compile(
    r"datasets|huggingface_hub|litellm|matplotlib|mlflow|optuna|peft|safetensors|sklearn|torch|transformers|trl|verifiers"
)
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
MAX_LINES = 400
MAX_LINES_OF_A_TRAINER = 600  # a trainer is one program, read from top to bottom; its parts are files


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


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_an_init_file(package: str) -> None:
    assert (CHECKOUT / package / "__init__.py").is_file()


def test_no_name_of_ours_shadows_a_module_of_the_standard_library_or_of_a_dependency() -> None:
    on_the_path = (CHECKOUT, CHECKOUT / "tests", CHECKOUT / "tasks/trainers")  # pytest puts them on sys.path
    ours = {path.stem for folder in on_the_path for path in folder.iterdir() if importable(path)}

    assert not ours & (sys.stdlib_module_names | dependency_names())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_named_like_a_package_that_it_would_be_mistaken_for(package: str) -> None:
    inside = {path.stem for path in (CHECKOUT / package).iterdir() if importable(path)}

    assert not inside & {*PACKAGES, *dependency_names()}


def importable(path: Path) -> bool:
    """Whether it can hide a module: a folder without an __init__.py is found only where nothing else is."""
    return path.suffix == ".py" or (path / "__init__.py").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_source_file_is_longer_than_the_limit(package: str) -> None:
    too_long = [path for path in (CHECKOUT / package).rglob("*.py") if lines_of(path) > limit_of(path)]

    assert not too_long


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def limit_of(path: Path) -> int:
    return MAX_LINES_OF_A_TRAINER if path.parent.name == "trainers" else MAX_LINES


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["env", "--help"], ["--version"]])
def test_the_command_line_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"import sys; from flows.cli.app import app; app({arguments!r}, result_action='return_value')"

    done = run(sys.executable, "-c", f"{code}; print('heavy:', *sorted(set({HEAVY!r}) & set(sys.modules)))")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_checks_of_a_campaign_and_single_runs_load_neither_prefect_nor_scipy() -> None:
    modules = "flows.spec.campaign_spec, flows.cli.running.foreground, flows.cli.running.single_run, tasks.record"

    done = run(sys.executable, "-c", f"import sys, {modules}; print({{'prefect', 'scipy'}} & set(sys.modules))")

    assert done.stdout == "set()\n", done.stderr


def test_a_status_loads_nothing_that_trains_sends_or_tests() -> None:
    code = """if True:
        import sys
        import flows.cli.seeing.status
        from tasks.deciding.level_filter import Observation, estimate
        estimate((1.0, 2.0, 4.0), [Observation("point", 1.5), Observation("record", 5.0), Observation("point", 2, 2, 1)])
        heavy = {"scipy", "prefect", "mlflow", "optuna", "flows.spec.campaign_spec", "tasks.tracking.client"}
        print((heavy | {"tasks.sandbox.program", "tasks.remote.jobs"}) & set(sys.modules))
    """

    done = run(sys.executable, "-c", code)

    assert done.stdout == "set()\n", done.stderr


def test_what_reads_a_certificate_is_made_with_the_first_one() -> None:
    code = """if True:
        import flows.cli.seeing.status
        from tasks.store import ledger, workspace
        deferred = (ledger.CERTIFICATE, ledger.ABLATION, ledger.RERUNS)
        print([each.pydantic_complete for each in deferred], workspace.TRIAL.pydantic_complete)
    """

    done = run(sys.executable, "-c", code)

    assert done.stdout == "[False, False, False] True\n", done.stderr


def test_a_list_of_campaigns_looks_neither_for_emoji_nor_at_its_end_for_garbage(tmp_path: Path) -> None:
    code = """if True:
        import gc, sys
        from flows.cli.seeing.verbs import list_
        list_()
        print("rich._emoji_codes" in sys.modules, gc.get_freeze_count() > 0)
    """

    done = run(sys.executable, "-c", code, NIGHTSHIFT_HOME=str(tmp_path))

    assert done.stdout.splitlines()[-1] == "False True", done.stderr


def test_the_console_script_points_to_something_callable() -> None:
    module, _, name = PYPROJECT["project"]["scripts"]["nightshift"].partition(":")

    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("package", ["environments.judges", "tasks.proposers", "tasks.trainers"])
def test_every_plug_in_that_is_listed_is_a_file(package: str) -> None:
    listed = plugins.names(package)

    assert listed
    assert [name for name in listed if not (CHECKOUT / package.replace(".", "/") / f"{name}.py").is_file()] == []


@pytest.mark.parametrize("name", environments.bundled())
def test_every_environment_has_its_toml_and_its_program_for_the_reader(name: str) -> None:
    folder = environments.find(name)
    assert folder.parent == CHECKOUT / "environments"
    assert (folder / "environment.toml").is_file() and (folder / "program.md").is_file()


@pytest.mark.parametrize("script", ["run", "setup"])
def test_the_scripts_of_the_continuous_integration_can_be_started(script: str) -> None:
    assert os.access(CHECKOUT / ".ci" / script, os.X_OK)


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", (CHECKOUT / "README.md").read_text(), re.MULTILINE))

    assert {"demo", "test", "setup", "check", "test-all", "bench"} <= targets
    assert {"demo", "test"} <= named <= targets


def test_nightshift_refuses_to_start_on_a_mixture_of_two_projects(tmp_path: Path) -> None:
    stranger = tmp_path / "tasks.py"
    stranger.write_text("")

    done = run(sys.executable, "-c", "import flows", cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{CHECKOUT}")

    assert done.returncode == 1
    assert str(stranger) in done.stderr
    assert str(CHECKOUT / "flows") in done.stderr
    assert "PYTHONPATH" in done.stderr
