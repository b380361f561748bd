"""Reports of campaigns whose texts are hostile or secret, and on a disk without room."""

from __future__ import annotations

import contextlib
import http.server
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.report.write import write_report
from tasks.trial import History, Verdict
from tests.report.test_report import FINISHED, stored
from tests.support.histories import search, tried
from tests.support.ledgers import created

KEYS = {
    "ONE_API_KEY": "sk-one-0123456789-abcdefghij", "TWO_TOKEN": "two&<three>\"four'five|six`seven",
    "THREE_SECRET": "three/plus+equals=percent%slash\\back",
}  # fmt: skip


def told(history: History, text: str) -> History:
    """The history with this text wherever a program, a model or a person can put one."""
    return tuple(
        replace(
            trial,
            proposal=replace(
                trial.proposal, rationale=text, proposer=text, model=text, category=text,
                params={**trial.proposal.params, "choice": text}, edit=f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+{text}\n",
            ),
            verdict=replace(trial.verdict, reason=f"{text}\n| the log: {text}"),
            score=replace(trial.score, error=trial.score.error and text),
        )
        for trial in history
    )  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_no_page_holds_a_key_nor_half_of_one_nor_the_users_own_folder_nor_what_hides_others(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, key = tmp_path / "alice", KEYS[name]
    monkeypatch.setenv(name, key)
    monkeypatch.setenv("HOME", str(own))
    text = f'my key is {key}, in "{own}/lib/x.py"; {own}s is another; \u202eRTL\x00\x1b[31m\x07 \u2066x\ufeff'
    history = told(search(12, cancels=False), text)
    history = (*history, *told((replace(tried(history, None), verdict=Verdict("crash", key)),), key))
    ledger = stored(created(tmp_path), history)
    ledger.event("view", failed="report", error=f"refused: {key}")

    markdown = write_report(ledger, FINISHED)

    written = [ledger.path / "timeline.json", *home.glob("**/*.html")]
    assert {path.name for path in written} >= {"report.html", "index.html"}
    for text in (markdown, *(path.read_text() for path in written)):
        assert key not in text and key[:8] not in text and key[-8:] not in text
        assert not {*"\u202e\x00\x1b\x07\u2066\ufeff"} & {*text}
    page = (ledger.path / "report.html").read_text()
    assert f"[secret {name}]" in page
    assert f"{own}/" not in page and "~/lib/x.py" in page and f"{own}s is another" in page


HOSTILE = (
    "<script>document.title='owned'</script>", "</style><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">", "\"><svg onload=\"document.title='owned'\">",
    "' onmouseover='document.title=1' x='", "</title><script>document.title='owned'</script>",
    "<meta http-equiv=refresh content='0;url=URL/meta'>", "<link rel=stylesheet href=URL/style>", "<iframe src=URL/frame>",
    "<img src=URL/img>", "</svg><image href=URL/svg>", "@import url(URL/css)", "<base href=URL/base>", "{{ 7*7 }}{% raw %}",
    "javascript:document.title='owned'", "]]><!--", "<form action=URL><button autofocus>", "\u202eRTL\x00\x1b[31m",
)  # fmt: skip


@contextlib.contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """An address, and what was asked there."""
    asked: list[str] = []

    class _Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Listener) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def browsed(page: Path, profile: Path) -> str:
    """A page's document after a browser has opened it and waited."""
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", f"--user-data-dir={profile}", "--virtual-time-budget=3000", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_runs_nothing_of_a_page_and_asks_nobody(tmp_path: Path, home: Path) -> None:
    with listener() as (url, asked):
        text = "\n".join(HOSTILE).replace("URL", url)
        history = told(search(12, cancels=False), text)
        ledger = stored(created(tmp_path), (*history, replace(tried(history, None), verdict=Verdict("crash", text))))
        write_report(ledger, FINISHED)
        for page in (ledger.path / "report.html", home / "index.html"):
            shown = browsed(page, tmp_path / "profile")
            assert "</html>" in shown and "<title>owned" not in shown and "<script" not in shown, page.name
        proof = tmp_path / "proof.html"  # the browser of this test does run scripts and ask
        proof.write_text(f"<title>t</title><img src={url}/proof><script>document.title='owned'</script>")
        assert "<title>owned" in browsed(proof, tmp_path / "profile")
        time.sleep(0.5)

    assert asked == ["/proof"]


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file grows beyond this size, as on a disk without room.

    Python does not notice that a .pyc is cut off, so none is written meanwhile.
    """
    (soft, hard), writes_none = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes_none


def test_a_report_that_does_not_fit_leaves_the_old_one_whole(tmp_path: Path, home: Path) -> None:
    history = search(6, cancels=False)
    ledger = stored(created(tmp_path), history[:5])
    write_report(ledger, FINISHED)
    before = {
        path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.suffix in (".html", ".json")
    }
    stored(ledger, history[5:])

    with files_of_at_most(4096), pytest.raises(OSError, match=r"report\.html"):
        write_report(ledger, FINISHED)

    assert all(path.read_bytes() == content for path, content in before.items())
    assert not list(ledger.path.glob(".report*"))
