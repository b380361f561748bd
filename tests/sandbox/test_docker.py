"""What a container of Docker is left, and its deployment adds, is what bubblewrap needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.levels import SANDBOXED

CHECKOUT = Path(__file__).parents[2]
DOCKER = (
    "chown", "dac_override", "fsetid", "fowner", "mknod", "net_raw", "setgid", "setuid", "setfcap", "setpcap",
    "net_bind_service", "sys_chroot", "kill", "audit_write",
)  # fmt: skip
"""The capabilities that Docker leaves a container. Source: the manual of `docker run`, runtime privilege."""


@pytest.mark.slow
@pytest.mark.skipif("bwrap" not in SANDBOXED, reason="bubblewrap does not work here")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up what Docker takes away")
def test_bubblewrap_works_with_what_docker_leaves_and_the_deployment_adds_and_with_nothing_less() -> None:
    catalogue = yaml.safe_load((CHECKOUT / "docker/gpu.prefect.yaml").read_text())
    (docker,) = [one for one in catalogue["deployments"] if one["name"] == "gpu-pair-docker"]
    added = docker["work_pool"]["job_variables"]["container_create_kwargs"]["cap_add"]
    added = tuple(name.lower() for name in added)
    assert best_level((*DOCKER, *added)) == "bwrap"
    for one in added:
        assert best_level((*DOCKER, *(name for name in added if name != one))) != "bwrap"


def best_level(capabilities: tuple[str, ...]) -> str:
    """The best level for a process that can have these capabilities at most."""
    kept = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    code = "import json; from tasks.sandbox.isolation import choose; print(json.dumps(choose('auto')))"
    done = subprocess.run(
        ["setpriv", "--inh-caps=-all", f"--bounding-set={kept}", sys.executable, "-c", code],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout))
