"""`env validate`: what is likely a mistake is warned of with its remedy, and what is in order is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import environments
from environments import FILE
from environments.plugins import Refused
from flows.cli.problems.env_template import write_environment
from flows.cli.problems.warnings import warnings
from flows.spec.environment import checked_environment
from tests.support.toy import FIT, QUADRATIC, quadratic

SPACE = QUADRATIC[QUADRATIC.index("[space.x]") :]
IMPORTING = "import helper, json\nfrom tools.draw import line\n" + FIT


@pytest.mark.parametrize("name", environments.bundled())
def test_a_bundled_environment_has_no_warning(name: str) -> None:
    assert warnings(environments.named(name)) == []


def test_the_template_and_the_readmes_ten_lines_have_no_warning(tmp_path: Path) -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)
    (tmp_path / "environment.toml").write_text(toml)
    assert warnings(environments.load(tmp_path)) == []
    write_environment(tmp_path / "fresh")
    assert warnings(environments.load(tmp_path / "fresh")) == []


@pytest.mark.parametrize(
    ("old", "new", "warning", "remedy"),
    [
        ("--x {x} --out {out}", "--x {x}", "train_cmd never mentions {out}", "--out {out}"),
        ("judge.py {out} {result}", "judge.py {result}", "eval_cmd never mentions {out}", "argument such as {out}"),
        ("--x {x} --out", "--out", "parameter 'y' stands neither", "--y {y}"),
        (SPACE, "", "there is no [space]", "space.lr ="),
        (SPACE, SPACE.replace("space.x", "space.seed"), "space.seed: a search would pick", "config.json"),
        ("python fit.py", "cd . && python fit.py", "train_cmd: no shell reads it, so 'cd'", "bash -c"),
        ("python fit.py", "OMP_NUM_THREADS=2 python fit.py", "so 'OMP_NUM_THREADS=2'", "script"),
        ("--out {out}", "--out {out} > log.txt", "train_cmd: no shell reads it, so '>'", "bash -c"),
        ("python judge.py", "python $HOME/judge.py; python judge.py", "eval_cmd: no shell", "bash -c"),
        ("budget_seconds = 5", 'budget_seconds = "5"', "budget_seconds: '5' is a text", "leave out the quotes"),
        ("high = 3.0", 'high = "3e0"', "space.x.high: '3e0' is a text, not a number", "quotes"),
        ("deterministic = true", 'deterministic = "true"', "deterministic: 'true' is a text, not a boolean", "quotes"),
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
        ('program = ["fit.py"]', 'program = ["."]', "program: '.' is the environment's folder itself"),
        ('program = ["fit.py"]', 'program = ["fit.py", ""]', "program: '' is the environment's folder itself"),
        ("[space.x]", '[prepare]\nprogram = "."\n[space.x]', "prepare: '.' is the environment's folder itself"),
        ("{x} --out", "{x} --seed {seed} --out", "train_cmd: {seed} is filled in by the engine"),
        ("least_seconds = 0", "least_seconds = 8", "limits.least_seconds = 8, but a training ends after 7 s"),
        ("[space.x]", "[cancel.curv]\nfraction = 0.5\n[space.x]", "cancel: unknown canceller 'curv'"),
        ("[space.x]", "[cancel.curve]\nfraction = 2\n[space.x]", "cancel: canceller curve: fraction: Input should be"),
    ],
)
def test_what_could_never_work_is_refused_before_anything_runs(tmp_path: Path, old: str, new: str, why: str) -> None:
    toml = QUADRATIC.replace(old, new, 1) + "\n[fixed]\nseed = 3\n"
    with pytest.raises(Refused, match=re.escape(f"{FILE}: {why}")):
        checked_environment(str(quadratic(tmp_path / "quad", toml=toml)), {})


def test_a_parameter_may_have_a_name_of_the_engines_where_the_program_reads_its_configuration(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=f"{QUADRATIC}\n[fixed]\nseed = 3\n")
    assert checked_environment(str(folder), {}).defaults["seed"] == 3


def test_a_program_that_reads_its_configuration_needs_no_argument(tmp_path: Path) -> None:
    fit = "import json\nconfig = json.load(open('config.json'))\nx, out = config['params']['x'], config['out']\n"
    toml = QUADRATIC.replace(" --x {x} --out {out}", "")
    assert warnings(environments.load(quadratic(tmp_path / "quad", fit=fit, toml=toml))) == []


def test_a_module_that_the_program_imports_must_go_with_it(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", fit=IMPORTING)
    (folder / "helper.py").touch()
    (folder / "tools").mkdir()
    (folder / "tools/draw.py").touch()
    first, second = warnings(environments.load(folder))
    assert "fit.py imports helper.py" in first and "add 'helper.py' to program" in first
    assert "add 'tools' to program" in second
    toml = QUADRATIC.replace('["fit.py"]', '["fit.py", "helper.py", "tools"]')
    assert warnings(environments.load(quadratic(folder, fit=IMPORTING, toml=toml))) == []


def test_a_shell_may_be_asked_for(tmp_path: Path) -> None:
    toml = QUADRATIC.replace(
        '"python fit.py --x {x} --out {out}"', "\"bash -c 'cd . && python fit.py --x {x} --out {out}'\""
    )
    assert warnings(environments.load(quadratic(tmp_path / "quad", toml=toml))) == []
