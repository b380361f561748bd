"""`nightshift doctor`: each fault of a machine or an environment has its line with a remedy, and no secret is shown."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.cli import doctor as checks
from flows.cli.doctor import Check, results
from tests.support.nvml import nvml
from tests.support.prime_rl_problem import laid
from tests.support.toy import QUADRATIC, SANDBOX, nightshift, quadratic, stated, told

NAMES = ["isolation", "gpus", "machine", "home", "prefect", "mlflow", "remote"]
SECRET = "hunter2x"


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def test_the_command_looks_at_everything_and_changes_nothing_but_making_the_home(home: Path, server: str) -> None:
    done = nightshift("doctor", "--json", server=server)
    document = json.loads(done.stdout)
    assert [check["name"] for check in document["checks"]] == NAMES
    for check in document["checks"]:
        assert check["state"] in ("ok", "note", "bad") and check["fact"]
        assert bool(check["remedy"]) == (check["state"] != "ok"), "what is not ok says what to do"
    assert f"{server} answers, " in done.stdout
    bad = [check for check in document["checks"] if check["state"] == "bad"]
    assert (document["healthy"], done.returncode) == (not bad, 1 if bad else 0)
    assert list(home.iterdir()) == []
    home.chmod(0o755)
    *lines, _ = nightshift("doctor").stdout.splitlines()
    assert [line.split()[1] for line in lines] == NAMES
    (line,) = [line for line in lines if line.split()[1] == "home"]
    assert line.startswith("note") and f"→ `chmod 700 {home}`" in line


def test_gpus_in_use_are_named_a_driver_that_fails_is_bad_and_no_driver_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch, ["GPU-aa", "GPU-bb"], lambda uuid: [os.getpid()] if uuid == "GPU-aa" else [])
    assert checks.gpus().state == "note" and f"process {os.getpid()}" in checks.gpus().fact
    nvml(monkeypatch, fault=pynvml.NVMLError_DriverNotLoaded)
    assert (checks.gpus().state, checks.gpus().fact) == ("bad", "Driver Not Loaded")
    nvml(monkeypatch, fault=pynvml.NVMLError_LibraryNotFound)
    assert checks.gpus().state == "note"


@pytest.mark.parametrize("uri", ["http://me:{secret}@127.0.0.1:9", "ftp://me:{secret}@host/x"])
def test_where_nothing_can_be_recorded_is_bad_and_shows_no_password(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    assert f"sqlite:///{tmp_path}/mlflow.db" in checks.mlflow().fact
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(secret=SECRET))
    check = results({"mlflow": checks.mlflow})["mlflow"]
    assert check.state == "bad" and check.remedy
    assert SECRET not in check.fact + check.remedy


needs_bwrap = pytest.mark.skipif(SANDBOX.level != "bwrap", reason="prime-rl's processes need bubblewrap")


def found(name: str, environment: Environment) -> Check:
    check = (checks.OF_ANY | checks.OF_PRIME_RL)[name]
    return results({name: lambda: check(environment)})[name]


def test_data_that_is_not_prepared_is_so_by_a_command_that_finds_the_environment(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "my problem", toml=f'{QUADRATIC}\n[prepare]\nprogram = "fit.py"\ndisk_gb = 0.01\n')
    remedy = found("data", environments.load(folder)).remedy
    assert shlex.split(remedy.split("`")[1]) == ["nightshift", "env", "prepare", str(folder)]


def test_an_environment_on_the_cpu_is_in_order_from_its_files_to_its_room(tmp_path: Path) -> None:
    made = checks.check_environment(environments.load(quadratic(tmp_path / "env")))
    assert {name: check.state for name, check in made.items()} == dict.fromkeys(checks.OF_ANY, "ok")


def machine(tmp_path: Path, python: str = "", **overrides: Value) -> Environment:
    """The stand-in's problem on a machine whose prime-rl's Python says this."""
    folder, checkout = laid(tmp_path)
    if python:
        (checkout / ".venv/bin/python").write_text(f"#!/bin/sh\n{python}\n")
    dotted = {name.replace("__", "."): value for name, value in {"gpus": 2, **overrides}.items()}
    return environments.load(folder, dotted)


@needs_bwrap
def test_a_machine_for_prime_rl_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = machine(tmp_path)
    monkeypatch.setenv("PATH", f"{environment.fixed['prime_rl']}/.venv/bin:/usr/bin:/bin")
    nvml(monkeypatch, fault=pynvml.NVMLError_LibraryNotFound)
    made = checks.check_environment(environment)
    assert list(made) == [*checks.OF_ANY, *checks.OF_PRIME_RL]
    assert [name for name, check in made.items() if check.state != "ok"] == ["data"], made


def toy(tmp_path: Path, line: str) -> Environment:
    """The quadratic with this line in its environment.toml."""
    toml = f"{QUADRATIC}\n{line}\n" if line.startswith("[") else stated(line)
    return environments.load(quadratic(tmp_path / "env", toml=toml))


@pytest.mark.parametrize(
    ("name", "made", "how", "word"),
    [
        ("environment", toy, {"line": 'program = ["fit.py", "gone.py"]'}, "gone.py"),
        ("environment", toy, {"line": 'readable = ["/nowhere/at/all"]'}, "/nowhere/at/all"),
        ("room", toy, {"line": 'device = "cuda"'}, "no usable GPU"),
        ("room", machine, {"gpus": 1}, "gpus = 1"),
        ("cuda", machine, {"python": "echo The NVIDIA driver on your system is too old >&2; exit 1"}, "driver on your"),
        ("dry_run", machine, {"fixed__prime_rl": "/nowhere"}, "no /nowhere/.venv/bin/rl"),
        ("dry_run", machine, {"fixed__group_size": 7}, "divisible by group_size 7"),
    ],
)
def test_a_fault_of_an_environment_or_of_a_gpu_box_is_bad_with_its_remedy(
    name: str, made: Callable[..., Environment], how: dict[str, Any], word: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    nvml(monkeypatch, fault=pynvml.NVMLError_LibraryNotFound)  # whatever this machine has
    check = found(name, made(tmp_path, **how))
    assert check.state == "bad" and word in check.fact and check.remedy, check


def test_options_about_an_environment_want_one_and_an_unknown_one_is_refused() -> None:
    for words in (["--set", "x=1"], ["--trust"]):
        with pytest.raises(Refused, match="--for"):
            told("doctor", *words)
    done = nightshift("doctor", "--for", "lunar_landr")
    assert done.returncode == 2 and done.stdout == "" and "lunar_lander" in done.stderr
