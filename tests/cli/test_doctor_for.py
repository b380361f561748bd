"""`nightshift doctor --for`: each fault of a machine or an environment has its own line, and nothing is trained."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.cli import doctor_for
from flows.cli.doctor import Check, results
from tests.support.prime_rl_problem import laid
from tests.support.toy import QUADRATIC, SANDBOX, nightshift, quadratic, told

needs_bwrap = pytest.mark.skipif(SANDBOX.level != "bwrap", reason="prime-rl's processes need bubblewrap")


@pytest.fixture(autouse=True)
def home_is_there(home: Path) -> None:
    home.mkdir(mode=0o700, parents=True)


def states(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items()}


def found(name: str, environment: Environment, home: Path) -> Check:
    check = (doctor_for.OF_ANY | doctor_for.OF_PRIME_RL)[name]
    return results({name: lambda: check(environment, home)})[name]


# Any environment


def test_data_that_is_not_prepared_is_so_by_a_command_that_finds_the_environment(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "my problem", toml=f'{QUADRATIC}\n[prepare]\nprogram = "fit.py"\ndisk_gb = 0.01\n')
    remedy = found("data", environments.load(folder), home).remedy
    assert shlex.split(remedy.split("`")[1]) == ["nightshift", "env", "prepare", str(folder)]


def test_an_environment_on_the_cpu_is_in_order_from_its_files_to_its_room(tmp_path: Path, home: Path) -> None:
    checks = doctor_for.check_environment(environments.load(quadratic(tmp_path / "env")), home)
    assert states(checks) == dict.fromkeys(doctor_for.OF_ANY, "ok")


@pytest.mark.parametrize(
    ("name", "line", "word"),
    [
        ("environment", 'program = ["fit.py", "gone.py"]', "gone.py"),
        ("sandbox", 'readable = ["/nowhere/at/all"]', "/nowhere/at/all"),
        ("room", 'device = "cuda"', "no usable GPU"),
        ("data", '[prepare]\nprogram = "fit.py"\ndisk_gb = 1e6', "1e+06 GiB"),
    ],
)
def test_a_fault_of_an_environment_is_bad_with_its_remedy(
    name: str, line: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + ":/usr/bin:/bin")  # no nvidia-smi of this machine
    folder = quadratic(tmp_path / "env")
    file, key = folder / "environment.toml", line.partition(" ")[0]
    kept = [old for old in file.read_text().splitlines() if not old.startswith(key)]
    place = 0 if "[" not in line[:1] else len(kept)
    file.write_text("\n".join([*kept[:place], line, *kept[place:]]) + "\n")
    check = found(name, environments.load(folder), home)
    assert check.state == "bad" and word in check.fact and check.remedy


# prime-rl


def machine(tmp_path: Path, python: str = "", **overrides: Value) -> Environment:
    """The stand-in's problem on a machine whose prime-rl's Python says this."""
    folder, checkout = laid(tmp_path)
    (checkout / ".venv/bin/torchrun").touch()
    if python:
        (checkout / ".venv/bin/python").write_text(f"#!/bin/sh\n{python}\n")
    dotted = {name.replace("__", "."): value for name, value in {"gpus": 2, **overrides}.items()}
    return environments.load(folder, dotted)


@needs_bwrap
def test_a_machine_for_prime_rl_is_in_order(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = machine(tmp_path)
    monkeypatch.setenv("PATH", f"{environment.fixed['prime_rl']}/.venv/bin:/usr/bin:/bin")
    checks = doctor_for.check_environment(environment, home)
    assert list(checks) == [*doctor_for.OF_ANY, *doctor_for.OF_PRIME_RL]
    assert [name for name, check in checks.items() if check.state != "ok"] == ["data"], checks


@pytest.mark.parametrize(
    ("name", "how", "state", "word"),
    [
        ("room", {"gpus": 1}, "bad", "gpus = 1"),
        ("cuda", {"python": "echo The NVIDIA driver on your system is too old >&2; exit 1"}, "bad", "driver on your"),
        ("prime_rl", {"fixed__prime_rl": "/nowhere"}, "bad", "no /nowhere/.venv/bin/rl"),
        ("dry_run", {"fixed__group_size": 7}, "bad", "divisible by group_size 7"),
    ],
)
def test_a_fault_of_a_gpu_box_has_its_line(
    name: str, how: dict[str, Any], state: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    check = found(name, machine(tmp_path, **how), home)
    assert check.state == state and word in check.fact, check
    assert check.remedy


def test_a_python_that_a_trial_cannot_see_is_bad(tmp_path: Path, home: Path) -> None:
    environment = machine(tmp_path)
    elsewhere = tmp_path / "elsewhere/bin/python3.12"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    python = Path(str(environment.fixed["prime_rl"])) / ".venv/bin/python"
    python.unlink()
    python.symlink_to(elsewhere)
    check = found("prime_rl", environment, home)
    assert check.state == "bad" and str(elsewhere) in check.fact and "readable" in check.remedy


def test_options_about_an_environment_want_one_and_an_unknown_one_is_refused() -> None:
    for words in (["--set", "x=1"], ["--trust"]):
        with pytest.raises(Refused, match="--for"):
            told("doctor", *words)
    done = nightshift("doctor", "--for", "lunar_landr")
    assert done.returncode == 2 and done.stdout == "" and "lunar_lander" in done.stderr
