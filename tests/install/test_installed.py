"""The whole way of somebody who installs the wheel: campaigns in an empty folder, a kill, deployments."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed import Installed, install, source, wheel
from tests.support.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    built = wheel(source(tmp_path_factory.mktemp("source")))
    return install(built, tmp_path_factory.mktemp("installed with spaces"))


@pytest.fixture
def data(installed: Installed) -> Path:
    return installed.home / ".local/share/nightshift"


def campaign(installed: Installed, name: str) -> dict[str, Any]:
    shown = installed.nightshift("status", name, "--json")
    assert shown.returncode == 0, shown.stderr
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def test_a_campaign_is_killed_resumed_and_reported(installed: Installed, data: Path) -> None:
    options = ["--name", "night", "--trials", "4", "--rule", "greedy", "--tracking", "off"]
    command = [f"{installed.prefix}/bin/nightshift", "run", "showcase", *options]
    with subprocess.Popen(
        command, cwd=installed.cwd, env=installed.environment(), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_for((data / "night/trials/0001").exists, seconds=400)
        os.killpg(process.pid, signal.SIGKILL)
    assert campaign(installed, "night")["state"] == "interrupted"
    resumed = installed.nightshift("resume", "night")
    assert resumed.returncode == 0, resumed.stderr
    finished = campaign(installed, "night")
    assert finished["state"] == "finished"
    assert [row["trial"] for row in finished["trials"]] == [0, 1, 2, 3, 4]
    assert installed.nightshift("report", "night").returncode == 0
    assert (data / "night/report.html").is_file()
    checks = {each["name"]: each for each in json.loads(installed.nightshift("doctor", "--json").stdout)["checks"]}
    assert str(data) in checks["home"]["fact"] and list(installed.cwd.iterdir()) == []


def test_the_catalogue_is_deployed_and_a_run_of_it_is_a_campaign(installed: Installed, tmp_path: Path) -> None:
    up = installed.nightshift("up")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        login = (installed.home / ".local/share/nightshift/.prefect/auth").read_text().strip()
        (url,) = re.findall(r"PREFECT_API_URL=(\S+)", up.stdout)
        (deploy,) = re.findall(r"^ +deploy +\S*prefect (.*)$", up.stdout, re.MULTILINE)

        def prefect(*arguments: str) -> None:
            more = {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": login, "PREFECT_HOME": str(tmp_path / "prefect")}
            command = [str(installed.python), "-m", "prefect", *arguments]
            done = installed.run(*command, cwd=tmp_path, **more)
            assert done.returncode == 0, done.stdout + done.stderr

        prefect(*shlex.split(deploy))
        advanced = json.dumps({"rule": "greedy", "tracking": "off"})
        parameters = ["environment=showcase", "name=deployed", "trials=1", f"advanced={advanced}"]
        options = [word for parameter in parameters for word in ("-p", parameter)]
        prefect("deployment", "run", "campaign/campaign", *options, "--watch")
        assert campaign(installed, "deployed")["state"] == "finished"
    finally:
        installed.nightshift("down", "--now")
