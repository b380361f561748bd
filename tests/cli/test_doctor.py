"""`nightshift doctor`: what it finds wrong is wrong, nothing holds it up, and no secret gets into what it prints."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest
from rich.console import Console

from blocks.tracking import Tracking
from flows.cli.app import app
from flows.cli.doctor import machine, report, services
from flows.cli.doctor.gpus import gpus
from flows.cli.doctor.machine import Check
from tasks.sandbox.isolation import Finding
from tasks.system.commands import Unanswered, ask, command_of
from tasks.system.daemon import Daemon, Note, identity
from tests.support.nvml import nvml
from tests.support.terminals import terminal
from tests.support.toy import nightshift

CHECKOUT = Path(__file__).parents[2]
NAMES = [
    "isolation", "limits", "gpus", "machine", "python", "names", "git", "training", "language", "keys",
    "home", "disk", "prepared", "slots", "ports", "prefect", "mlflow", "remote",
]  # fmt: skip
SECRET = "hunter2"


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*machine.KEYS, "PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed() -> str:
    """The address of a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def api() -> Iterator[tuple[str, dict[str, tuple[int, object]]]]:
    """A small Prefect API: its address, and the status and document that it answers at each path; else 404."""
    answers: dict[str, tuple[int, object]] = {"/api/health": (200, True), "/api/admin/version": (200, "3.8.8")}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = answers.get(self.path, (404, {"detail": "not found"}))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api", answers
        server.shutdown()
        thread.join()


def by_name(output: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(output)["checks"]}


def looked(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """`nightshift doctor --json` in this process: its exit code, and what it prints."""
    code = app(["doctor", "--json", *options], exit_on_error=False, print_error=False, result_action="return_value")
    return code, capsys.readouterr().out


# The command


def test_the_command_looks_at_everything_and_changes_nothing_but_making_the_home(home: Path) -> None:
    before = time.monotonic()
    done = nightshift("doctor", "--json")
    took = time.monotonic() - before
    document = json.loads(done.stdout)
    assert [check["name"] for check in document["checks"]] == NAMES
    for check in document["checks"]:
        assert {"name", "state", "fact", "remedy"} <= set(check)
        assert check["state"] in ("ok", "note", "bad") and check["fact"]
        assert bool(check["remedy"]) == (check["state"] != "ok"), "what is not ok says what to do"
    bad = [check for check in document["checks"] if check["state"] == "bad"]
    assert (document["healthy"], done.returncode) == (not bad, 1 if bad else 0)
    found = by_name(done.stdout)
    assert found["isolation"]["level"] in [level["level"] for level in found["isolation"]["levels"]]
    assert found["home"]["path"] == str(home) and found["disk"]["free_bytes"] > 0
    assert list(home.iterdir()) == []
    assert took < 30, "no more than what hangs would take"


def test_what_is_not_well_is_a_line_with_its_remedy_and_the_exit_code_says_so(closed: str) -> None:
    done = nightshift("doctor", PREFECT_API_URL=f"http://me:{SECRET}@{closed}/api")
    assert done.returncode == 1
    *lines, last = done.stdout.splitlines()
    assert [re.fullmatch(r" (ok  |note|BAD )  (\w+) +\S.*", line)[2] for line in lines] == NAMES  # type: ignore[index]
    (line,) = [line for line in lines if line.split()[1] == "prefect"]
    assert line.startswith(" BAD")
    assert f"PREFECT_API_URL = http://{closed}/api: no Prefect server answers there → start it (its address" in line
    bad = sum(line.startswith(" BAD") for line in lines)
    assert last == f"{bad} thing{'s' if bad > 1 else ''} to fix"
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("--for", "cartpole")])
def test_a_home_that_cannot_be_made_is_bad(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "file/runs"))
    code, shown = looked(capsys, *options)
    assert code == 1
    home = by_name(shown)["home"]
    assert home["state"] == "bad" and "Not a directory" in home["fact"] and "NIGHTSHIFT_HOME" in home["remedy"]


def test_gpus_are_told_with_who_uses_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nvml(monkeypatch, ["GPU-aa", "GPU-bb"], lambda uuid: [os.getpid()] if uuid == "GPU-aa" else [])
    _, shown = looked(capsys)
    check = by_name(shown)["gpus"]
    assert check["state"] == "note" and "CUDA_VISIBLE_DEVICES" in check["remedy"]
    used = f"0: NVIDIA H200, 140.4 GiB, used by process {os.getpid()} (this one)"
    assert check["fact"] == f"{used}; 1: NVIDIA H200, 140.4 GiB, free"
    assert [gpu["used_by"] for gpu in check["gpus"]] == [[os.getpid()], []]


def test_a_driver_that_fails_is_bad_in_its_own_words_and_no_driver_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, fault=pynvml.NVMLError_DriverNotLoaded)
    assert (gpus().state, gpus().fact) == ("bad", "Driver Not Loaded")
    nvml(monkeypatch, fault=pynvml.NVMLError_LibraryNotFound)
    assert gpus().state == "note" and "programs train on the CPU" in gpus().fact


# Commands that are asked


def test_a_command_that_does_not_end_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    with pytest.raises(Unanswered, match=r"sh .*0\.5 s"):
        ask(["sh", "-c", f"sleep 100 & echo $! > {noted}; wait"], 0.5)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(below := int(noted.read_text())) and time.monotonic() < deadline:
        if psutil.Process(below).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.02)
    assert time.monotonic() < deadline, "its child is still there"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-c", f"print(flush=True); input()  # {SECRET}"], "-c ..."),
        (["-u", "-X", "dev", "{script}", f"--key={SECRET}"], "{script}"),
    ],
)
def test_of_a_process_only_the_program_is_told(tmp_path: Path, arguments: list[str], shown: str) -> None:
    script = tmp_path / "serve.py"
    script.write_text("print(flush=True); input()")
    words = [word.replace("{script}", str(script)) for word in arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *words], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        said = command_of(process.pid)
        process.kill()
    assert said == f"{Path(sys.executable).name} {shown.replace('{script}', str(script))}"


def test_a_check_that_hangs_or_fails_is_bad_and_the_others_are_told() -> None:
    forever = threading.Event()

    def hang() -> Check:
        forever.wait()
        return Check("hangs", "ok", "")

    def fail() -> Check:
        raise PermissionError(13, "Permission denied", "/somewhere")

    fine = Check("fine", "ok", "well")
    hangs, fails, well = report.all_at_once({"hangs": hang, "fails": fail, "fine": lambda: fine}, seconds=0.3)
    forever.set()
    assert (hangs.state, hangs.fact) == ("bad", "no result within 0.3 s")
    assert fails.state == "bad" and "/somewhere" in fails.fact
    assert well == fine


# The machine


def level(*works: bool) -> tuple[Finding, ...]:
    names: tuple[Any, ...] = ("bwrap", "landlock", "none")
    return tuple(Finding(n, w, "" if w else f"no {n} here") for n, w in zip(names, works, strict=True))


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (level(True, True, True), "ok", ["isolation bwrap"]),
        (level(False, True, True), "note", ["isolation landlock", "no bwrap here"]),
        (level(False, False, True), "bad", ["code edits are refused", "no bwrap here", "no landlock here"]),
    ],
)
def test_the_level_of_isolation_is_told_with_why_it_is_no_better(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: tuple[Finding, ...], state: str, words: list[str]
) -> None:
    monkeypatch.setattr("tasks.sandbox.isolation.findings", lambda: found)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = machine.isolation()
    assert check.state == state
    assert [word for word in words if word not in check.fact] == []
    assert ("apt install bubblewrap" in check.remedy) == (state != "ok")


def test_the_versions_of_python_are_those_of_the_project() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    first, end = (".".join(map(str, v)) for v in (machine.FIRST_PYTHON, machine.FIRST_PYTHON_TOO_NEW))
    assert project["requires-python"] == f">={first},<{end}"
    assert machine.python().state == "ok"


def test_another_python_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FIRST_PYTHON_TOO_NEW", machine.FIRST_PYTHON)
    assert machine.python().state == "bad"


def test_a_missing_git_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"git \d+\.\d+.*", machine.git().fact)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (machine.git().state, machine.git().remedy) == ("bad", "install it: `apt install git`")


def test_what_trainers_need_is_a_note_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRAINING", {"torch": ("no-such-torch",), "numpy": ("no-such", "numpy")})
    check = machine.training()
    assert check.state == "note" and "without torch no bundled trainer runs; installed: numpy" in check.fact
    assert ".[ppo]" in check.remedy


def test_of_a_key_only_the_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.keys().state == "note"
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("GROQ_API_KEY", " ")
    assert report.document(machine.keys()) == {
        "name": "keys", "state": "ok", "fact": "set: OPENAI_API_KEY", "remedy": "", "keys": ["OPENAI_API_KEY"],
    }  # fmt: skip


def test_a_home_that_others_can_enter_is_a_note_and_one_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert (machine.place(tmp_path).state, machine.place(tmp_path).remedy) == ("note", f"`chmod 700 {tmp_path}`")
    tmp_path.chmod(0o700)
    assert machine.place(tmp_path).state == "ok"
    assert list(tmp_path.iterdir()) == []
    assert machine.place(Path("/proc")).state == "bad"


@pytest.mark.parametrize(("little", "none", "state"), [(0, 0, "ok"), (2**60, 0, "note"), (2**60, 2**60, "bad")])
def test_a_disk_with_little_room_is_a_note_and_a_full_one_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: int, none: int, state: str
) -> None:
    monkeypatch.setattr(machine, "LITTLE_DISK", little)
    monkeypatch.setattr(machine, "NO_DISK", none)
    assert machine.disk(tmp_path).state == state


# Prefect and MLflow


def test_a_port_is_free_ours_or_held_by_a_program_that_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".prefect").mkdir(parents=True)
    server = Daemon(home / ".prefect", "server")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(services, "SERVICES", (("server", "Prefect", port),))
        assert services.ports(home).state == "ok", "another one is chosen"
        server.remember(port)
        held = services.ports(home)
        assert held.state == "bad" and f"port {port}" in held.fact and f"(pid {os.getpid()})" in held.fact
        url = f"http://127.0.0.1:{port}/api"
        server.write(Note(url, os.getpid(), time.time(), identity(os.getpid()), auth=True))
        ours = services.ports(home)
        assert (ours.state, ours.fact) == ("ok", f"Prefect of this home runs at http://127.0.0.1:{port}")
    (home / ".prefect/server.json").unlink()
    free = services.ports(home)
    assert (free.state, free.fact) == ("ok", f"{port} is free for Prefect")


def test_where_no_server_is_stated_a_campaign_starts_its_own(home: Path) -> None:
    assert services.prefect(home).state == "ok"


def test_the_server_of_this_home_is_used_if_it_answers(home: Path, api: Any, closed: str) -> None:
    (home / ".prefect").mkdir(parents=True)
    daemon = Daemon(home / ".prefect", "server")
    daemon.write(Note(api[0], os.getpid(), time.time(), identity(os.getpid())))
    check = services.prefect(home)
    assert (check.state, check.details["version"]) == ("ok", "3.8.8") and api[0] in check.fact
    daemon.write(Note(f"http://{closed}/api", os.getpid(), time.time(), identity(os.getpid())))
    assert services.prefect(home).state == "note", "the next command starts it anew"


def test_a_stated_prefect_server_answers_asks_who_we_are_or_is_none(
    home: Path, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, answers = api
    monkeypatch.setenv("PREFECT_API_URL", f"{url}/")
    check = services.prefect(home)
    assert (check.state, check.details) == ("ok", {"url": url, "version": "3.8.8"})
    answers["/api/admin/version"] = (401, {})
    assert "PREFECT_API_AUTH_STRING" in services.prefect(home).remedy
    answers["/api/admin/version"] = (200, {"a": "page"})
    check = services.prefect(home)
    assert check.state == "bad" and "not a Prefect API" in check.fact


def test_where_the_saved_block_is_asked_for_is_where_a_server_keeps_it() -> None:
    assert f"/slug/{Tracking.get_block_type_slug()}/block_documents/name/nightshift" in services.BLOCK


def test_the_saved_block_comes_before_the_variable_and_the_variable_before_the_home(
    home: Path, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, answers = api
    assert services.where_recorded(home) == (f"sqlite:///{home}/mlflow.db", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "off")
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert services.where_recorded(home) == ("off", "MLFLOW_TRACKING_URI")
    answers[f"/api{services.BLOCK}"] = (200, {"data": {"uri": url.removesuffix("/api"), "token": "********"}})
    check = services.mlflow(home)
    assert check.state == "ok" and "set by the saved block nightshift" in check.fact
    answers[f"/api{services.BLOCK}"] = (500, {})
    check = services.mlflow(home)
    assert check.state == "note" and "its address is unknown" in check.fact


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        (f"http://me:{SECRET}@{{closed}}", "no MLflow server answers there"),
        (f"me:{SECRET}@mlflow.example.org", "MLflow keeps nothing in plain folders"),
        ("mlruns", "MLflow keeps nothing in plain folders"),
        ("sqlite:///", "MLflow keeps nothing in plain folders"),
        ("sqlite:////proc/none/mlflow.db", "/proc is not writable"),
    ],
)
def test_where_mlflow_cannot_record_is_bad_and_no_password_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str, uri: str, why: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(closed=closed))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path("/proc"))  # root may write anywhere
    check = services.mlflow(tmp_path)
    assert check.state == "bad" and why in check.fact
    assert SECRET not in json.dumps(report.document(check))


def test_a_file_that_is_not_there_yet_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert services.problem(f"sqlite:///{tmp_path}/a/b.db", tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "off")
    assert services.mlflow(tmp_path).state == "ok"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://127.0.0.1:5000/a@b", "http://b"),
        (f"https://me:{SECRET}@host/api", "https://host/api"),
        (f"mysql+pymysql://me:{SECRET}?/@#@host:1/db?password={SECRET}", "mysql+pymysql://host:1/db?..."),
        (f"me:{SECRET}@host", "host"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("off", "off"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(uri: str, shown: str) -> None:
    assert services.public(uri) == shown


# The terminal


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_on_a_terminal_reaches_its_edge_and_nothing_is_cut_off(width: int) -> None:
    fact, remedy = "a long fact " * 12, "a remedy with \x1b[31mcolour " * 6
    with terminal(width) as (console, written):
        report.tell(Check("isolation", "bad", fact, remedy), console, 9)
    plain = re.sub(r"\x1b\[[\d;]*m", "", b"".join(written).decode())
    lines = plain.split("\r\n")[:-1]
    assert max(map(len, lines)) < width and "\x1b" not in "".join(lines)
    assert lines[0].startswith(" BAD   isolation  a long fact")
    (begin,) = [number for number, line in enumerate(lines) if line.strip().startswith("→ ")]
    words = " ".join(line[len(" BAD   isolation  ") :].strip() for line in lines[:begin])
    assert words == fact.strip()
    assert "".join(lines[begin:]).count("remedy") == 6


def test_a_file_gets_one_line_for_a_check() -> None:
    console = Console(file=(file := io.StringIO()), width=40)
    report.tell(Check("disk", "note", "a long fact " * 12, "make room"), console, 9)
    assert file.getvalue() == f" note  disk       {'a long fact ' * 12}→ make room\n"
