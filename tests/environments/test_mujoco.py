"""The robots of MuJoCo: one folder, four names; refused where MuJoCo is missing, and judged like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.spec.environment import checked_environment
from tests.support.toy import QUADRATIC, nightshift, quadratic

ROBOTS = ("hopper", "walker2d", "half_cheetah", "ant")
needs_mujoco = pytest.mark.skipif(bool(environments.named("hopper").lacks), reason="MuJoCo is not installed")


def test_a_missing_module_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    toml = QUADRATIC.replace("[limits]", '[requires]\nno_such_module = "pip install nothing"\n[limits]')
    folder = quadratic(tmp_path / "quad", toml=toml)
    with pytest.raises(Refused) as refused:
        checked_environment(str(folder), {})
    assert str(refused.value) == "quad needs the module 'no_such_module': run `pip install nothing`"


@needs_mujoco
@pytest.mark.slow
@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_trains_and_is_judged_in_the_sandbox(name: str) -> None:
    small = {"cores": 1, "budget_seconds": 60, "budget_steps": 1024, "control.episodes": 2, "control.other_episodes": 0}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    done = nightshift("try", name, "--json", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["score"] is not None and found["n"] == 2 and found["steps"] >= 1024
    assert not [*Path(found["directory"]).rglob("MUJOCO_LOG.TXT")], "MuJoCo has warned of something"
