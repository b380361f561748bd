"""Reports over real HTTP: who is let in, which files are given, and that nothing else below the home is."""

from __future__ import annotations

import base64
import http.client
import os
import re
import secrets
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flows.report.write import write_report
from tasks.store.ledger import Ledger
from tasks.system.login import login_file, split_login, stored_login
from tests.report.test_report import FINISHED, stored
from tests.support.histories import search
from tests.support.ledgers import created
from tests.support.toy import start

SECRET = f"canary-{secrets.token_hex(12)}"
KEY = f"sk-{secrets.token_hex(12)}"
SECONDS = 120.0
"""How long the command may take to begin on a busy machine."""


@dataclass(frozen=True)
class Served:
    home: Path
    ledger: Ledger
    url: str
    said: str
    process: subprocess.Popen[str]
    client: httpx.Client

    @property
    def login(self) -> tuple[str, str]:
        known = split_login(stored_login(self.home))
        assert known is not None
        return known

    def ask(self, path: str, **more: object) -> httpx.Response:
        method = str(more.pop("method", "GET"))
        answer = self.client.request(method, f"{self.url}{path}", **{"auth": self.login, **more})  # type: ignore[arg-type]
        assert SECRET not in answer.text, path
        return answer

    def raw(self, path: str) -> int:
        """The status of a path as it stands, which most clients tidy up."""
        user = base64.b64encode(":".join(self.login).encode()).decode()
        with closing(http.client.HTTPConnection("127.0.0.1", httpx.URL(self.url).port or 0, timeout=60)) as connection:
            connection.putrequest("GET", path)
            connection.putheader("Authorization", f"Basic {user}")
            connection.endheaders()
            answer = connection.getresponse()
            assert SECRET.encode() not in answer.read(), path
            return answer.status


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for this module, over a home with a campaign and with what is none of a report's business."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_HOME", str(folder / "runs"))
        patch.setenv("SOME_API_KEY", KEY)
        ledger = stored(created(folder), search(5, cancels=False))
        write_report(ledger, FINISHED)
        place = ledger.place(1)
        place.log.write_text(f"ready\n<script>alert(1)</script>\nkey {KEY}\n")
        place.diff.write_text("--- a/x\n+++ b/x\n")
        fresh = ledger.path / "certificates/1-0003-champion-1"
        fresh.mkdir(parents=True)
        (fresh / "log.txt").write_text("ready\n")
        (ledger.path / "certificates/secret.txt").write_text(SECRET)
        (ledger.path / "progress.png").write_bytes(b"\x89PNG\r\n")
        for hidden in (
            folder / "outside",
            folder / "runs/outside",
            place.workspace,
            place.out,
            ledger.path / "program",
        ):
            hidden.mkdir(parents=True, exist_ok=True)
            (hidden / "log.txt").write_text(SECRET)
        (ledger.path / "stolen.png").symlink_to(folder / "outside/log.txt")
        (ledger.trials / "0099").symlink_to(folder / "outside")
        (folder / "runs/stolen").symlink_to(folder / "outside")
        (folder / "outside/report.html").write_text(SECRET)
        os.mkfifo(ledger.path / "pipe.png")
        with start("report", "--serve") as process, httpx.Client(timeout=60, trust_env=False) as client:
            try:
                assert process.stdout is not None
                assert select.select([process.stdout], [], [], SECONDS)[0], "it said nothing"
                lines = [process.stdout.readline().strip() for _ in range(3)]
                url = lines[0].removesuffix("/index.html")
                yield Served(folder / "runs", ledger, url, "\n".join(lines), process, client)
            finally:
                process.kill()


PAGES = (
    "/", "/index.html", "/n/report.html", "/n/trials/", "/n/trials/0001/", "/n/certificates/",
    "/n/certificates/1-0003-champion-1/",
)  # fmt: skip
FILES = (
    "/n/progress.png", "/n/timeline.json", "/n/spec.toml", "/n/trials/0001/log.txt", "/n/trials/0001/diff.patch",
    "/n/certificates/1-0003-champion-1/log.txt",
)  # fmt: skip


@pytest.mark.parametrize("path", [*PAGES, *FILES])
def test_what_a_report_shows_and_links_to_is_given_with_careful_headers(served: Served, path: str) -> None:
    answer = served.ask(path)

    assert answer.status_code == 200 and answer.content
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind == ("text/html" if path in PAGES else "image/png" if path.endswith("png") else kind)
    assert (kind == "text/html") == (path in PAGES)
    assert served.ask(path, method="HEAD").status_code == 200 and not served.ask(path, method="HEAD").content


def test_every_link_of_a_served_page_that_stays_here_opens(served: Served) -> None:
    for page in PAGES:
        base = httpx.URL(served.url).join(page)
        for link in re.findall(r'href="([^"#]+)"', served.ask(page).text):
            if not link.startswith("http"):
                assert served.ask(base.join(link).path).status_code == 200, (page, link)


def test_a_log_is_plain_text_without_keys(served: Served) -> None:
    answer = served.ask("/n/trials/0001/log.txt")

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "<script>" in answer.text and KEY not in answer.text and "[secret SOME_API_KEY]" in answer.text


HOSTILE = (
    "/../outside/log.txt", "/n/../../outside/log.txt", "/%2e%2e/outside/log.txt", "/n/%2e%2e/%2e%2e/outside/log.txt",
    "/n/trials/0001/..%2f..%2f..%2foutside/log.txt", "/..%5coutside%5clog.txt", "/n/trials/0001/%2e%2e/0001/log.txt",
    "//etc/passwd", "/etc/passwd", "/%2fetc/passwd", "/n//report.html", "/n/./report.html", "/n%2freport.html",
    "/N/report.html", "/n/report.html/", "/n/report.html%00.png", "/n/report%2ehtml", "/n/campaign.json", "/n/lock",
    "/n/program/log.txt", "/n/program/fit.py", "/n/environment/judge.py", "/n/trials/0001/trial.json",
    "/n/trials/0001/out/log.txt", "/n/trials/0001/workspace/log.txt", "/n/trials/0001/workspace/", "/n/trials/0099/log.txt",
    "/n/certificates/secret.txt", "/n/certificates/secret.txt/", "/n/certificates/../campaign.json", "/n/trials/0099/", "/n/stolen.png", "/n/pipe.png", "/stolen/report.html", "/stolen/trials/", "/outside/log.txt",
    "/.prefect/auth", "/.prefect/report.html", "/.index.html.lock", "/mlflow.db", "/n/", "/n", "/n/..", "/...", "/n/lineage.git/HEAD",
    "/n/results", "/n/trials/0001", "/n/trials/1/log.txt", "/n/trials/%30001/log.txt", "/n\\report.html", "/~root/.ssh/id_rsa",
    "http://127.0.0.1/outside/log.txt", "*", "/n/report.html;x=1", "/" + "a" * 4000, "/n/.report.html",
)  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path[:40])
def test_nothing_else_is_given(served: Served, path: str) -> None:
    assert served.raw(path) in (400, 404, 421)


def test_a_query_changes_nothing(served: Served) -> None:
    assert served.raw("/n/report.html?path=../../outside/log.txt") == 200


@pytest.mark.parametrize("login", [None, ("nightshift", ""), ("nightshift", "wrong"), ("", "")], ids=str)
def test_without_the_login_no_path_says_whether_there_is_a_file(served: Served, login: tuple[str, str] | None) -> None:
    for path in (*PAGES, *FILES, "/no/such/path", "/n/campaign.json"):
        answer = served.ask(path, auth=login)
        assert answer.status_code == 401 and answer.headers["x-content-type-options"] == "nosniff", path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421), ({"Host": "evil.example:4300"}, 421), ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403), ({}, 200),
    ],
)  # fmt: skip
def test_no_other_name_leads_here_and_no_other_sites_page_may_ask(
    served: Served, headers: dict[str, str], status: int
) -> None:
    assert served.ask("/n/report.html", headers=headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(served: Served, method: str) -> None:
    assert served.ask("/n/report.html", method=method, content=b"x").status_code in (405, 501)


def test_the_login_is_that_of_the_other_services_and_stays_private(served: Served) -> None:
    assert login_file(served.home).stat().st_mode & 0o777 == 0o600
    assert served.login[1].encode() not in Path(f"/proc/{served.process.pid}/cmdline").read_bytes()


def test_ctrl_c_ends_it(served: Served) -> None:
    """The last test of this server."""
    served.process.send_signal(signal.SIGINT)
    rest, _ = served.process.communicate(timeout=SECONDS)

    assert (served.process.returncode, rest) == (0, "")
    assert "login: cat" in served.said and served.login[1] not in served.said
    with pytest.raises(httpx.TransportError):
        served.ask("/")
