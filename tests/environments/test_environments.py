"""Environments: every bundled one conforms, and a bad one is refused with its file, its key and its value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import environments
from environments import Environment, plugins
from environments.plugins import Refused
from environments.space import Value
from flows.spec.environment import checked_environment
from tasks.proposers import Proposer
from tasks.store.workspace import fill, trainer_files
from tests.support.toy import QUADRATIC, quadratic

BUNDLED = environments.bundled()


def loaded(name: str) -> Environment:
    return environments.named(name)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_environment_loads_and_can_be_judged(name: str) -> None:
    environment = loaded(name)
    if environment.lacks:
        pytest.skip(environment.lacks)
    environment.check()
    assert environment.name == name
    assert environment.title and environment.editable
    assert environment.complete(environment.defaults) == environment.defaults


@pytest.mark.parametrize("name", BUNDLED)
def test_the_parameters_of_a_bundled_environment_are_those_that_its_program_takes(name: str) -> None:
    """Only for a trainer of ours: it refuses what it does not know, so its source names it."""
    environment = loaded(name)
    source = "".join(path.read_text() for path, _ in trainer_files(environment.trainer))
    # A parameter, or a short name of a key of its settings file.
    named = r"^ +{0}: \w+( = |$)|\"{0}\": \"(trainer|orchestrator)\."
    unknown = [key for key in environment.defaults if not re.search(named.format(key), source, re.MULTILINE)]
    assert environment.trainer == "command" or unknown == []


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (
            "cartpol",
            "unknown environment 'cartpol'. Did you mean 'cartpole'? Available: ant, arithmetic,",
        ),
        ("./nowhere", "nowhere has no environment.toml, so it is no environment: `nightshift env new` writes one"),
    ],
)  # fmt: skip
def test_an_environment_that_is_nowhere_is_refused(reference: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        environments.find(reference)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('title = "Quad', 'titel = "Quad', "titel: unknown key. Did you mean 'title'?"),
        ("[limits]", "eval_cnd = 1\n[limits]", "[command]: eval_cnd: unknown key. Did you mean 'eval_cmd'?"),
        ("[space.x]", "[space.y]\ntype = 'int'\nlow = 1\nhigh = 2\ndefault = 1\nvalues = [1]\n[space.x]",
         "space.y.values: unknown key."),
        ('judge = "command"', 'judge = "comand"', "judge: unknown judge 'comand'. Did you mean 'command'?"),
        ("[space.x]", "[fixed]\nx = 1\n[space.x]", "'x' stands in [space] and in [fixed]: keep one"),
    ],
)  # fmt: skip
def test_a_bad_environment_is_refused_with_file_and_key(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert QUADRATIC.count(old) >= 1
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace(old, new, 1))
    with pytest.raises(Refused) as refused:
        environments.load(folder)
    assert f"{folder / 'environment.toml'}: {why}" in str(refused.value)


@pytest.mark.parametrize("path", ["/etc/hostname", "link.py", "../quad/fit.py"])
def test_a_program_outside_the_environments_folder_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "other.py").touch()
    toml = QUADRATIC.replace('program = ["fit.py"]', f'program = ["fit.py", "{path}"]')
    folder = quadratic(tmp_path / "quad", toml=toml)
    (folder / "link.py").symlink_to(tmp_path / "other.py")
    why = f"{folder / 'environment.toml'}: program: '{path}' is not in the environment's folder"
    with pytest.raises(Refused, match=re.escape(why)):
        environments.load(folder).check()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("--x {x}", "--x {xx}", "--x {xx} --out {out}': unknown placeholder 'xx'. Did you mean 'x'?"),
        ('trainer = "command"', 'trainer = "ppoo"', "trainer: unknown trainer 'ppoo'. Did you mean 'ppo'?"),
        ("{out} {result}", "{outt} {result}", "[command] command line 'python judge.py {outt} {result}': unknown"),
    ],
)  # fmt: skip
def test_a_command_line_that_cannot_be_filled_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace(old, new, 1))
    with pytest.raises(Refused) as refused:
        checked_environment(str(folder), {})
    assert str(refused.value).startswith(f"{folder / 'environment.toml'}: ")
    assert why in str(refused.value)


NASTY = "a b; rm -rf / {x} $(id) 'q"
"""A value that may not break out of its place."""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run --lr {model.lr} {seed:03d}", ["run", "--lr", "0.1", "007"]),
        ("run {amp:--amp} {dry:--dry}", ["run", "--amp"]),
        ("run {amp:--amp|--no-amp} {dry:--dry|--wet}", ["run", "--amp", "--wet"]),
        ("run --amp={amp} --data {prepared} x{dry:y}", ["run", "--amp=True", "--data", "", "x"]),
        ("run --x={nasty} {{literal}}", ["run", f"--x={NASTY}", "{literal}"]),
    ],
)
def test_a_name_may_have_dots_and_a_truth_value_may_be_a_switch(command: str, words: list[str]) -> None:
    values = {"model.lr": 0.1, "seed": 7, "amp": True, "dry": False, "prepared": "", "nasty": NASTY}
    assert fill(command, values) == words


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"learning_rat": 0.1}, "unknown parameter 'learning_rat'. Did you mean 'learning_rate'? Available:"),
        ({"learning_rate": 5}, "parameter 'learning_rate' must be a number in 1e-05..0.01, got 5"),
        ({"num_envs": 9}, "parameter 'num_envs' must be one of [8, 16, 32], got 9"),
        ({"hidden": 128}, "parameter 'hidden' is fixed at 64 in cartpole, got 128"),
    ],
)  # fmt: skip
def test_a_proposal_outside_the_space_is_refused(params: dict[str, Value], why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        loaded("cartpole").complete(params)


def test_an_unknown_plug_in_is_refused_with_the_near_miss() -> None:
    with pytest.raises(Refused, match=r"unknown proposer 'grit'\. Did you mean 'grid'\? Available: agent, best_of_n"):
        plugins.load("tasks.proposers", "grit", Proposer)  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('readable = ["../results"]', "readable: '../results' is not in the environment's folder"),
        ('readable = ["judge.py"]', "readable: 'judge.py' shows 'judge.py' of the judge to the program"),
        ('readable = ["/"]', "readable: '/' holds the whole environment"),
    ],
)
def test_what_a_program_may_read_and_must_call_is_checked_before_anything_runs(
    tmp_path: Path, line: str, why: str
) -> None:
    (tmp_path / "results").mkdir()
    folder = quadratic(tmp_path / "quad", toml=line + "\n" + QUADRATIC)
    with pytest.raises(Refused) as refused:
        checked_environment(str(folder), {})
    assert why in str(refused.value)
