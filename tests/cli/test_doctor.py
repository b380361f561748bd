"""`nightshift doctor`: what it finds wrong is wrong, nothing holds it up, and no secret gets into what it prints."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pynvml
import pytest

from flows.cli import doctor as checks
from flows.cli.app import app
from flows.cli.doctor import Check, results
from tests.support.nvml import nvml
from tests.support.toy import nightshift

NAMES = ["isolation", "gpus", "machine", "home", "disk", "prefect", "mlflow", "remote"]
SECRET = "hunter2x"


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed() -> str:
    """The address of a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_command_looks_at_everything_and_changes_nothing_but_making_the_home(home: Path) -> None:
    done = nightshift("doctor", "--json")
    document = json.loads(done.stdout)
    assert [check["name"] for check in document["checks"]] == NAMES
    for check in document["checks"]:
        assert check["state"] in ("ok", "note", "bad") and check["fact"]
        assert bool(check["remedy"]) == (check["state"] != "ok"), "what is not ok says what to do"
    bad = [check for check in document["checks"] if check["state"] == "bad"]
    assert (document["healthy"], done.returncode) == (not bad, 1 if bad else 0)
    assert list(home.iterdir()) == []


def test_what_is_not_well_is_a_line_with_its_remedy_and_the_exit_code_says_so(closed: str) -> None:
    done = nightshift("doctor", PREFECT_API_URL=f"http://me:{SECRET}@{closed}/api")
    assert done.returncode == 1
    *lines, _ = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == NAMES
    (line,) = [line for line in lines if line.split()[1] == "prefect"]
    assert line.startswith("BAD") and closed in line and "→ " in line
    assert SECRET not in done.stdout + done.stderr


def test_a_home_that_cannot_be_made_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "file/runs"))
    call = ["doctor", "--json", "--for", "cartpole"]
    assert app(call, exit_on_error=False, print_error=False, result_action="return_value") == 1
    home = json.loads(capsys.readouterr().out)["checks"][-1]
    assert home["state"] == "bad" and "Not a directory" in home["fact"] and "NIGHTSHIFT_HOME" in home["remedy"]


def test_a_check_that_fails_is_bad_and_the_others_are_told() -> None:
    def fail() -> Check:
        raise PermissionError(13, "Permission denied", "/somewhere")

    found = results({"fails": fail, "fine": lambda: Check("ok", "well")})
    assert list(found) == ["fails", "fine"] and found["fine"] == Check("ok", "well")
    assert found["fails"].state == "bad" and "/somewhere" in found["fails"].fact and found["fails"].remedy


# The machine


def test_gpus_in_use_are_named_a_driver_that_fails_is_bad_and_no_driver_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch, ["GPU-aa", "GPU-bb"], lambda uuid: [os.getpid()] if uuid == "GPU-aa" else [])
    assert checks.gpus().state == "note" and f"process {os.getpid()}" in checks.gpus().fact
    nvml(monkeypatch, fault=pynvml.NVMLError_DriverNotLoaded)
    assert (checks.gpus().state, checks.gpus().fact) == ("bad", "Driver Not Loaded")
    nvml(monkeypatch, fault=pynvml.NVMLError_LibraryNotFound)
    assert checks.gpus().state == "note"


def test_a_home_that_others_can_enter_is_a_note_and_one_that_cannot_be_written_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    check = checks.home_folder(tmp_path)
    assert check.state == "note" and f"chmod 700 {tmp_path}" in check.remedy
    tmp_path.chmod(0o700)
    assert checks.home_folder(tmp_path).state == "ok"
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert checks.home_folder(tmp_path).state == "bad"


def test_a_stated_prefect_server_is_asked(home: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{server}/")
    check = checks.prefect(home)
    assert check.state == "ok" and check.fact.startswith(f"{server} answers, ")


@pytest.mark.parametrize("uri", ["http://me:{secret}@{closed}", "ftp://me:{secret}@host/x"])
def test_where_nothing_can_be_recorded_is_bad_and_shows_no_password(
    uri: str, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"sqlite:///{tmp_path}/mlflow.db" in checks.mlflow(tmp_path).fact
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(secret=SECRET, closed=closed))
    check = results({"mlflow": lambda: checks.mlflow(tmp_path)})["mlflow"]
    assert check.state == "bad" and check.remedy
    assert SECRET not in check.fact + check.remedy
