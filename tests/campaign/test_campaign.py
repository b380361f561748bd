"""Whole campaigns, as a user runs them: the real command, a real Prefect server, a real MLflow store."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from flows.campaign import campaign
from flows.server.server_process import drain
from tasks.stats.certificate import Certificate
from tasks.stats.design import ALPHA, design_of
from tasks.store.ledger import Ledger
from tasks.system import orphans
from tests.support.finished import OPTIONS, Finished
from tests.support.mlflow_records import mlflow_runs
from tests.support.noisy import DRAW, TOML, noisy
from tests.support.prefect_api import ask, prefect_at
from tests.support.processes import wait_for
from tests.support.toy import FIT, GREEDY, QUADRATIC, nightshift, quadratic, slow, start, stated, status, told

LEDGER = ("trial", "attempt", "score", "verdict", "level", "proposer", "params")
"""The columns of results.tsv that a deterministic trainer makes the same every time; times and commits are not."""


def ledger(home: Path, name: str) -> list[tuple[str, ...]]:
    with (home / name / "results.tsv").open() as file:
        return [tuple(row[column] for column in LEDGER) for row in csv.DictReader(file, delimiter="\t")]


def rows(server: str, flow_run_id: str) -> list[dict[str, Any]]:
    chosen = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    found: list[dict[str, Any]] = ask("POST", f"{server}/task_runs/filter", chosen)
    return found


def lives(home: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in Ledger.at(home / name).events() if event["event"] == "life"]


def test_a_campaign_runs_and_everything_about_it_can_be_read(
    finished: Finished, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, document = finished.home, json.loads(finished.printed)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))

    assert document["state"] == "finished"
    assert document["reason"] == "all 3 trials done"
    assert document["baseline"].items() >= {"trial": 0, "score": 2.25, "se": None, "n": 1, "runs": 1}.items()
    assert [row["trial"] for row in document["trials"]] == [0, 1, 2, 3]
    best = min(document["trials"], key=lambda row: row["score"])
    assert document["champion"]["trial"] == best["trial"]
    assert document["spent"]["trials"] == 3
    assert document["waiting_to_record"] == 0
    assert status("one") == document

    trial = home / "one/trials/0001"
    assert {path.name for path in trial.iterdir()} >= {
        "proposal.json", "workspace", "out", "log.txt", "trial.json", "diff.patch",
    }  # fmt: skip
    assert json.loads((trial / "workspace/config.json").read_text())["params"] == document["trials"][1]["params"]
    assert [row[0] for row in ledger(home, "one")] == ["0", "1", "2", "3"]
    assert (home / "one").stat().st_mode & 0o077 == 0

    (life,) = lives(home, "one")
    names = sorted(row["name"] for row in rows(server, life["flow_run_id"]))
    assert names == sorted(f"{task} quad {n}" for n in range(4) for task in ("propose", "train", "evaluate", "decide"))
    assert all(row["state"]["message"] for row in rows(server, life["flow_run_id"])), "every row says how it ended"
    chosen = {"logs": {"flow_run_id": {"any_": [life["flow_run_id"]]}}, "sort": "TIMESTAMP_ASC"}
    log = [line["message"] for line in ask("POST", f"{server}/logs/filter", chosen)]
    assert [line for line in log if "keep" in line and "2.25" in line], "the log has the terminal's line of a trial"
    assert "all 3 trials done" in log[-2] + log[-1]


def test_what_is_behind_early_is_stopped_and_counts_by_the_part_that_ran(tmp_path: Path, server: str) -> None:
    """Of losses 1, 0, 1, 4, 9, 16 and 25: two go on, and those that follow are behind at a tenth of their budget."""
    program = FIT + (
        "import sys, time\n"
        "with (args.out / 'progress.jsonl').open('w', buffering=1) as progress:\n"
        "    for step in range(1, 21):\n"
        "        print(json.dumps({'step': step, 'metrics': {'loss': (args.x - 1) ** 2}}), file=progress)\n"
        "        time.sleep(0.1)\n"
        "        if pathlib.Path('cancel').exists(): sys.exit(42)\n"
    )
    early = "cancel.curve = { fraction = 0.1, best = 0.5, first = 2 }"
    folder = quadratic(tmp_path / "q", program, toml=stated("budget_steps = 20", "low = 0.0", "high = 6.0", early))
    options = ["--proposer", "grid", "--set", "proposer.points=7", "--trials", "4", "--tracking", "off", *GREEDY]
    done = nightshift("run", str(folder), "--name", "early", *options, "--json", server=server)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["verdict"] for row in found["trials"]] == ["keep", "keep", "keep", *["cancelled"] * 5]
    assert {row["score"] for row in found["trials"][3:]} == {None}
    assert found["state"] == "finished" and "nothing left" in found["reason"], "five tenths are less than a trial"


@pytest.mark.slow
def test_a_trial_that_goes_wrong_is_one_crash_and_the_campaign_goes_on(tmp_path: Path, server: str) -> None:
    """Every kind of bad program in one campaign, each chosen by a parameter."""
    program = (
        "import os, pathlib, signal, sys, time\n"
        "mode, out = sys.argv[1], pathlib.Path(sys.argv[2])\n"
        "(out / 'model.json').write_text('{\"x\": 1.0}')\n"
        "if mode == 'exit': raise SystemExit(3)\n"
        "if mode == 'deaf': signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)\n"
        "if mode == 'garbled': (out / 'progress.jsonl').write_text('nonsense\\n')\n"
        "if mode == 'empty': (out / 'model.json').unlink()\n"
        "if mode == 'nan': (out / 'model.json').write_text('{\"x\": NaN}')\n"
        "if mode == 'liar': print('loss: 0.0\\nscore = -999')\n"
    )
    modes = ["good", "liar", "exit", "deaf", "garbled", "empty", "nan"]
    toml = QUADRATIC.replace("python fit.py --x {x} --out {out}", "python fit.py {mode} {out}")
    toml = toml[: toml.index("[space.x]")].replace("budget_seconds = 5", "budget_seconds = 20")
    toml += f'[space.mode]\ntype = "choice"\nvalues = {modes}\ndefault = "good"\n'
    folder = quadratic(tmp_path / "bad", fit=program, toml=toml)
    done = nightshift(
        "run", str(folder), "--name", "bad", "--proposer", "grid", "--tracking", "off", *GREEDY, server=server
    )
    assert done.returncode == 0, done.stderr
    document = status("bad")
    reasons = {row["params"]["mode"]: row for row in document["trials"]}
    expected = {
        "exit": "exited with status 3",
        "deaf": "did not stop within 0.5 s of SIGTERM",
        "garbled": "out/progress.jsonl line 1 is not a report",
        "empty": "left no checkpoint in out/",
        "nan": "a finite number",
    }
    for mode, reason in expected.items():
        assert reasons[mode]["verdict"] == "crash", mode
        assert reason in reasons[mode]["reason"], (mode, reasons[mode]["reason"])
        assert reasons[mode]["score"] is None
    assert reasons["good"]["score"] == 0.0
    assert reasons["liar"]["score"] == 0.0, "a printed score is ignored: the judge read the model"
    assert document["champion"]["trial"] == 0
    assert document["reason"] == "the proposer has nothing left to try"
    assert orphans.marked(document["campaign_id"]) == []


@pytest.mark.usefixtures("stores")
def test_a_killed_campaign_resumes_and_its_ledger_equals_the_undisturbed_ones(
    tmp_path: Path, home: Path, server: str, finished: Finished
) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(0.4))
    with start("run", str(folder), "--name", "killed", *OPTIONS, server=server) as process:
        wait_for((home / "killed/trials/0002/log.txt").exists)  # trial 2 is in training
        os.kill(process.pid, signal.SIGKILL)
    before = {n: (home / f"killed/trials/{n:04d}/trial.json").read_text() for n in range(2)}
    wait_for(lambda: status("killed")["state"] == "interrupted")  # a reader holds the lock until it has noticed

    resumed = nightshift("resume", "killed", server=server)
    assert resumed.returncode == 0, resumed.stderr
    assert ledger(home, "killed") == ledger(finished.home, "one")
    assert {n: (home / f"killed/trials/{n:04d}/trial.json").read_text() for n in range(2)} == before
    assert orphans.marked(status("killed")["campaign_id"]) == []
    refused = nightshift("resume", "killed", "--trials", "99", "--launch", "nowhere", server=server)
    assert refused.returncode == 2 and "'nowhere'" in refused.stderr, "it had ended before: that is no answer"

    first, second = lives(home, "killed")
    assert second["spent_before"] > 0.5
    dead = ask("GET", f"{server}/flow_runs/{first['flow_run_id']}")
    assert dead["state_type"] == "CRASHED"
    names = {row["name"] for row in rows(server, second["flow_run_id"])}
    assert "train quad 2" in names and "train quad 1" not in names, "what was decided is read from its file"

    assert set(mlflow_runs(home, "killed")) == {"campaign", "0", "1", "2", "3"}, "none lost, none doubled"


DRAWN = """\
import json, pathlib, sys
reward = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["reward"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"units": [reward, reward]}))
"""
"""A judge that draws nothing: what two campaigns of one seed find is then the same."""


def proof(made: Certificate) -> tuple[object, ...]:
    """All of a certificate but the times of its runs."""
    runs = [(fresh.arm, fresh.run.dir, fresh.run.seed, fresh.score) for fresh in (*made.runs, *made.reused)]
    return made.champion, made.alpha, made.design, made.comparison, made.reason, runs


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_while_its_baseline_is_run_again_and_in_its_certificate_a_campaign_proves_the_same(
    tmp_path: Path, home: Path, server: str
) -> None:
    """The rule that campaigns have by themselves, with the noise of training and none of the judge's."""
    folder = noisy(tmp_path / "noisy", draw="import time\ntime.sleep(0.5)\n" + DRAW)
    (folder / "judge.py").write_text(DRAWN)
    options = ["--trials", "2", "--seed", "3", "--tracking", "off", "--cancel", "none"]
    undisturbed = nightshift("run", str(folder), "--name", "calm", *options, "--json", server=server)
    assert undisturbed.returncode == 0, undisturbed.stderr

    with start("run", str(folder), "--name", "killed", *options, server=server) as process:
        wait_for((home / "killed/trials/0000-run-2/log.txt").exists)
        os.kill(process.pid, signal.SIGKILL)
    assert not (home / "killed/trials/0000/trial.json").exists()
    with start("resume", "killed", server=server) as process:
        wait_for(lambda: len([*home.glob("killed/certificates/1-*/log.txt")]) >= 3)
        os.kill(process.pid, signal.SIGKILL)
    assert status("killed")["state"] == "interrupted"
    assert not (home / "killed/certificates/1.json").exists()
    resumed = nightshift("resume", "killed", server=server)
    assert resumed.returncode == 0, resumed.stderr

    assert ledger(home, "killed") == ledger(home, "calm")
    (found,), (calm,) = (Ledger.at(home / name).certificates() for name in ("killed", "calm"))
    assert proof(found) == proof(calm)
    assert len(found.runs) == 6 and len(found.reused) == 3 and found.passed, found.reason
    design = design_of(2, alpha=0.96 * ALPHA)
    assert (found.alpha, found.design) == (design.levels[-1], design)
    document = status("killed")
    assert document["state"] == "finished"
    assert document["champion"]["trial"] == found.champion and document["shipped"] != "baseline"
    assert [row[4] for row in ledger(home, "killed") if int(row[0]) == found.champion] == ["certified"]
    assert orphans.marked(document["campaign_id"]) == []
    last = lives(home, "killed")[-1]
    states = [row["state_name"] for row in rows(server, last["flow_run_id"])]
    assert states.count("Cached") >= 2 * 2, "what was run before the second kill is not run again"


@pytest.mark.slow
def test_ctrl_c_is_clean_and_stop_lets_the_trial_finish(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(4.0))
    more = ("--tracking", "off", "--set", "budget_seconds=60", *GREEDY)
    with start("run", str(folder), "--name", "halted", *more, server=server) as process:
        wait_for((home / "halted/trials/0000/log.txt").exists)
        assert "stops after the current trial" in told("stop", "halted")
        process.communicate()
    assert process.returncode == 0
    document = status("halted")
    assert document["state"] == "stopped"
    assert [row["verdict"] for row in document["trials"]] == ["keep"]

    with start("resume", "halted", "--trials", "4", server=server) as process:
        wait_for((home / "halted/trials/0001/log.txt").exists)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
    assert process.returncode == 130 and status("halted")["state"] == "interrupted"
    assert status("halted")["spec"]["trials"] == 4


# The graph of a campaign in the Prefect UI: propose -> train -> evaluate -> decide of each trial, and nothing else.


STRICT = TOML.replace("allow_untrained = true", "allow_untrained = false")
"""So that a champion is controlled."""


def graph_of(server: str, flow_run: str) -> dict[str, set[str]]:
    """Every task run of a flow run, with those whose results it got or waited for; without the environment's name."""
    nodes = dict(ask("GET", f"{server}/flow_runs/{flow_run}/graph-v2")["nodes"])
    names = {key: node["label"].replace(" noisy", "") for key, node in nodes.items()}
    assert len(set(names.values())) == len(nodes), "each has a name of its own"
    return {names[key]: {names[one["id"]] for one in node["parents"]} for key, node in nodes.items()}


def expected(ledger: Ledger) -> dict[str, set[str]]:
    """What the graph has to be, by the decided trials and the certificate."""
    edges: dict[str, set[str]] = {}
    for trial in ledger.history():
        number, dirs = trial.number, [run.dir for run in (*trial.runs, *(again.run for again in trial.reruns))]
        parts = [" ".join(filter(None, (str(number), Path(of).name[5:]))) for of in dirs]
        edges[f"propose {number}"] = set()
        edges |= {f"train {part}": {f"propose {number}"} for part in parts}
        edges |= {f"evaluate {part}": {f"train {part}"} for part in parts}
        edges[f"decide {number}"] = {f"evaluate {part}" for part in parts}
        if "untrained" in trial.verdict.evidence:
            edges[f"control {number}"] = {f"propose {number}"}
            edges[f"decide {number}"].add(f"control {number}")
    for fresh in (run for made in ledger.certificates() for run in made.runs):
        look, number, arm, count = Path(fresh.run.dir).name.split("-")
        part = f"{int(number)} certificate-{look}-{arm}-{count}"
        edges |= {f"train {part}": set(), f"evaluate {part}": {f"train {part}"}}
    return edges


@pytest.mark.parametrize(
    "asked",
    [{}, pytest.param({"parallel": 2, "replicates": 2}, marks=pytest.mark.slow)],
    ids=["one by one", "two at once"],
)
@pytest.mark.timeout(300)
def test_each_trial_is_a_chain_of_its_four_tasks_and_no_edge_leads_to_another(
    tmp_path: Path, home: Path, server: str, asked: dict[str, Any]
) -> None:
    folder = noisy(tmp_path / "noisy", toml=STRICT)
    with prefect_at(server):
        state = campaign(
            str(folder), "night", proposer="random_search", trials=3, seed=2, tracking="off", cancel="none", **asked,
            return_state=True,
        )  # fmt: skip
        drain(server)
    assert state.is_completed(), state.message
    ledger = Ledger.open("night")
    (life,) = lives(home, "night")
    wanted = expected(ledger)
    assert any(name.startswith("control ") for name in wanted), "the seed was chosen so that a trial would be kept"
    wait_for(lambda: graph_of(server, life["flow_run_id"]) == wanted)
