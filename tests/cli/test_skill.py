"""The skill for coding agents: where it goes, and that it says what the command can do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from flows.cli.app import app
from flows.cli.problems import write_environment
from tests.support.toy import told


@pytest.mark.parametrize(
    ("folder", "options", "place"),
    [("elsewhere", [], ".agents/skills"), (".claude", [], ".claude/skills"), (".claude", ["--to", "mine"], "mine")],
)
def test_the_skill_goes_to_where_the_agent_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, options: list[str], place: str
) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time it is brought up to date
        assert told("skill", "install", *options) == f"wrote {place}/nightshift/SKILL.md\n"
    _, front, text = Path(place, "nightshift/SKILL.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front).keys() == {"name", "description"} and yaml.safe_load(front)["name"] == "nightshift"
    named = set(re.findall(r"nightshift ([a-z]+) ", text))
    assert {"run", "propose", "status"} <= named <= {*app}


def test_an_environment_tells_agents_how_it_is_used(tmp_path: Path) -> None:
    write_environment(tmp_path / "new")
    assert "nightshift skill install" in (tmp_path / "new/AGENTS.md").read_text()
