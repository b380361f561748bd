"""`env validate`: what is likely a mistake is warned of with its remedy, and what is in order is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import environments
from environments import FILE
from environments.plugins import Refused
from flows.cli.problems import write_environment
from flows.cli.validation import warnings
from flows.spec.environment import checked_environment
from tests.support.toy import QUADRATIC, nightshift, quadratic

SPACE = QUADRATIC[QUADRATIC.index("[space.x]") :]


@pytest.mark.parametrize("name", environments.bundled())
def test_a_bundled_environment_has_no_warning(name: str) -> None:
    assert warnings(environments.named(name)) == []


def test_the_template_and_the_readmes_ten_lines_have_no_warning(tmp_path: Path) -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)
    (tmp_path / "environment.toml").write_text(toml)
    assert warnings(environments.load(tmp_path)) == []
    write_environment(tmp_path / "fresh")
    assert warnings(environments.load(tmp_path / "fresh")) == []


def test_an_environment_for_another_machine_is_valid_here_with_what_is_lacking(home: Path) -> None:
    done = nightshift("env", "validate", "gsm8k", "--json")
    assert done.returncode == 0, done.stderr
    doubts = json.loads(done.stdout)["warnings"]
    assert Path("/opt/prime-rl").exists() or any("/opt/prime-rl" in doubt for doubt in doubts)


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


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('program = ["fit.py"]', 'program = ["."]', "program: '.' is not in the environment's folder"),
        ("[space.x]", '[prepare]\nprogram = "."\n[space.x]', "prepare: '.' is not in the environment's folder"),
        ("{x} --out", "{x} --seed {seed} --out", "train_cmd: {seed} is filled in by the engine"),
    ],
)
def test_what_could_never_work_is_refused_before_anything_runs(tmp_path: Path, old: str, new: str, why: str) -> None:
    toml = QUADRATIC.replace(old, new, 1) + "\n[fixed]\nseed = 3\n"
    with pytest.raises(Refused, match=re.escape(f"{FILE}: {why}")):
        checked_environment(str(quadratic(tmp_path / "quad", toml=toml)), {})


def test_a_switch_and_a_dotted_name_are_read_in_a_command(tmp_path: Path) -> None:
    switch = '\n[space.amp]\ntype = "choice"\nvalues = [true, false]\ndefault = false\n'
    dotted = '[space."model.lr"]\ntype = "float"\nlow = 0.0\nhigh = 1.0\ndefault = 0.5\n'
    toml = QUADRATIC.replace("--x {x}", "--x {x} {amp:--amp} --model.lr {model.lr}") + switch + dotted
    assert warnings(environments.load(quadratic(tmp_path / "quad", toml=toml))) == []
