"""The files for SkyPilot and cloud pools: their programs parse, and the packages that read them accept them.

Those packages are not ours. CLOUD_PYTHON names an interpreter that has them:

    python3 -m venv /tmp/cloud
    /tmp/cloud/bin/pip install skypilot 'prefect-aws>=0.7.12,<0.8' 'prefect-kubernetes>=0.8,<0.9'
    CLOUD_PYTHON=/tmp/cloud/bin/python make test
"""

from __future__ import annotations

import json
import os
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
HOW = "CLOUD_PYTHON names no Python with {}: the first lines of this file say how one is made"


def settings(name: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((CLOUDS / name).read_text())
    return made


def of_ecs() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The task definition, the deployment for it, and the claim of Kubernetes."""
    (deployment,) = settings("ecs.prefect.yaml")["deployments"]
    return settings("ecs-task-definition.yaml"), deployment, settings("kubernetes-claim.yaml")


def accepted(package: str, program: str, told: str, home: Path) -> None:
    """Run a program on the standard input with the interpreter that has the package; skip where there is none."""
    python = os.environ.get("CLOUD_PYTHON", "")
    there = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    if not python or subprocess.run([python, "-c", there], capture_output=True, check=False).returncode:
        pytest.skip(HOW.format(package))
    done = subprocess.run(
        [python, "-c", program], input=told, cwd=home, env={**os.environ, "HOME": str(home)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


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


def test_skypilot_reads_both_of_its_files(tmp_path: Path) -> None:
    program = "import sys, sky\ntask = sky.Task.from_yaml_str(sys.stdin.read())\nassert task.run and task.resources"
    assert len(SKY) == 2
    for path in SKY:
        accepted("sky", program, path.read_text(), tmp_path)


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


def test_aws_takes_the_task_definition(tmp_path: Path) -> None:
    program = """
import json, sys
import botocore.session, botocore.validate
model = botocore.session.get_session().get_service_model("ecs").operation_model("RegisterTaskDefinition")
report = botocore.validate.ParamValidator().validate(json.load(sys.stdin), model.input_shape)
sys.exit(report.generate_report() or None)
"""
    accepted("botocore", program, json.dumps(of_ecs()[0]), tmp_path)


def test_the_worker_of_ecs_takes_the_deployment_with_the_task_definition(tmp_path: Path) -> None:
    program = """
import asyncio, json, sys, types
from prefect_aws.workers.ecs_worker import ECSJobConfiguration, ECSWorker
definition, variables = json.load(sys.stdin)
template = ECSWorker.get_default_base_job_template()
assert set(variables) <= set(template["variables"]["properties"]), variables
nobody = types.SimpleNamespace()  # without blocks to look up it asks no server
made = asyncio.run(ECSJobConfiguration.from_template_and_values(template, variables, client=nobody))
assert made.task_run_request["launchType"] == "EC2"
assert made.task_run_request["taskDefinition"] == variables["task_definition_arn"]
ECSWorker._validate_task_definition(None, definition, made)
"""
    definition, deployment, _ = of_ecs()
    told = json.dumps([definition, deployment["work_pool"]["job_variables"]])
    accepted("prefect_aws", program, told, tmp_path)


def test_kubernetes_takes_the_claim_and_drops_nothing_of_it(tmp_path: Path) -> None:
    program = """
import asyncio, json, sys, types
from kubernetes_asyncio import client
async def check(told):
    async with client.ApiClient() as api:
        made = api.deserialize(types.SimpleNamespace(data=told), "V1PersistentVolumeClaim")
        assert api.sanitize_for_serialization(made) == json.loads(told), made
asyncio.run(check(sys.stdin.read()))
"""
    accepted("kubernetes_asyncio", program, json.dumps(of_ecs()[2]), tmp_path)
