"""The files for SkyPilot and cloud pools: their programs parse, and the packages that read them accept them.

Those packages are not ours. CLOUD_PYTHON names an interpreter that has them:

    python3 -m venv /tmp/cloud
    /tmp/cloud/bin/pip install skypilot 'prefect-aws>=0.7.12,<0.8' 'prefect-kubernetes>=0.8,<0.9'
    CLOUD_PYTHON=/tmp/cloud/bin/python make test
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.app import app

CHECKOUT = Path(__file__).parents[2]
CLOUDS = CHECKOUT / "docs/clouds"
SKY = sorted(CLOUDS.glob("*.sky.yaml"))


def settings(name: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((CLOUDS / name).read_text())
    return made


def of_ecs() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The task definition, the deployment for it, and the claim of Kubernetes."""
    (deployment,) = settings("ecs.prefect.yaml")["deployments"]
    return settings("ecs-task-definition.yaml"), deployment, settings("kubernetes-claim.yaml")


@pytest.mark.parametrize("path", SKY, ids=lambda path: path.name)
@pytest.mark.parametrize("step", ["setup", "run"])
def test_a_program_of_a_machine_of_skypilot_is_one_of_bash_and_uses_variables_that_are_set(
    path: Path, step: str
) -> None:
    task = settings(path.name)
    done = subprocess.run(["bash", "-n"], input=task[step], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    used = set(re.findall(r"\$\{?([A-Z_]+)", task[step]))
    assert used <= {*task["envs"], *task.get("secrets", ()), "HOME", "PATH"}


def test_the_campaign_of_a_machine_of_skypilot_is_one_that_our_command_reads() -> None:
    task = settings("campaign.sky.yaml")
    lines = [line.strip() for line in task["run"].splitlines() if ".venv/bin/nightshift" in line]
    assert len(lines) == 2
    for line in lines:
        for name, value in task["envs"].items():
            line = re.sub(rf'"?\${name}\b"?', value, line)
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_the_task_definition_gives_what_the_image_and_the_deployment_expect() -> None:
    definition, deployment, claim = of_ecs()
    (container,), pool = definition["containerDefinitions"], deployment["work_pool"]
    ours = yaml.safe_load((CHECKOUT / "docker/gpu.prefect.yaml").read_text())["deployments"]
    (like,) = [one for one in ours if one["name"] == "gpu-pair-docker"]
    assert all(deployment[key] == like[key] for key in ("entrypoint", "parameters"))
    variables = pool["job_variables"]
    assert variables["container_name"] == container["name"]
    assert f"/{definition['family']}:" in variables["task_definition_arn"]
    mounted = {mount["containerPath"]: mount["sourceVolume"] for mount in container["mountPoints"]}
    assert {deployment["parameters"]["runs"], variables["env"]["NIGHTSHIFT_HOME"], "/tmp/nightshift-slots"} == {
        *mounted
    }
    assert set(mounted.values()) == {volume["name"] for volume in definition["volumes"]}
    kubernetes = (CHECKOUT / "docker/kubernetes.json").read_text()
    assert f'"default": "{claim["metadata"]["name"]}"' in kubernetes
