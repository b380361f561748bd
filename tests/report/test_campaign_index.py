"""The page of all campaigns: what stands in it, and what it costs where there are many."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.engine.certifying import store
from flows.report.write import rows, write_index, write_report
from tests.report.test_report import FINISHED, Page, stored
from tests.support.histories import certified, search
from tests.support.ledgers import created


def links(page: Page) -> set[str]:
    return {str(attributes.get("href")) for tag, attributes in page.tags if tag == "a"}


def test_every_campaign_has_a_line_with_its_result_and_a_link(tmp_path: Path, home: Path) -> None:
    one = stored(created(tmp_path, "one"), search(6, cancels=False))
    store(one, certified(1, [210, 215, 212, 214], [80, 82, 79, 84]))
    write_report(one, FINISHED)
    two = stored(created(tmp_path, "two"), search(5, seed=2, cancels=False))
    write_report(two, FINISHED)

    shown = Page((home / "index.html").read_text())

    assert {"one/report.html", "two/report.html"} == links(shown)
    second, first = rows()
    assert (first["campaign"], first["trials"], second["campaign"], second["gain"]) == ("one", 6, "two", None)
    assert first["gain"].startswith("+1") and "at least +1" in first["gain"]
    assert all(
        text in shown.text for text in (first["headline"][1:], first["gain"], second["headline"][1:], "quad, loss")
    )
    assert "2 campaigns, 1 with" in shown.text


@pytest.mark.parametrize("broken", ["{", '{"format": 99}', "null"])
def test_a_campaign_that_cannot_be_read_says_so_and_hides_no_other(tmp_path: Path, home: Path, broken: str) -> None:
    write_report(stored(created(tmp_path, "good"), search(3, cancels=False)), FINISHED)
    (home / "bad").mkdir()
    (home / "bad/campaign.json").write_text(broken)
    (home / "no campaign/campaign.json").mkdir(parents=True)
    hostile = "<img src=x onerror=alert(1)>"  # any folder can hold a campaign.json
    shutil.copytree(home / "good", home / hostile)

    states = {row["campaign"]: row["state"] for row in rows()}
    shown = Page(write_index().read_text())

    assert states == {"good": "interrupted", "bad": "unreadable", hostile: "unreadable"}
    assert links(shown) == {"good/report.html"} and "cannot be read" in shown.text and hostile in shown.text
    assert "img" not in {tag for tag, _ in shown.tags}
