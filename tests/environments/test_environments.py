"""Environments: every bundled one conforms, and a bad one is refused with its file, its key and its value."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import environments
from environments import earlier_trials
from environments.earlier_trials import EarlierTrial
from environments.plugins import Refused
from flows.cli.problems import TEMPLATES, env_new
from flows.cli.validation import warnings
from flows.spec.campaign_spec import checked_environment
from tasks.imports import lacking
from tasks.store.workspace import fill, trainer_files
from tests.support.toy import FIT, QUADRATIC, nightshift, quadratic

BUNDLED = environments.bundled()


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_environment_loads_and_can_be_judged_without_a_warning(name: str) -> None:
    environment = environments.named(name)
    assert warnings(environment) == []
    if environment.lacks:
        pytest.skip(environment.lacks)
    environment.check()
    assert environment.name == name
    assert environment.title and environment.editable
    assert environment.complete(environment.defaults) == environment.defaults


@pytest.mark.parametrize("name", [name for name in BUNDLED if environments.named(name).trainer != "command"])
def test_the_parameters_of_a_bundled_environment_are_those_that_its_program_takes(name: str) -> None:
    """A trainer of ours refuses what it does not know, so its source names it."""
    environment = environments.named(name)
    source = "".join(path.read_text() for path, _ in trainer_files(environment.trainer))
    # A parameter, or a short name of a key of its settings file.
    named = r"^ +{0}: \w+( = |$)|\"{0}\": \"(trainer|orchestrator)\."
    unknown = [key for key in environment.defaults if not re.search(named.format(key), source, re.MULTILINE)]
    assert unknown == []


BAD = [
    ('title = "Quad', 'titel = "Quad', "titel: unknown key. Did you mean 'title'?"),
    ('judge = "command"', 'judge = "comand"', "judge: unknown judge 'comand'. Did you mean 'command'?"),
    ("[space.x]", "[fixed]\nx = 1\n[space.x]", "'x' stands in [space] and in [fixed]"),
    ("--x {x}", "--x {xx}", "--x {xx} --out {out}': unknown placeholder 'xx'. Did you mean 'x'?"),
    ("{out} {result}", "{outt} {result}", "[command] command line 'python judge.py {outt} {result}': unknown"),
    *(('["fit.py"]', f'["fit.py", "{path}"]', f"program: '{path}' is not in the environment's folder")
      for path in ("/etc/hostname", "link.py", "../quad/fit.py")),
    ("title", 'readable = ["../results"]\ntitle', "readable: '../results' is not in the environment's folder"),
    ("title", 'readable = ["judge.py"]\ntitle', "readable: 'judge.py' shows 'judge.py' of the judge to the program"),
    ("title", 'readable = ["/"]\ntitle', "readable: '/' holds the whole environment"),
    ("low = -3.0", "low = 3.0", "space.x: low must be below high, got low = 3.0, high = 3.0"),
    ('type = "float"', 'type = "float"\nlog = true', "space.x: a log scale needs low > 0, got low = -3.0"),
    ('type = "float"', 'type = "choice"\nvalues = [1, 1]', "space.x"),
    ('["fit.py"]', '["."]', "program: '.' is not in the environment's folder"),
    ("[space.x]", '[prepare]\nprogram = "."\n[space.x]', "prepare: '.' is not in the environment's folder"),
    ('{out}"', '{out} {seed}"\nfixed = {seed = 3}', "train_cmd: {seed} is filled in by the engine"),
    ("python fit.py", "python9.9 fit.py", "train_cmd: no program 'python9.9' in "),
    ("python fit.py", "/no/such/venv/bin/python fit.py", "train_cmd: no program '/no/such/venv/bin/python' in "),
    ('trainer = "command"', 'trainer = "ppo"', "trainer = 'ppo' plays [control] id, and there is none"),
    ("python judge.py", "nosuchtool judge.py", "[command] eval_cmd: no program 'nosuchtool' in "),
    ("python fit.py", "./judge.sh", "train_cmd: './judge.sh' is not copied to where it runs: add it to `program`"),
]  # fmt: skip
"""A part of environment.toml, what stands in its place, and what is said of that before anything runs."""


@pytest.mark.parametrize(("old", "new", "why"), BAD)
def test_a_bad_environment_is_refused_with_file_and_key(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in QUADRATIC
    (tmp_path / "results").mkdir()
    (tmp_path / "other.py").touch()
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace(old, new, 1))
    (folder / "judge.sh").write_text("#!/bin/sh\n")
    (folder / "judge.sh").chmod(0o755)
    if "link.py" in new:  # else it is asked about
        (folder / "link.py").symlink_to(tmp_path / "other.py")
    with pytest.raises(Refused) as refused:
        checked_environment(str(folder), {})
    assert str(folder / "environment.toml") in str(refused.value) and why in str(refused.value)


@pytest.mark.parametrize("begin", ["./fit.sh", "fit.sh", "env A=1 sh fit.sh", "{environment}/made/later"])
def test_a_command_that_its_own_folder_this_machine_or_a_later_time_has_is_taken(tmp_path: Path, begin: str) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace("python fit.py", begin))
    (folder / "fit.sh").write_text("#!/bin/sh\n")
    (folder / "fit.sh").chmod(0o755)
    checked_environment(str(folder), {"program": ["fit.sh"]})
    elsewhere = checked_environment(str(folder), {"train_cmd": "of_an_image {out}"}, here=False)
    assert "no program 'of_an_image'" in lacking(elsewhere)[0]


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


def test_a_missing_module_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    toml = QUADRATIC.replace("[limits]", '[requires]\nno_such_module = "pip install nothing"\n[limits]')
    with pytest.raises(Refused) as refused:
        checked_environment(str(quadratic(tmp_path / "quad", toml=toml)), {})
    assert str(refused.value) == "quad needs the module 'no_such_module': run `pip install nothing`"


@pytest.mark.slow
@pytest.mark.skipif(bool(environments.named("hopper").lacks), reason="MuJoCo is not installed")
@pytest.mark.parametrize("name", ["hopper", "walker2d", "half_cheetah", "ant"])
def test_a_robot_trains_and_is_judged_in_the_sandbox(name: str) -> None:
    small = {"cores": 1, "budget_seconds": 60, "budget_steps": 1024, "control.episodes": 2, "control.other_episodes": 0}
    done = nightshift("try", name, "--json", *(f"--set={key}={value}" for key, value in small.items()))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["score"] is not None and found["n"] == 2 and found["steps"] >= 1024
    assert not [*Path(found["directory"]).rglob("MUJOCO_LOG.TXT")], "MuJoCo has warned of something"


def test_earlier_trials_are_read_as_they_were_written_and_a_line_that_is_none_is_refused(tmp_path: Path) -> None:
    trials = (
        EarlierTrial(
            params={"lr": 1e-3, "n": 3, "on": True, "kind": "é"}, score=-0.5, note="a note\nof two\u2028lines"
        ),
        EarlierTrial(params={}, score=None),
    )
    assert earlier_trials.read(tmp_path) == ()
    (tmp_path / earlier_trials.FILE).write_text("\n".join(one.model_dump_json() for one in trials), "utf-8")
    assert earlier_trials.read(tmp_path) == trials
    (tmp_path / earlier_trials.FILE).write_text('{"params": {}, "score": 1}\n{"params": {"lr": NaN}, "score": 1}\n')
    with pytest.raises(Refused, match=r"line 2: params\.lr"):
        earlier_trials.read(tmp_path)


# `env validate`: what is likely a mistake is warned of with its remedy, and what is in order is not.


SPACE = QUADRATIC[QUADRATIC.index("[space.x]") :]


def test_new_environments_the_readmes_ten_lines_a_switch_and_a_dotted_name_have_no_warning(tmp_path: Path) -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)
    (tmp_path / "environment.toml").write_text(toml)
    assert warnings(environments.load(tmp_path)) == []
    for kind in TEMPLATES:
        env_new(tmp_path / f"new-{kind}", kind=kind)
        made = environments.load(tmp_path / f"new-{kind}")
        made.check_files()
        assert warnings(made) == []
    switch = '\n[space.amp]\ntype = "choice"\nvalues = [true, false]\ndefault = false\n'
    dotted = '[space."model.lr"]\ntype = "float"\nlow = 0.0\nhigh = 1.0\ndefault = 0.5\n'
    toml = QUADRATIC.replace("--x {x}", "--x {x} {amp:--amp} --model.lr {model.lr}") + switch + dotted
    assert warnings(environments.load(quadratic(tmp_path / "quad", toml=toml))) == []
    always = FIT + "\nparser.add_argument('--amp', type=bool)"
    (warning,) = warnings(environments.load(quadratic(tmp_path / "bool", always, toml=toml)))
    assert "type=bool" in warning and "{amp:--amp}" in warning


@pytest.mark.parametrize(
    ("old", "new", "warning", "remedy"),
    [
        ("judge.py {out} {result}", "judge.py {result}", "eval_cmd cannot see", "argument {out}"),
        ("--x {x} --out", "--out", "parameter 'y' stands neither", "--y {y}"),
        (SPACE, "", "there is no [space]", "space.lr ="),
        (SPACE, SPACE.replace("space.x", "space.seed"), "space.seed: a search would pick", "config.json"),
        ('metric = "loss"', 'metric = "pass@1"', 'direction = "minimize"', "turn the direction round"),
        ('direction = "minimize"', 'direction = "maximize"', "for the metric 'loss'", "turn the direction round"),
    ],
)
def test_a_likely_mistake_is_warned_of_with_its_remedy(
    tmp_path: Path, old: str, new: str, warning: str, remedy: str
) -> None:
    toml = QUADRATIC.replace(old, new, 1)
    if "'y'" in warning:
        toml = toml.replace("space.x", "space.y")
    assert toml != QUADRATIC
    found = warnings(environments.load(quadratic(tmp_path / "quad", toml=toml)))
    assert len([one for one in found if warning in one and remedy in one]) == 1, found
