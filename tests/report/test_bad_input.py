"""Reports of campaigns whose texts are hostile or secret, and on a disk without room."""

from __future__ import annotations

import re
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows.report import page
from flows.report.facts import Facts
from flows.report.page import write_report
from tasks.trial import History, Verdict
from tests.report.test_report import FINISHED, Page
from tests.support.histories import search, tried
from tests.support.ledgers import created, filled

KEYS = {
    "ONE_API_KEY": "sk-one-0123456789-abcdefghij", "TWO_TOKEN": "two&<three>\"four'five|six`seven",
    "THREE_SECRET": "three/plus+equals=percent%slash\\back",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "</style><script>alert(1)</script>", '"><svg onload="alert(1)">', "' onmouseover='alert(1)' x='",
    "</title><script>alert(1)</script>", "<meta http-equiv=refresh content='0;url=http://x'>", "<link rel=stylesheet href=//x>",
    "<iframe src=//x>", "<img src=//x onerror=alert(1)>", "</svg><image href=//x>", "@import url(//x)", "<base href=//x>",
    "{{ 7*7 }}{% raw %}", "javascript:alert(1)", "]]><!--", "<form action=//x><button autofocus>", "\u202eRTL\x00\x1b[31m",
)  # fmt: skip
"""Texts that act in a page that does not escape them."""


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
    ledger = filled(created(tmp_path), history)
    ledger.event("view", failed="report", error=f"refused: {key}")

    markdown = write_report(ledger, FINISHED)

    written = [ledger.path / "timeline.json", *home.glob("**/*.html")]
    assert {path.name for path in written} >= {"report.html", "index.html"}
    for text in (markdown, *(path.read_text() for path in written)):
        assert key not in text and key[:8] not in text and key[-8:] not in text
        assert not {*"\u202e\x00\x1b\x07\u2066\ufeff"} & {*text}
    shown = (ledger.path / "report.html").read_text()
    assert f"[secret {name}]" in shown
    assert f"{own}/" not in shown and "~/lib/x.py" in shown and f"{own}s is another" in shown


def test_texts_of_programs_and_models_are_shown_and_not_run(tmp_path: Path, home: Path) -> None:
    text = " ".join(HOSTILE)
    history = told(search(11, cancels=False), text)
    ledger = filled(created(tmp_path), (*history, replace(tried(history, None), verdict=Verdict("crash", text))))

    markdown = write_report(ledger, FINISHED)

    for file in (ledger.path / "report.html", home / "index.html"):
        shown = Page(file.read_text())
        acting = {"script", "iframe", "object", "embed", "link", "form", "base", "image"}
        assert not {tag for tag, _ in shown.tags} & acting
        for tag, attributes in shown.tags:
            assert not [name for name in attributes if name.startswith("on")]
            assert tag != "img" or str(attributes["src"]).startswith("data:")
            assert not re.match(r"\s*(javascript|data|http|//)", attributes.get("href") or "", re.IGNORECASE)
        assert any("default-src 'none'" in str(attributes.get("content")) for _, attributes in shown.tags)
    assert HOSTILE[0] in Page(page.html(Facts.of(ledger, FINISHED))).text
    assert "<" not in markdown.replace("&lt;", "")


def test_a_report_that_does_not_fit_leaves_the_old_one_whole(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = search(6, cancels=False)
    ledger = filled(created(tmp_path), history[:5])
    write_report(ledger, FINISHED)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.suffix in (".html", ".json")}
    filled(ledger, history[5:])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python does not notice that a .pyc is cut off
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"report\.html"):
            write_report(ledger, FINISHED)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert all(path.read_bytes() == content for path, content in before.items())
    assert not list(ledger.path.glob(".report*"))
