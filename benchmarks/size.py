"""What a campaign of a thousand trials costs: its resume, next proposal, status, and every further trial.

    python -m benchmarks.size [--trials 1080] [--more 12] [--json]

The ledger is made without training: proposals drawn at random, a program's few files, scores of a made-up problem
(benchmarks/problems.py) with noise, all through the writers that campaigns use, decided by rule `certify`. What is
measured is its second resume, with `--more` trials. The same is done side by side with a campaign of 25 trials.

Wall time depends on what else the machine does; processor time (of the command and its children) hardly does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.problems import NOISE, SPACE, rugged
from environments.score import Score
from environments.space import Float, Int
from flows.server import server_process
from flows.status import document
from tasks.deciding.values import JudgedTrial, NeedsRerun
from tasks.sandbox import outputs
from tasks.store import workspace
from tasks.store.ledger import Ledger, machine
from tasks.system.files import write_atomic
from tasks.trial import History, Params, Proposal, Rerun, Run, Trial, Verdict

if TYPE_CHECKING:  # what loads Prefect, which reads its settings then, is loaded when they are made
    from flows.spec.campaign_spec import CampaignSpec

FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")  # ways to somebody's real servers
COMMAND = [sys.executable, "-m", "flows.cli"]
SMALL = 25
UNITS = 16
FIT = """\
import json, pathlib
config = json.loads(pathlib.Path("config.json").read_text())
(pathlib.Path(config["out"]) / "model.json").write_text(json.dumps([config["params"], config["seed"]]))
"""
JUDGE = """\
import json, pathlib, sys
params, seed = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": params["gamma"] + seed % 1000 * 1e-6}))
"""
ENVIRONMENT = """\
metric = "score"
direction = "maximize"
trainer = "command"
program = ["fit.py"]
train_cmd = "python fit.py"
budget_seconds = 10
allow_untrained = true
judge = "command"
command.eval_cmd = "python judge.py {out} {result}"
limits.least_seconds = 0
"""
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="What a large campaign costs.")
    parser.add_argument("--trials", type=int, default=1080, help="finished trials of the large campaign (1080)")
    parser.add_argument("--more", type=int, default=12, help="trials that are run on top of them (12)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-size-") as folder:
        figures = measure(Path(folder), options.trials, options.more)
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(folder: Path, trials: int, more: int) -> dict[str, Figures]:
    """The figures of a small campaign and of a large one, by the number of their trials."""
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ["NIGHTSHIFT_HOME"] = str(folder / "home")
    server_process.settle_in(folder / "home")
    problem = write_environment(folder / "made-up")
    ledgers = {count: make(problem, f"of-{count}", count) for count in (SMALL, trials)}
    figures: dict[str, Figures] = {}
    with server_process.prefect_server(None, folder / "home") as url:
        for count, (ledger, made) in ledgers.items():
            resumed(ledger, count + 1, url)
            figures[str(count)] = made | resumed(ledger, count + 1 + more, url) | read(ledger)
    return figures


def write_environment(folder: Path) -> Path:
    folder.mkdir()
    space = ""
    for name, one in SPACE.items():
        kind = "float" if isinstance(one, Float) else "int" if isinstance(one, Int) else "choice"
        rest = {key: value for key, value in one.model_dump().items() if key != "type"}
        space += f'\n[space.{name}]\ntype = "{kind}"\n'
        space += "".join(f"{key} = {json.dumps(value)}\n" for key, value in rest.items())
    (folder / "environment.toml").write_text(ENVIRONMENT + space)
    (folder / "fit.py").write_text(FIT)
    (folder / "judge.py").write_text(JUDGE)
    return folder


def make(problem: Path, name: str, count: int) -> tuple[Ledger, Figures]:
    """A campaign with so many decided trials besides its baseline, and what it took to settle the last of them."""
    from flows.spec.campaign_spec import CampaignSpec
    from tasks.record import record

    spec = CampaignSpec.of(environment=str(problem), name=name, seed=0, tracking="off", trials=count, hours=1000)
    ledger, draw = spec.open(), random.Random(0)
    history: History = ()
    seconds: list[float] = []
    for number in range(count + 1):
        trial = decided(ledger, history, number, draw, spec)
        began = time.perf_counter()
        history = record(ledger, history, trial)
        seconds.append(time.perf_counter() - began)
    return ledger, {"settle_ms": 1000 * statistics.median(seconds[-20:])}


def decided(ledger: Ledger, history: History, number: int, draw: random.Random, spec: CampaignSpec) -> Trial:
    """A trial as training, judging and deciding leave it."""
    from tasks.decide import weigh

    rng = np.random.default_rng(draw.randrange(2**32))
    drawn: Params = {name: one.sample(rng) for name, one in SPACE.items()}
    params = drawn if number else ledger.environment.defaults
    proposal = Proposal(params, rationale="drawn at random", seen=number, proposer="random_search", seconds=0.1)
    place = ledger.place(number)
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(proposal, indent=2).decode() + "\n")
    run, score = trained(ledger, number, proposal, draw, "")
    tried = JudgedTrial(number, proposal, (run,), score)
    wanted = weigh(history, ledger.environment, spec.loaded_rule, tried)
    while not isinstance(wanted, Verdict):
        assert isinstance(wanted, NeedsRerun)
        of = proposal if wanted.of == number else history[wanted.of].proposal
        again = trained(ledger, number, of, draw, f"again-{len(tried.reruns) + 1}")
        tried = replace(tried, reruns=(*tried.reruns, Rerun(wanted.of, *again)))
        wanted = weigh(history, ledger.environment, spec.loaded_rule, tried)
    return Trial(number, 1, number, proposal, (run,), score, wanted, 6.0, tried.reruns)


def trained(ledger: Ledger, number: int, proposal: Proposal, draw: random.Random, part: str) -> tuple[Run, Score]:
    """What a run leaves on the disk, and its score."""
    place, seed = ledger.place(number, part), draw.randrange(2**31)
    digest = workspace.prepare(place, ledger.program, ledger.environment, proposal, seed)
    (place.out / "model.json").write_text(json.dumps([proposal.params, seed]))
    level = rugged(proposal.params)
    curve = tuple(level * (step + 1) / 20 + draw.gauss(0, NOISE / 4) for step in range(20))
    lines = [{"elapsed": step, "step": step, "metrics": {"score": value}} for step, value in enumerate(curve)]
    place.progress.write_text('{"ready": true}\n' + "".join(json.dumps(line) + "\n" for line in lines))
    place.log.write_text("trained\n")
    run = Run(
        f"trials/{place.path.name}", seed, 5.0, "finished", steps=20, started=time.time(), wall_seconds=5.5,
        reported=curve[-1], startup=0.3, isolation="bwrap", program=digest,
        checkpoint=outputs.checkpoint(place.out), curve=curve, machine=machine(),
    )  # fmt: skip
    luck = draw.gauss(0, NOISE)
    units = [level + luck + draw.gauss(0, NOISE) for _ in range(UNITS)]
    return run, Score.of(units, True)


def resumed(ledger: Ledger, trials: int, url: str) -> Figures:
    """Have the command go on to so many trials, and see when what comes."""
    before, number = len(list(ledger.events())), len(ledger.history())
    began = time.time()
    command = ["resume", ledger.campaign.name, "--trials", str(trials), "--server", url]
    with (ledger.path / "resume.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, *command], stdout=log, stderr=log)
        first, ended = ledger.place(number).config, 0
        while not first.exists() and not ended:
            time.sleep(0.01)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        started, used = time.time() - began, processor_seconds(process.pid)
        if not ended:
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or len(ledger.history()) <= number:
        raise RuntimeError(f"it ended with {process.returncode}: see {ledger.path}/resume.log")
    events = list(ledger.events())[before:]
    lives = [event["time"] for event in events if event["event"] == "life"]
    settled = [event["time"] for event in events if event["event"] == "settled"]
    new = ledger.history()[number:]
    gaps = [after - one for one, after in pairwise(settled)]
    proposals = [trial.proposal.seconds for trial in new]
    return {
        "life_seconds": lives[0] - began,
        "first_trial_seconds": started,
        "first_trial_processor_seconds": used,
        "propose_seconds/first": proposals[0],
        "propose_seconds": statistics.median(proposals[1:] or proposals),
        "trial_seconds": statistics.median(gaps) if gaps else math.nan,
        "trial_seconds/training": statistics.median(sum(run.wall_seconds for run in trial.runs) for trial in new),
        "resume_processor_seconds": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
    }


def processor_seconds(pid: int) -> float:
    """What a process has used so far, with its children that have ended."""
    try:
        return sum(psutil.Process(pid).cpu_times()[:4])
    except psutil.NoSuchProcess:
        return math.nan


def read(ledger: Ledger) -> Figures:
    """What looking at it takes."""
    from tasks.record import reconcile

    return {
        "history_seconds": timed(lambda: Ledger.open(ledger.campaign.name).history()),
        "reconcile_seconds": timed(lambda: reconcile(Ledger.open(ledger.campaign.name))),
        "document_seconds": timed(lambda: document(Ledger.open(ledger.campaign.name))),
        **commanded("status", ledger.campaign.name, "--json"),
        **commanded("list", "--json"),
    }


def timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def commanded(verb: str, *arguments: str) -> Figures:
    """Wall and processor seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*COMMAND, verb, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {f"{verb}_seconds": time.perf_counter() - began, f"{verb}_processor_seconds": processor}


def show(figures: dict[str, Figures]) -> None:
    table = Table("figure", *(f"{count} trials" for count in figures))
    for key in next(iter(figures.values())):
        table.add_row(key, *(f"{column[key]:.3g}" for column in figures.values()))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
