"""Our own MLflow server over real HTTP: who is let in, and which files it gives and takes."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.server import mlflow_process
from flows.views.own_servers import own_servers
from tasks.sandbox.confinement import Level
from tasks.store.ledger import Ledger
from tasks.system.daemon import Daemon, Note
from tasks.system.login import login_file, split_login, stored_login
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync
from tasks.trial import Trial
from tests.support.champions import cart
from tests.support.ledgers import created
from tests.support.levels import SANDBOXED
from tests.support.mlflow_records import artifacts_of, make_trial, put, runs_of
from tests.support.strangers import is_nothing, of_a_trial, of_another_user
from tests.tracking.test_champion_model import register

SECRET = f"canary-{secrets.token_hex(12)}"


@dataclass(frozen=True)
class Served:
    """The server, what a campaign recorded before it was started, and files that are none of its business."""

    home: Path
    note: Note
    run: str
    """The run of a trial that was recorded without a server."""
    outside: Path
    """A folder with the file `secret`."""
    client: httpx.Client

    @property
    def url(self) -> str:
        return self.note.url

    @property
    def login(self) -> tuple[str, str]:
        known = split_login(stored_login(self.home))
        assert known is not None
        return known

    @property
    def artifacts(self) -> Path:
        (found,) = self.home.glob(f"artifacts/quad/{self.run}/artifacts")
        return found

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = self.client.request(method, f"{self.url}{path}", **{"auth": self.login, **more})
        assert SECRET not in answer.text, (path, more)
        return answer

    def put_raw(self, path: str, content: str) -> int:
        """PUT to a path as it stands, which most clients tidy up; the status."""
        user = base64.b64encode(":".join(self.login).encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", httpx.URL(self.url).port or 0, timeout=60)
        with closing(connection):
            connection.request("PUT", path, content, {"Authorization": f"Basic {user}"})
            return connection.getresponse().status

    def made(self, path: str, **body: Any) -> Any:
        answer = self.ask("POST", f"/api/2.0/mlflow/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def is_untouched(self) -> bool:
        """Whether nothing was added outside, nor changed."""
        found = [path.name for path in self.outside.iterdir()]
        return found == ["secret"] and (self.outside / "secret").read_text() == SECRET


def recorded(ledger: Ledger, store: Store, trial: Trial) -> str:
    """Record a campaign with one more trial; that one's run."""
    put(ledger, trial)
    done = sync(ledger, store, "finished")
    assert done.problem == ""
    return done.runs[max(done.runs)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Iterator[Served]:
    """One server for this module."""
    home = tmp_path_factory.mktemp("served") / "runs"
    (home / ".prefect").mkdir(mode=0o700, parents=True)
    shutil.copy(empty_mlflow, home / "mlflow.db")
    outside = home.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("NIGHTSHIFT_HOME", str(home))
        run = recorded(created(home.parent), Store(f"sqlite:///{home}/mlflow.db", home), make_trial())
    mlflow = Daemon(home / ".prefect", "mlflow")
    try:
        mlflow_process.start(home, auth=True)
        note = mlflow.living()
        assert note is not None and note.auth
        with httpx.Client(timeout=60, trust_env=False) as client:
            yield Served(home, note, run, outside, client)
    finally:
        mlflow.end()


# Who is let in

PATHS = (
    "/", "/health", "/version", "/static-files/index.html", "/graphql", "/get-artifact", "/ajax-api/3.0/mlflow/server-info",
    "/api/2.0/mlflow/experiments/search?max_results=9", "/api/2.0/mlflow-artifacts/artifacts", "/no/such/path", "//health",
)  # fmt: skip


def test_no_path_answers_without_the_login(served: Served) -> None:
    logins = (None, ("nightshift", ""), ("nightshift", "wrong"), ("", served.login[1]))
    for path, login, method in itertools.product(PATHS, logins, ("GET", "POST", "OPTIONS")):
        answer = served.ask(method, path, auth=login)
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Basic"), (method, path)
        assert "access-control-allow-origin" not in answer.headers


def test_the_pages_and_their_requests_open_with_it(served: Served) -> None:
    page = served.ask("GET", "/", headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"})
    assert page.is_success and "<html" in page.text
    own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    found = served.ask("POST", "/ajax-api/2.0/mlflow/runs/search", headers=own, json={"experiment_ids": ["1"]})
    assert {run["info"]["run_id"] for run in found.json()["runs"]} >= {served.run}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421), ({"Host": "evil.example:5000"}, 421), ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403), ({"Origin": "http://127.0.0.1:8888"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)  # fmt: skip
def test_a_web_page_gets_nothing_even_from_a_browser_that_knows_the_login(
    served: Served, headers: dict[str, str], status: int
) -> None:
    where = {"run_uuid": served.run, "path": "log.txt"}
    assert served.ask("GET", "/get-artifact", params=where, headers=headers).status_code == status
    made = served.ask("POST", "/api/2.0/mlflow/experiments/create", headers=headers, json={"name": "theirs"})
    assert made.status_code == status


STRANGERS = (*PATHS[:-1], "POST /api/2.0/mlflow/experiments/create")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_this_machine_gets_nothing(served: Served) -> None:
    got = of_another_user(served.note, served.home, STRANGERS)
    assert is_nothing(got, STRANGERS), got
    assert served.login[1].encode() not in Path(f"/proc/{served.note.pid}/cmdline").read_bytes()


@pytest.mark.parametrize("level", SANDBOXED)
def test_a_trial_with_a_network_gets_nothing(served: Served, tmp_path: Path, level: Level) -> None:
    got = of_a_trial(served.note, served.home, STRANGERS, tmp_path, level)
    assert is_nothing(got, STRANGERS), got


# Our own commands get in by themselves


def test_a_campaign_is_recorded_there_without_being_told_the_login(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "somebody-else")
    ledger = Ledger.at(served.home / "n")
    run = recorded(ledger, Store(served.url.replace("127.0.0.1", "localhost"), served.home), make_trial(8))
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "somebody-else", "the next store may be somebody else's"
    assert "MLFLOW_TRACKING_USERNAME" not in os.environ
    direct = Store(f"sqlite:///{served.home}/mlflow.db", served.home)
    assert {"log.txt", "out"} <= artifacts_of(direct, run)
    assert {found.info.run_id for found in runs_of(direct, ledger)} == {served.run, run}
    assert served.login[1] not in (ledger.path / "mlflow.json").read_text()


def test_the_exported_lines_let_any_client_in(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = [server.environment for server in own_servers(served.home)]
    assert served.login[1] not in line
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    shown = " ".join(f"${name}" for name in names)
    done = subprocess.run(["sh", "-c", f"{line}; echo {shown}"], capture_output=True, text=True, check=True)
    for name, value in zip(names, done.stdout.split(), strict=True):
        monkeypatch.setenv(name, value)
    from mlflow import MlflowClient

    assert MlflowClient().get_run(served.run).info.run_id == served.run


# What was recorded before, and from a terminal, still opens


def test_what_a_campaign_recorded_without_a_server_is_served(served: Served) -> None:
    listed = served.ask("GET", "/ajax-api/2.0/mlflow/artifacts/list", params={"run_id": served.run}).json()
    assert {each["path"]: each["is_dir"] for each in listed["files"]} == {
        "config.json": False, "diff.patch": False, "log.txt": False, "out": True,
    }  # fmt: skip
    inside = served.ask("GET", "/api/2.0/mlflow/artifacts/list", params={"run_id": served.run, "path": "out"}).json()
    assert {"path": "out/policy.pt", "is_dir": False, "file_size": 7} in inside["files"]
    for path, content in (("log.txt", "ready\ndone\n"), ("out/policy.pt", "weights")):
        given = served.ask("GET", "/get-artifact", params={"run_uuid": served.run, "path": path})
        assert given.text == content and given.headers["content-disposition"].startswith("attachment")
    missing = served.ask("GET", "/get-artifact", params={"run_uuid": served.run, "path": "no/such/file"})
    assert missing.status_code == 404


def test_files_are_taken_by_every_way_in(served: Served) -> None:
    where = {"run_uuid": served.run, "path": "mine/picture.png"}
    for content in (b"one", b"another"):
        sent = served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=content)
        assert sent.is_success, sent.text
        assert served.ask("GET", "/get-artifact", params=where).content == content
    proxied = "/api/2.0/mlflow-artifacts/artifacts/proxied/deep/file"
    assert served.ask("PUT", proxied, content=b"sent").is_success
    assert (served.home / "artifacts/proxied/deep/file").read_text() == "sent"
    assert served.ask("GET", proxied).text == "sent"
    assert served.ask("DELETE", "/api/2.0/mlflow-artifacts/artifacts/proxied").is_success
    assert not (served.home / "artifacts/proxied").exists()
    assert not list((served.home / "artifacts").rglob(".artifact.*")), "nothing incomplete is left"


def test_a_registered_model_is_downloaded_from_it(served: Served) -> None:
    source = (served.artifacts / "out").as_uri()
    served.made("registered-models/create", name="policy")
    served.made("model-versions/create", name="policy", source=source, run_id=served.run)
    where = {"name": "policy", "version": "1", "path": "policy.pt"}
    assert served.ask("GET", "/model-versions/get-artifact", params=where).text == "weights"


LOAD = """
import mlflow
model = mlflow.pyfunc.load_model("models:/nightshift.environment@champion")
print(model.predict([[0.0, 0.0, 0.2, 0.0], [0.0, 0.0, -0.2, 0.0]]).tolist())
"""


@pytest.mark.slow
def test_a_champion_is_registered_there_and_loaded_with_the_login(served: Served, tmp_path: Path) -> None:
    assert "version 1, @champion" in register(Store(served.url, served.home), cart(tmp_path))
    user, password = served.login
    login = {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
    for variables, answer in ((login, "[1, 0]"), ({}, "")):
        environment = {**os.environ, "MLFLOW_TRACKING_URI": served.url, **variables}
        command = [sys.executable, "-W", "ignore", "-c", LOAD]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.strip() == answer, done.stderr


# Locations elsewhere


def elsewhere(served: Served) -> dict[str, str]:
    """Locations that are not below the home's artifacts, or do not stay there."""
    root = served.home / "artifacts"
    for name in ("link", "linked/deep"):
        (root / name).parent.mkdir(exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(served.outside)
    return {
        "a URI": served.outside.as_uri(),
        "a path": str(served.outside),
        "a host": f"file://host{served.outside}",
        "capitals": f"FILE://{served.outside}",
        "one slash": f"file:{served.outside}",
        "relative": "outside",
        "a relative URI": "file:outside",
        "upwards": f"{root}/../../outside",
        "upwards in a URI": f"{root.as_uri()}/../../outside",
        "upwards, encoded": f"{root.as_uri()}/%2e%2e/%2E%2E/outside",
        "upwards, a slash encoded": f"{root.as_uri()}/..%2f..%2foutside",
        "beside": f"{root.as_uri()}-2",
        "the home": served.home.as_uri(),
        "a link": (root / "link").as_uri(),
        "below a link": f"{root.as_uri()}/link/below",
        "a deeper link": str(root / "linked/deep"),
        "proxied upwards": "mlflow-artifacts:/../outside",
        "proxied upwards, encoded": "mlflow-artifacts:/%2e%2e/%2e%2e/outside",
        "another proxy": "mlflow-artifacts://127.0.0.1:9/x",
        "s3": "s3://bucket/path",
        "http": "http://127.0.0.1:9/x",
        "sftp": "sftp://127.0.0.1/etc",
    }


def test_no_experiment_is_made_with_a_location_elsewhere(served: Served) -> None:
    for name, location in elsewhere(served).items():
        body = {"name": f"experiment {name}", "artifact_location": location}
        made = served.ask("POST", "/api/2.0/mlflow/experiments/create", json=body)
        assert made.is_error, (name, made.text)
    assert served.is_untouched()


def test_no_model_version_is_made_with_a_source_elsewhere(served: Served) -> None:
    served.made("registered-models/create", name="elsewhere")
    for name, source in elsewhere(served).items():
        for more in ({}, {"run_id": served.run}, {"tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}]}):
            body = {"name": "elsewhere", "source": source, **more}
            made = served.ask("POST", "/api/2.0/mlflow/model-versions/create", json=body)
            assert made.is_error, (name, made.text)
    assert served.is_untouched()


def test_an_experiment_with_a_location_of_its_own_below_the_artifacts_is_made_and_used(served: Served) -> None:
    location = (served.home / "artifacts/of/their own").as_uri()
    experiment = served.made("experiments/create", name="inside", artifact_location=location)["experiment_id"]
    run = served.made("runs/create", experiment_id=experiment)["run"]["info"]["run_id"]
    where = {"run_uuid": run, "path": "file"}
    assert served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"x").is_success
    assert (served.home / "artifacts/of/their own" / run / "artifacts/file").read_text() == "x"


def test_the_files_of_an_experiment_that_another_program_put_elsewhere_are_not_served(served: Served) -> None:
    """As an earlier version, or a client of the database, may have."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{served.home}/mlflow.db")
    experiment = client.create_experiment("elsewhere", served.outside.as_uri())
    run = client.create_run(experiment).info.run_id
    place = served.outside / run / "artifacts"
    place.mkdir(parents=True)
    (place / "kept").write_text(SECRET)
    try:
        where = {"run_uuid": run, "run_id": run, "path": "kept"}
        for path in ("/get-artifact", "/api/2.0/mlflow/artifacts/list"):
            assert served.ask("GET", path, params=where).status_code == 400
        sent = served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"mine")
        assert sent.status_code == 400 and (place / "kept").read_text() == SECRET
        another = served.ask("POST", "/api/2.0/mlflow/runs/create", json={"experiment_id": experiment})
        assert another.status_code == 400 and "keeps files below" in another.text
    finally:
        shutil.rmtree(served.outside / run)


# Links and paths in folders of artifacts


@pytest.fixture
def trapped(served: Served) -> Iterator[Path]:
    """A run's folder of artifacts with links that lead outside."""
    place = served.artifacts
    links = {"secret.txt": served.outside / "secret", "folder": served.outside, "home": Path("../../../../..")}
    for name, target in links.items():
        (place / name).symlink_to(target)
    os.mkfifo(place / "pipe")
    yield place
    for name in (*links, "pipe"):
        (place / name).unlink(missing_ok=True)


INWARD = ("secret.txt", "folder/secret", "folder", "folder/", "home/.prefect/auth", "home/mlflow.db", "pipe")
UPWARD = (
    "../../../../.prefect/auth", "%2e%2e/%2e%2e/secret", "..%2f..%2fsecret", "%252e%252e%252fsecret", "a/../../x",
    "/etc/passwd", "file:///etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "..\\..\\x", "%00", "x" * 5000,
)  # fmt: skip


def test_no_path_leads_out_of_a_folder_of_artifacts(served: Served, trapped: Path) -> None:
    inside = {path.name for path in trapped.iterdir() if not path.is_symlink()}
    proxied = f"/api/2.0/mlflow-artifacts/artifacts/{trapped.relative_to(served.home / 'artifacts')}/"
    for path in (*INWARD, *UPWARD, "a\0b"):
        given = served.ask("GET", "/get-artifact", params={"run_uuid": served.run, "path": path})
        assert given.status_code in (400, 404) and served.login[1] not in given.text, path
        listed = served.ask("GET", "/api/2.0/mlflow/artifacts/list", params={"run_id": served.run, "path": path})
        assert listed.is_error or {each["path"] for each in listed.json().get("files", [])} <= inside, path
    for path in INWARD:
        assert served.ask("GET", proxied + path).status_code in (400, 404), path


def test_nothing_is_written_through_a_link_or_upwards(served: Served, trapped: Path) -> None:
    before = {path: path.read_bytes() for path in (login_file(served.home), Path("/etc/passwd"))}
    beside, proxied = set(served.home.iterdir()), trapped.relative_to(served.home / "artifacts")
    for path in ("folder/new", "folder/secret", "folder/deep/new", "home/new", "home/.prefect/auth", "folder"):
        where = {"run_uuid": served.run, "path": path}
        sent = served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"mine")
        assert sent.status_code in (200, 400), sent.text
        assert sent.is_error or path == "folder", "a link is replaced by a file of its name"
        assert served.put_raw(f"/api/2.0/mlflow-artifacts/artifacts/{proxied}/{path}", "mine") in (200, 400)
    for path in UPWARD:  # they are refused, or name a file in the folder
        where = {"run_uuid": served.run, "path": path}
        served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"mine")
        for prefix in (f"{proxied}/", ""):
            served.put_raw(f"/api/2.0/mlflow-artifacts/artifacts/{prefix}{path}", "mine")
    assert served.is_untouched()
    assert before == {path: path.read_bytes() for path in before}
    assert set(served.home.iterdir()) == beside


def test_a_link_is_neither_listed_nor_written_through_but_replaced_and_deleted(served: Served, trapped: Path) -> None:
    listed = served.ask("GET", "/api/2.0/mlflow/artifacts/list", params={"run_id": served.run}).json()["files"]
    assert not {each["path"] for each in listed} & {"secret.txt", "folder", "home", "pipe"}
    where = {"run_uuid": served.run, "path": "secret.txt"}
    assert served.ask("POST", "/ajax-api/2.0/mlflow/upload-artifact", params=where, content=b"mine").is_success
    assert (trapped / "secret.txt").read_text() == "mine" and not (trapped / "secret.txt").is_symlink()
    relative = trapped.relative_to(served.home / "artifacts")
    for name in ("folder/secret", "home/mlflow.db"):
        assert served.ask("DELETE", f"/api/2.0/mlflow-artifacts/artifacts/{relative}/{name}").is_error, name
    assert (served.home / "mlflow.db").exists() and served.is_untouched()
    assert served.ask("DELETE", "/api/2.0/mlflow-artifacts/artifacts/%2e").is_error
    assert served.ask("DELETE", "/api/2.0/mlflow-artifacts/artifacts/").is_error
    assert (trapped / "log.txt").exists()


def test_a_trace_whose_tag_points_elsewhere_gives_nothing(served: Served, trapped: Path) -> None:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    name, place = f"tr-{secrets.token_hex(16)}", TraceLocation.from_experiment_id("1")
    TracingClient(f"sqlite:///{served.home}/mlflow.db").start_trace(TraceInfo(name, place, 1, TraceState.OK))
    (served.outside / "traces.json").write_text(json.dumps({"spans": [SECRET]}))
    try:
        for location in (served.outside.as_uri(), (trapped / "folder").as_uri()):
            tag = {"key": "mlflow.artifactLocation", "value": location}
            assert served.ask("PATCH", f"/api/3.0/mlflow/traces/{name}/tags", json=tag).is_success
            for more in ({}, {"path": secrets.token_hex(16)}):
                where = {"request_id": name, **more}
                assert served.ask("GET", "/ajax-api/3.0/mlflow/get-trace-artifact", params=where).is_error
    finally:
        (served.outside / "traces.json").unlink()


def test_a_logged_model_stays_in_its_folder(served: Served, trapped: Path) -> None:
    made = served.ask("POST", "/api/2.0/mlflow/logged-models", json={"experiment_id": "1", "name": "model"})
    assert made.is_success, made.text
    info = made.json()["model"]["info"]
    place = Path(info["artifact_uri"].removeprefix("file://"))
    assert place.is_relative_to(served.home / "artifacts")
    place.mkdir(parents=True)
    (place / "link").symlink_to(served.outside)
    (place / "own").write_text("its own")
    files = f"/ajax-api/2.0/mlflow/logged-models/{info['model_id']}/artifacts/files"
    assert served.ask("GET", files, params={"artifact_file_path": "own"}).text == "its own"
    for path in ("link/secret", "../../../../mlflow.db", "/etc/passwd"):
        assert served.ask("GET", files, params={"artifact_file_path": path}).is_error
    listed = f"/api/2.0/mlflow/logged-models/{info['model_id']}/artifacts/directories"
    found = served.ask("GET", listed, params={"artifact_directory_path": "link"})
    assert found.is_error or found.json().get("files", []) == []


def test_uploads_in_parts_are_not_offered(served: Served, trapped: Path) -> None:
    for path in ("folder/secret", "new"):
        for kind in ("create", "complete", "abort"):
            body = {"path": path, "num_parts": 1, "upload_id": "1", "parts": []}
            answer = served.ask("POST", f"/api/2.0/mlflow-artifacts/mpu/{kind}/{path}", json=body)
            assert answer.is_error
    assert served.is_untouched()


def test_the_login_is_in_no_file_but_its_own(served: Served) -> None:
    written = [path for path in served.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in written if served.login[1].encode() in path.read_bytes()] == [login_file(served.home)]
    assert login_file(served.home).stat().st_mode & 0o777 == 0o600
