"""The command: exit codes, one JSON document and nothing else, and refusals that a person understands."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from environments.plugins import Refused
from flows.cli import running
from flows.cli.app import app
from flows.cli.problems import env_new
from flows.spec.campaign_spec import CampaignSpec, checked_environment
from tasks.record import reconcile, record
from tasks.store import campaign_lock
from tasks.store.campaign_lock import left_alone
from tasks.store.ledger import Ledger, free_name
from tasks.store.workspace import TrialDir
from tests.support.histories import decided
from tests.support.ledgers import created, stored
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, QUADRATIC, command, environment, nightshift, quadratic, slow, start, status, told


def with_trials(tmp_path: Path) -> Ledger:
    """A campaign that was cut off after a baseline, a better trial and a crash."""
    ledger = created(tmp_path, tracking="off")
    reconcile(ledger)
    for number, score in enumerate((3.0, 2.0, None)):
        place = ledger.place(number)
        place.workspace.mkdir(parents=True)
        place.log.write_text(f"training {number}\n")
        place.judge_log.write_text(f"judging {number}\n")
        history = ledger.history()
        record(ledger, history, decided(history, score, {"x": float(number)}, higher_is_better=False))
    return ledger


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("run", "cartpol", "--trials", "3"), "unknown environment 'cartpol'. Did you mean 'cartpole'?"),
        (("resume",), "no campaign is unfinished"),
    ],
)
def test_what_cannot_be_run_is_refused_with_2_before_anything_starts(
    home: Path, arguments: tuple[str, ...], why: str
) -> None:
    done = nightshift(*arguments)
    assert (done.returncode, done.stdout) == (2, "") and why in done.stderr
    assert re.fullmatch(r"nightshift: .+\n", done.stderr), done.stderr
    assert not home.exists() or [path.name for path in home.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_detached_campaign_goes_on_without_the_terminal_and_can_be_watched(
    tmp_path: Path, home: Path, server: str
) -> None:
    quad = str(quadratic(tmp_path / "quad", fit=slow(25)))
    options = [
        *("--set", "budget_seconds=40", "--proposer", "random_search", "--trials", "2", "--tracking", "off"),
        *("--isolation", "none", "--detach", "--json"),  # of a foreign spec this would be asked about
    ]
    begun = nightshift("run", quad, "--name", "far", *options, *GREEDY, server=server)
    assert begun.returncode == 0, begun.stderr
    pid = campaign_lock.holder(Ledger.at(home / "far"))["pid"]
    assert document(begun.stdout) == {"campaign": "far", "pid": pid} and os.getsid(pid) == pid, "in its own session"
    again = nightshift("resume", "far", "--detach", server=server)
    assert again.returncode == 2 and "campaign 'far' is already running" in again.stderr

    with start("status", "far", "--watch") as watching:
        assert watching.stdout is not None and any(" 0 " in line for line in watching.stdout), "the baseline's line"
        watching.send_signal(signal.SIGINT)
        assert "far goes on" in watching.communicate(timeout=30)[0]
    assert (watching.returncode, status("far")["state"]) == (0, "running")
    watched = nightshift("status", "--watch")
    assert watched.returncode == 0, watched.stderr
    assert "far is finished: all 2 trials done" in watched.stdout
    log = home / "far/console.log"
    wait_for(lambda: "far is finished" in log.read_text(), why=log.read_text)


def test_what_another_process_refuses_is_passed_on(
    tmp_path: Path, home: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between our look and its own something may have changed: here, the environment that both read."""
    folder = quadratic(tmp_path / "quad")
    asked = CampaignSpec.of(name=free_name("quad"), environment=str(folder))
    (folder / "fit.py").unlink()
    assert running.start_detached(asked, server, as_json=False) == 2
    assert "fit.py" in capsys.readouterr().err
    assert {path.name for path in home.iterdir()} <= {".prefect", ".create.lock", "quad-1"}, "the name is reserved"


def document(shown: str) -> Any:
    """The one JSON document that was printed."""
    found, end = json.JSONDecoder().raw_decode(shown)
    assert shown[end:] == "\n", "exactly one document"
    return found


def test_a_campaign_that_cannot_be_read_hides_no_other_from_the_list(tmp_path: Path) -> None:
    created(tmp_path)
    for name, file in (("torn", "campaign.json"), ("rent", "certificates/1.json")):
        path = created(tmp_path, name).path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    done = nightshift("status", "--all", "--json")
    assert done.returncode == 1 and [one["campaign"] for one in document(done.stdout)] == ["n"]
    assert "campaign 'torn' is left out: " in done.stderr
    assert "campaign 'rent' is left out: " in done.stderr and "certificates/1.json: " in done.stderr


def test_logs_are_those_of_every_run_of_a_trial(tmp_path: Path) -> None:
    ledger = with_trials(tmp_path)
    for part in ("run-2", "run-10", "again-1"):
        place = TrialDir(ledger.trials / f"0002-{part}")
        place.path.mkdir()
        place.log.write_text(f"training {part}\n")
    assert re.findall(r"^== (.*?):", told("logs", "n", "2"), re.MULTILINE) == [
        "trial 2, training", "trial 2, under judgement", "trial 2 (run 2), training", "trial 2 (run 10), training",
        "trial 2 (again 1), training",
    ]  # fmt: skip


def test_stop_now_signals_nobody_but_the_campaign(tmp_path: Path) -> None:
    ledger = with_trials(tmp_path)
    for _ in range(2):
        with left_alone(ledger), pytest.raises(Refused, match="is looked at, as by prune"):
            told("stop", "n", "--now")
        ledger.event("life", identity="of a process before", host=platform.node())
    assert not (ledger.path / "stop").exists()


def test_what_there_is_not_is_refused(tmp_path: Path) -> None:
    with_trials(tmp_path)
    created(tmp_path, "young")
    cases = {
        ("logs", "n", "7"): "campaign 'n' has no trial 7 yet: it has 3",
        ("logs", "young"): "campaign 'young' has no trial 0 yet",
        ("status", "yuong"): "unknown campaign 'yuong'. Did you mean 'young'? Available: n, young.",
        ("stop", "n"): "campaign 'n' is not running (it is interrupted)",
        ("status", "n", "--watch", "--json"): "exclude each other",
        ("status", "n", "--all"): "leave out CAMPAIGN",
        ("propose", "n", "--params", '{"x": 1}', "--base", "1"): "--base 1: it names the finished trial of n that",
    }
    for arguments, why in cases.items():
        with pytest.raises(Refused, match=re.escape(why)):
            told(*arguments)


def test_a_reader_that_has_seen_enough_gets_no_traceback(tmp_path: Path) -> None:
    with_trials(tmp_path)
    for verb in (("logs", "n"), ("--help",)):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            command(*verb), env=environment(None), stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
        )
        os.close(write)
        assert done.stderr == "", verb


def test_a_new_environment_is_valid_whatever_it_is_called_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = '{braces} "quoted" back\\slash 日本'
    folder = tmp_path / name
    env_new(folder)
    wrote, _, commands = capsys.readouterr().out.partition("\nnext: ")
    assert str(folder) in wrote
    assert shlex.split(commands)[:5] == ["nightshift", "env", "validate", str(folder), "&&"]
    assert checked_environment(str(folder), {}).name == name
    assert "nightshift skill install" in (folder / "AGENTS.md").read_text()
    with pytest.raises(Refused, match="exists already"):
        env_new(folder)


def test_a_run_begins_with_what_is_likely_a_mistake_and_finds_a_folder_by_its_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quadratic(tmp_path / "depot_ppo", toml=QUADRATIC.replace('metric = "loss"', 'metric = "return"'))
    monkeypatch.chdir(tmp_path)
    done = nightshift("run", "depot_ppo", "--server", "http://127.0.0.1:9/api", *GREEDY)
    assert done.returncode == 2 and "warning: direction = " in done.stderr and "127.0.0.1:9" in done.stderr


@pytest.mark.parametrize("arguments", [("env", "new"), ("export", "n", "--to"), ("propose", "n", "--diff")])
def test_a_place_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, home: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("theirs")
    stored(created(tmp_path), 3.0, 2.0)
    done = nightshift(*arguments, str(tmp_path / "file/below"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert str(tmp_path / "file") in done.stderr and ("Not a directory" in done.stderr or "exists" in done.stderr)
    assert (tmp_path / "file").read_text() == "theirs"


# The skill for coding agents: where it goes, and that it says what the command can do.


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
