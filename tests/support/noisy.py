"""A small real environment whose runs differ by their seed, and campaigns in it that were decided by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.spec.campaign_spec import CampaignSpec
from tasks.evaluate import judge_run
from tasks.record import record
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.train import run_program
from tasks.trial import Params, Proposal, Trial, Verdict, VerdictKind
from tests.support.toy import SANDBOX, folder_of, stated

TOML = stated(
    'title = "Noisy"', 'metric = "reward"', 'direction = "maximize"', 'program = ["draw.py"]',
    'train_cmd = "python draw.py"', 'editable = ["draw.py"]', "budget_steps = 20", "deterministic = false",
    'eval_cmd = "python judge.py {out} {result} {seed}"', "low = -100.0", "high = 100.0", "default = 0.0",
)  # fmt: skip

DRAW = """\
import json
import pathlib
import random

config = json.loads(pathlib.Path("config.json").read_text())
out, draw = pathlib.Path(config["out"]), random.Random(config["seed"])
bonus = 0.0
reward = config["params"]["x"] + bonus + draw.gauss(0, 1)
with (out / "progress.jsonl").open("w") as progress:
    for step in range(1, 21):
        metrics = {"reward": reward * step / 20 + draw.gauss(0, 20 / step)}
        print(json.dumps({"step": step, "metrics": metrics}), file=progress)
(out / "model.json").write_text(json.dumps({"reward": reward}))
"""
"""Its result is its parameter, its bonus and one draw; what it reports becomes clearer all the time."""

JUDGE = """\
import json
import pathlib
import random
import sys

reward, draw = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["reward"], random.Random(sys.argv[3])
pathlib.Path(sys.argv[2]).write_text(json.dumps({"units": [reward + draw.gauss(0, 0.5) for _ in range(20)]}))
"""

BETTER = """\
--- a/draw.py
+++ b/draw.py
@@ -6,3 +6,3 @@
 out, draw = pathlib.Path(config["out"]), random.Random(config["seed"])
-bonus = 0.0
+bonus = 50.0
 reward = config["params"]["x"] + bonus + draw.gauss(0, 1)
"""


def noisy(folder: Path, draw: str = DRAW, toml: str = TOML) -> Path:
    """Write the environment: a reward of x, with a standard deviation of 1 between runs."""
    return folder_of(folder, {"environment.toml": toml, "draw.py": draw, "judge.py": JUDGE})


def campaign(folder: Path, name: str = "night", **asked: Any) -> Ledger:
    """A new campaign there."""
    return CampaignSpec.of(environment=str(folder), name=name, tracking="off", **asked).open()


def searched(ledger: Ledger, *params: Params, edit: str | None = None) -> Ledger:
    """The campaign, with a baseline and these trials, each run and kept."""
    settled(ledger, {})
    for one in params:
        settled(ledger, one, edit)
    return ledger


def settled(
    ledger: Ledger, params: Params, edit: str | None = None, kind: VerdictKind = "keep", luck: float = 0.0
) -> Trial:
    """The campaign's next trial: really run and judged, with so much luck, and recorded as the test says."""
    history, environment = ledger.history(), ledger.environment
    number, place = len(history), ledger.place(len(history))
    proposal = Proposal(environment.complete(params), edit, parent=0 if number else None, seen=number)
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(proposal, indent=2) + b"\n")
    seed = ledger.seed("train", ledger.key(number))
    run = run_program("noisy", environment, SANDBOX, ledger.program, place, proposal, seed)
    score = judge_run("noisy", environment, SANDBOX, place, run, 1)
    if luck:
        assert score.value is not None, score.error
        score = replace(score, value=score.value + luck)
    verdict = Verdict(kind, "as a test says", "provisional" if kind == "keep" else None)
    trial = Trial(number, 1, number, proposal, (run,), score, verdict, 1.0)
    record(ledger, history, trial)
    return trial
