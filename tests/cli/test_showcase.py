"""`nightshift showcase`: what it promises is in the campaign's own status, and nothing is left of it when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import environments
from environments.plugins import Refused
from flows.cli.running import showcase, showcase_story
from flows.spec.campaign_spec import CampaignSpec
from tasks.sandbox.isolation import Isolation
from tasks.store.ledger import Ledger
from tasks.trial import Verdict
from tests.support.histories import decided, history_of
from tests.support.levels import WORKING
from tests.support.toy import command, environment, status

SECONDS = 400
"""The whole takes a minute on two quiet cores."""


def test_its_campaign_is_one_that_runs() -> None:
    text = showcase.spec_text("showcase-1", Isolation(WORKING[0], allow_unsandboxed=True), edits=True)
    spec = CampaignSpec.of(**tomllib.loads(text))
    assert (spec.name, spec.environment, spec.trials) == ("showcase-1", "showcase", 6)
    spec.check()


def test_without_a_sandbox_it_has_no_edits_and_is_not_refused() -> None:
    text = showcase.spec_text("showcase-1", Isolation("none"), edits=False)
    spec = CampaignSpec.of(**tomllib.loads(text))
    assert spec.trials == len(spec.advanced.options["proposals"]) == 3
    spec.check()
    with pytest.raises(Refused, match="allow-unsandboxed"):
        CampaignSpec.of(**tomllib.loads(showcase.spec_text("showcase-1", Isolation("none"), edits=True))).check()


def test_the_story_has_a_heading_the_engines_line_and_the_diff_of_a_kept_edit() -> None:
    problem = environments.named("showcase")
    history = history_of(problem, 0)
    trial = decided(history, 5.0, problem.defaults)
    edit = "--- a/train.py\n+++ b/train.py\n@@ -1,1 +1,1 @@\n-INITIAL = 0.0\n+INITIAL =  1.0\x1b[31m\n"
    kept = replace(
        trial,
        verdict=Verdict("keep", "better"),
        proposal=replace(trial.proposal, edit=edit, rationale="optimism", turned_down=("scripted: not \x1b editable",)),
    )
    shown = [line.plain for line in showcase_story.lines(True, kept, (*history, kept))]
    assert "Refused" in shown and "Code edit" in shown
    assert any(line.startswith(" +    1") and "optimism" in line for line in shown)
    assert shown[-2:] == [f"{' ' * 10}-INITIAL = 0.0", f"{' ' * 10}+INITIAL =  1.0"]
    assert "\x1b" not in "".join(shown)


def test_a_feature_that_was_not_seen_is_told() -> None:
    problem = environments.named("showcase")
    document = {"incidents": [], "certificate": None, "shipped": None}
    seen = showcase.features(document, history_of(problem, 1), None, report=False)
    assert seen.keys() == set(showcase.FEATURES)
    assert [name for name, trial in seen.items() if trial is not None] in ([], ["keep"], ["discard"])


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_every_feature_is_seen_in_the_status_of_its_campaign(home: Path) -> None:
    done = subprocess.run(
        command("showcase", "--json"), env=environment(None), capture_output=True, text=True, timeout=SECONDS
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0, (done.stderr, told["shown"])
    campaign = status("showcase-1")
    assert campaign == {**told["status"], "servers": campaign["servers"], "urls": campaign["urls"]}
    assert (campaign["state"], campaign["shipped"], campaign["certificate"]["passed"]) == ("finished", "champion", True)
    verdicts = [row["verdict"] for row in campaign["trials"]]
    assert verdicts == ["keep", "keep", "discard", "keep", "cancelled", "crash", "crash"]
    assert "IndexError" in campaign["trials"][5]["reason"]
    assert "judge.py" in campaign["trials"][6]["reason"]
    assert [one["kind"] for one in campaign["incidents"]] == ["turned down"]
    assert "lake.py" in campaign["incidents"][0]["words"]
    assert (
        told["kill"]["trained_again"]
        and told["kill"]["decided"]
        and not told["kill"]["changed"]
        and not told["kill"]["repeated"]
    )
    ledger = Ledger.open("showcase-1")
    lives = [event["pid"] for event in ledger.events() if event["event"] == "life" and "pid" in event]
    assert len([event for event in ledger.events() if event["event"] == "life"]) == 2, lives
    assert told["mlflow_runs"] == len(campaign["trials"]) == 7
    assert campaign["waiting_to_record"] == 0
    assert re.search("<html", Path(told["report"]).read_text())
    assert "INITIAL = 1.0" in Path(told["diffs"][0]).read_text()
    assert left_of(home) == []


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_showcase_that_is_ended_leaves_no_process_and_a_campaign_that_can_be_resumed(
    home: Path, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        command("showcase"), env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + SECONDS
    try:
        while not list(home.glob("showcase-1/trials/0000/out/progress.jsonl")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.send_signal(how)
        shown = process.communicate(timeout=SECONDS)[0].decode()
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert "nightshift resume showcase-1" in shown
    while left_of(home):
        assert time.monotonic() < deadline, left_of(home)
        time.sleep(0.2)
    assert status("showcase-1")["state"] in ("interrupted", "stopped")


def left_of(home: Path) -> list[str]:
    """Command lines of the processes that have this home in their environment, but for this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("NIGHTSHIFT_HOME") == str(home):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
