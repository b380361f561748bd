"""`nightshift doctor --for`: each fault of a machine or an environment has its own line, and real runs come last."""

from __future__ import annotations

import json
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
from flows.cli.doctor_checks import Check, at_once
from tests.support.fake_prime_rl.laying import Faults, base_model, lay
from tests.support.prime_rl_problem import laid
from tests.support.text_exam import TASKSET, stand_in
from tests.support.toy import FIT, QUADRATIC, SANDBOX, nightshift, quadratic, told

needs_bwrap = pytest.mark.skipif(SANDBOX.level != "bwrap", reason="prime-rl's processes need bubblewrap")
ORDER = ["environment", "sandbox", "room", "data"]
OF_PRIME_RL = ["prime_rl", "cuda", "dry_run"]


@pytest.fixture(autouse=True)
def home_is_there(home: Path) -> None:
    home.mkdir(mode=0o700, parents=True)


def states(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items()}


def found(name: str, environment: Environment, home: Path) -> Check:
    check = doctor_for.cheap_checks(environment, home)[name]
    return at_once({name: check}, doctor_for.REMEDIES, doctor_for.SECONDS)[name]


# Any environment


def test_data_that_is_not_prepared_is_so_by_a_command_that_finds_the_environment(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "my problem", toml=f'{QUADRATIC}\n[prepare]\nprogram = "fit.py"\ndisk_gb = 0.01\n')
    remedy = found("data", environments.load(folder), home).remedy
    assert shlex.split(remedy.split("`")[1]) == ["nightshift", "env", "prepare", str(folder)]


def test_an_environment_on_the_cpu_is_in_order_from_its_files_to_its_room(tmp_path: Path, home: Path) -> None:
    checks = doctor_for.check_environment(environments.load(quadratic(tmp_path / "env")), home, with_runs=False)
    assert states(checks) == dict.fromkeys(ORDER, "ok")


@pytest.mark.parametrize(
    ("name", "line", "word"),
    [
        ("environment", 'program = ["fit.py", "gone.py"]', "gone.py"),
        ("environment", 'eval_cmd = "python judge.py {out}"', "result"),
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
    place = kept.index("[command]") + 1 if key == "eval_cmd" else 0 if "[" not in line[:1] else len(kept)
    file.write_text("\n".join([*kept[:place], line, *kept[place:]]) + "\n")
    check = found(name, environments.load(folder), home)
    assert check.state == "bad" and word in check.fact and check.remedy


def test_a_module_that_a_program_imports_and_its_python_lacks_is_named(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "env", fit="import of_nobody.part\n" + FIT)
    check = found("sandbox", environments.load(folder), home)
    assert check.state == "bad" and "of_nobody" in check.fact and check.remedy


# prime-rl


def machine(tmp_path: Path, python: str = "", **overrides: Value) -> Environment:
    """The stand-in's problem on a machine whose prime-rl's Python says this."""
    folder, checkout = laid(tmp_path)
    if python:
        (checkout / ".venv/bin/python").write_text(f"#!/bin/sh\n{python}\n")
    dotted = {name.replace("__", "."): value for name, value in {"gpus": 2, **overrides}.items()}
    return environments.load(folder, dotted)


@needs_bwrap
def test_a_machine_for_prime_rl_is_in_order(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = machine(tmp_path)
    monkeypatch.setenv("PATH", f"{environment.fixed['prime_rl']}/.venv/bin:/usr/bin:/bin")
    checks = doctor_for.check_environment(environment, home, with_runs=False)
    assert list(checks) == [*ORDER, *OF_PRIME_RL]
    assert [name for name, check in checks.items() if check.state != "ok"] == ["data"], checks


@pytest.mark.parametrize(
    ("name", "how", "state", "word"),
    [
        ("room", {"gpus": 1}, "bad", "gpus = 1"),
        ("cuda", {"python": "echo The NVIDIA driver on your system is too old >&2; exit 1"}, "bad", "driver on your"),
        ("prime_rl", {"fixed__prime_rl": "/nowhere"}, "bad", "no /nowhere/.venv/bin/rl"),
        ("prime_rl", {"fixed__prime_rl_commit": "559b4477"}, "bad", "559b4477"),
        ("dry_run", {"fixed__prime_rl": "/nowhere"}, "note", "/nowhere"),
        ("dry_run", {"fixed__group_size": 7}, "bad", "divisible by group_size 7"),
        ("dry_run", {"fixed__stall_deadline": "soon"}, "bad", "stall_deadline"),
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


# Real runs


def test_a_short_training_goes_the_way_of_a_trial(tmp_path: Path, home: Path) -> None:
    environment = environments.load(quadratic(tmp_path / "env"))
    check = doctor_for.short_training(environment, home)
    assert check.state == "ok" and "loss 2.25" in check.fact
    assert doctor_for.answer(environment, home).fact == "its judge starts no language model"
    broken = environments.load(quadratic(tmp_path / "broken", fit="raise SystemExit('no luck')"))
    check = doctor_for.short_training(broken, home)
    assert check.state == "bad" and ".tries" in check.remedy


def test_a_run_of_minutes_is_shortened_and_asks_few_questions() -> None:
    gsm8k = environments.named("gsm8k_math")
    small = doctor_for.shortened(gsm8k)
    assert (small.budget_steps, small.budget_seconds) == (2, 300)
    assert small.judge.model_dump()["questions"] == 2 and small.judge.model_dump()["samples"] == 1
    assert doctor_for.shortened(environments.named("lunar_lander")).budget_seconds == 10


def test_what_is_bad_keeps_expensive_checks_from_being_made(tmp_path: Path, home: Path) -> None:
    environment = environments.load(quadratic(tmp_path / "env"), {"readable": ["/nowhere/at/all"]})
    checks = doctor_for.check_environment(environment, home, with_runs=True)
    assert list(checks) == [*ORDER, "answer", "short_training"]
    assert {checks[name].state for name in ("answer", "short_training")} == {"note"}
    assert "sandbox" in checks["answer"].fact and not (home / ".tries").exists()


def test_options_about_an_environment_want_one_and_an_unknown_one_is_refused() -> None:
    for words in (["--train"], ["--set", "x=1"], ["--trust"]):
        with pytest.raises(Refused, match="--for"):
            told("doctor", *words)
    done = nightshift("doctor", "--for", "lunar_landr")
    assert done.returncode == 2 and done.stdout == "" and "lunar_lander" in done.stderr


PREPARE = """\
import hashlib, json, pathlib, shutil, sys

folder = pathlib.Path(sys.argv[1])
shutil.copytree(pathlib.Path(__file__).with_name("base"), folder / "data/base")
(folder / "judge").mkdir()
for number, name in enumerate(("data/train", "judge/search", "judge/confirm", "judge/report")):
    lines = []
    for question in (f"{number}{n}+1" for n in range(4)):
        known = {"id": hashlib.sha256(question.encode()).hexdigest()[:16], "question": question, "answer": "1"}
        lines.append(json.dumps(known) + chr(10))
    (folder / f"{name}.jsonl").write_text("".join(lines))
"""


@pytest.mark.slow
@pytest.mark.skipif(SANDBOX.level == "landlock", reason="Landlock leaves a program no loopback to serve on")
@pytest.mark.parametrize(("mode", "state"), [("works", "ok"), ("fails", "bad")])
def test_the_judges_model_is_started_and_answers_with_a_token(
    mode: str, state: str, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "env"
    base_model(folder / "base")
    (folder / "base/generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    (folder / "taskset.py").write_text(TASKSET)
    (folder / "prepare.py").write_text(PREPARE)
    names = [path.relative_to(folder).as_posix() for path in folder.glob("base/*")]
    (folder / "environment.toml").write_text(
        'metric = "pass@1"\ndirection = "maximize"\ntrainer = "command"\ntrain_cmd = "true"\nbudget_seconds = 9\n'
        f'judge = "text"\ndevice = "cpu"\n[prepare]\nfiles = {json.dumps(names)}\ndisk_gb = 0.01\n'
        f'[text]\nquestions = 3\nbackend = "vllm"\nvllm = {json.dumps(str(stand_in(tmp_path)))}\n'
        f'vllm_args = ["--mode", "{mode}"]\nstart_seconds = 30\n'
    )
    check = doctor_for.answer(environments.load(folder), home)
    assert check.state == state, check
    if state == "bad":
        assert "Free memory on device" in check.fact and "judge.txt" in check.remedy


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize(("mode", "word"), [("normal", "2 steps"), ("out of memory", "out of GPU memory")])
def test_two_steps_of_prime_rl_go_through_recipe_launcher_and_judge(
    mode: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checkout = laid(tmp_path)
    lay(checkout, Faults(mode=mode))
    monkeypatch.setenv("PATH", f"{checkout}/.venv/bin:/usr/bin:/bin")
    check = doctor_for.short_training(environments.load(folder, {"gpus": 2}), home)
    assert (check.state == "ok") == (mode == "normal") and word in check.fact, check
