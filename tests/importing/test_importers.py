"""Importers: another tool's problem runs here as it did there, and what it printed or left is scored by the judge."""

from __future__ import annotations

import json
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import environments
from environments import Environment, plugins
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli.problems import import_environment
from flows.cli.validation import warnings
from tasks.editing.edits import diff_of
from tasks.evaluate import judge_run
from tasks.importing import PACKAGE, Imported
from tasks.store.workspace import TrialDir
from tasks.train import ReasonToStop, run_program
from tasks.trial import Proposal, Run
from tests.support.toy import SANDBOX, folder_of

PREPARE = """\
import os
TIME_BUDGET = 300
EVAL_TOKENS = 4 * 10
DATA = os.path.join(os.path.expanduser("~"), ".cache", "tiny-research")
def words(): return open(os.path.join(DATA, "words.txt")).read().split()
def evaluate_loss(model, width): return (model - len(words())) ** 2 / width
"""
TRAIN = """\
import time
from prepare import DATA, TIME_BUDGET, evaluate_loss
LEARNING_RATE = 0.5  # of the step
WIDTH = 2 ** 3
SEED = 1
model, began = 0.0, time.time()
while time.time() - began < TIME_BUDGET + 1:  # it overruns its budget, as one that compiles first
    model += LEARNING_RATE * (3 - model)
open("scratch.txt", "w").write("a script may write beside itself")
print(f"\\rstep 1 | val_loss: 7.0", end="")
print()
print("---")
print(f"val_loss:         {evaluate_loss(model, WIDTH) + LEARNING_RATE:.6f}")
print(f"seconds:          {time.time() - began:.1f}")
print(f"seed:             {SEED}")
"""
INSTRUCTIONS = """\
Get the lowest val_loss. Read it by `grep "^val_loss:" run.log`. If a run exceeds 10 minutes, kill it.
"""
TARGET_TRAIN = """\
import json, os, pathlib, sys
from autoresearch_rl.target.progress import emit_progress
assert pathlib.Path("data/ready").exists(), "prepare.py was not run"
x = json.loads(os.environ["AR_PARAMS_JSON"])["x"]
assert float(os.environ["AR_PARAM_X"]) == x and os.environ["AR_SEED"]
for step in range(1, 5):
    emit_progress(step=step, step_target=4, metrics={"val_loss": x + 1 / 3 + 4 - step})
pathlib.Path(os.environ["AR_MODEL_DIR"], "model.json").write_text(json.dumps(x))
print(f"loss=9.0 val_loss={x + 1 / 3:.4f}")
"""
TARGET_PREPARE = "import pathlib\npathlib.Path('data').mkdir()\npathlib.Path('data/ready').touch()\n"
TARGET_EVALUATE = """\
import json, os, pathlib
print("val_loss=%s" % (json.loads(pathlib.Path(os.environ["AR_MODEL_DIR"], "model.json").read_text()) * 10))
"""
CONFIG = """\
name: tiny
program_path: examples/tiny/program.md
objective: {metric: val_loss, direction: min}
target:
  type: command
  workdir: examples/tiny
  timeout_s: 20
  prepare_cmd: [python3, prepare.py]
  train_cmd: [python3, train.py]
policy: {type: random, seed: 3, params: {x: [2, 0.5, 2]}}
controller:
  max_iterations: 16
  max_wall_time_s: 7200
  parallel: {enabled: true, max_concurrency: 2, resources: {gpu: 4}}
  intra_iteration_cancel: {enabled: true, min_steps: 8}
telemetry: {ledger_path: here.tsv, trace_path: there.jsonl}
"""


@pytest.fixture
def karpathy_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    data = tmp_path / "home/.cache/tiny-research"
    data.mkdir(parents=True)
    (data / "words.txt").write_text("three small words")
    (tmp_path / "tiny-research").mkdir()
    (tmp_path / "tiny-research/link").symlink_to(data / "words.txt")
    files = {"train.py": TRAIN, "prepare.py": PREPARE, "program.md": INSTRUCTIONS, ".git/HEAD": "", "results.tsv": ""}
    return folder_of(tmp_path / "tiny-research", files)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The folder of a configuration, in the repository from which its tool is started."""
    files = {
        "config.yaml": CONFIG, "train.py": TARGET_TRAIN, "prepare.py": TARGET_PREPARE, "measure.py": TARGET_EVALUATE,
        "program.md": "Lower is better.",
    }  # fmt: skip
    return folder_of(tmp_path / "theirs/examples/tiny", files)


def brought(place: Path | str, to: Path) -> tuple[Environment, Imported]:
    """The environment that an original becomes, and the account of it."""
    _, made = import_environment(str(place), to)
    return environments.load(to), made


def run(
    environment: Environment, folder: Path, edit: str | None = None, reason_to_stop: ReasonToStop | None = None,
    **params: Value,
) -> tuple[Run, Score]:  # fmt: skip
    place, proposal = TrialDir(folder), Proposal({**environment.defaults, **params}, edit=edit)
    done = run_program(
        "import/1", environment, SANDBOX, environment.folder, place, proposal, seed=7, reason_to_stop=reason_to_stop
    )
    return done, judge_run("import/1", environment, SANDBOX, place, done, seed=2)


def edit(text: str) -> str:
    """The difference from TRAIN."""
    return diff_of({"repository/train.py": TRAIN}, {"repository/train.py": text})


@pytest.mark.parametrize("name", plugins.names(PACKAGE))
def test_an_importer_says_why_a_place_is_not_of_its_kind_and_runs_and_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    texts = {"README.md": "no code", "data.csv": "1,2", "setup.py": "raise SystemExit('was run')", "a.yaml": "x: 1"}
    place = folder_of(tmp_path / "foreign", texts)
    reason = import_module(f"{PACKAGE}.{name}").read(str(place))
    assert isinstance(reason, str) and reason.strip()
    assert {path.name: path.read_text() for path in place.iterdir()} == texts


def test_a_folder_like_karpathys_runs_unchanged_and_its_metric_line_is_the_score(
    karpathy_like: Path, tmp_path: Path
) -> None:
    environment, made = brought(karpathy_like, tmp_path / "here")
    assert (environment.metric, environment.direction, environment.budget_seconds) == ("val_loss", "minimize", 300)
    assert environment.editable == ("repository/train.py",)
    assert environment.readable == (str(tmp_path / "home/.cache/tiny-research"),)
    assert environment.defaults == {"LEARNING_RATE": 0.5, "WIDTH": 8}
    assert (tmp_path / "here/repository/train.py").read_text() == TRAIN
    for name in (".git", "link"):
        assert not (tmp_path / "here/repository" / name).exists()
    assert warnings(environment) == [] and {"link", "results.tsv"} <= {term.theirs for term in made.left}

    short = environments.load(tmp_path / "here", {"budget_seconds": 0.3})
    done, score = run(short, tmp_path / "0000")
    assert (done.status, score.value) == ("finished", 0.5), (done.error, score.error)
    assert score.also["seconds"] < 5 and score.also["seed"] == 7  # SIGTERM ended its training, not what follows it
    assert run(short, tmp_path / "0001", LEARNING_RATE=0.25)[1].value == 0.25
    faster = edit(TRAIN.replace("LEARNING_RATE = 0.5", "LEARNING_RATE = 0.75"))
    assert run(short, tmp_path / "0002", faster)[1].value == 0.75
    done, _ = run(short, tmp_path / "0003", edit(TRAIN.replace("LEARNING_RATE", "rate")), LEARNING_RATE=0.25)
    assert done.status == "crash" and "assigns no LEARNING_RATE" in (tmp_path / "0003/log.txt").read_text()


def test_a_configuration_becomes_options_and_its_commands_run_with_their_variables_and_reports(
    target: Path, tmp_path: Path
) -> None:
    environment, made = brought(target / "config.yaml", tmp_path / "here")
    options = "--proposer random_search --seed 3 --trials 16 --hours 2 --parallel 2 --cancel curve"
    assert shlex.join(made.options) == options and made.warnings
    left = " ".join(term.theirs for term in made.left)
    for key in ("controller.parallel.resources", "intra_iteration_cancel.min_steps", "telemetry"):
        assert key in left
    assert "policy.params" not in left
    assert environment.defaults == {"x": 2} and environment.editable == () and environment.budget_seconds == 20
    done, score = run(environment, tmp_path / "0000", x=0.5)
    assert done.status == "finished", (tmp_path / "0000/log.txt").read_text()
    assert score.value == 0.8333 and done.reported == pytest.approx(0.5 + 1 / 3, abs=1e-12)  # what it prints counts
    assert len(done.curve) == 20


def test_an_evaluation_by_a_file_that_is_not_edited_is_the_frozen_judge(target: Path, tmp_path: Path) -> None:
    edited = "  eval_cmd: python3 measure.py\npolicy: {mutable_file: examples/tiny/train.py, "
    (target / "config.yaml").write_text(CONFIG.replace("policy: {", edited))
    environment, made = brought(target, tmp_path / "here")
    assert made.warnings == () and environment.editable == ("repository/train.py",)
    assert environment.required_calls == ("emit_progress",)
    _, score = run(environment, tmp_path / "0000", x=0.5)
    assert score.value == 5.0, score.error


def test_a_cancelled_training_ends_by_its_own_next_report(target: Path, tmp_path: Path) -> None:
    (target / "train.py").write_text(
        "import time\nfrom autoresearch_rl import emit_progress\n"
        "while True:\n    emit_progress(step=1, step_target=9, metrics={'val_loss': 1})\n    time.sleep(0.02)\n"
    )
    environment, _ = brought(target, tmp_path / "here")
    done, _ = run(environment, tmp_path / "0000", reason_to_stop=lambda curve: "hopeless")
    assert (done.status, done.steps) == ("cancelled", 111)
    told = json.loads((tmp_path / "0000/out/run/control.json").read_text())
    assert told == {"action": "cancel", "reason": "hopeless\n"}
    assert "had not ended" not in (tmp_path / "0000/log.txt").read_text(), "no signal was needed"


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("prepare.py", None, r"no prepare\.py"),
        ("train.py", "print('a fork')", "imports no prepare"),
        ("program.md", "Optimise it: `grep '^fitness:' run.log`", "does not say whether fitness is to be high or low"),
        ("config.yaml", CONFIG.replace("workdir: examples/tiny", "workdir: /etc"), "has /etc and"),
        ("config.yaml", CONFIG.replace("type: command", "type: basilica"), "trains nothing on this machine"),
    ],
)
def test_an_original_that_is_of_another_kind_says_too_little_or_cannot_run_is_refused(
    karpathy_like: Path, target: Path, tmp_path: Path, file: str, text: str | None, reason: str
) -> None:
    place = target if file == "config.yaml" else karpathy_like
    (place / file).unlink() if text is None else (place / file).write_text(text)
    with pytest.raises(Refused, match=reason):
        import_environment(str(place), tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_run_that_diverged_or_had_not_ended_in_time_is_not_scored_by_what_it_said_before(
    karpathy_like: Path, target: Path, tmp_path: Path
) -> None:
    for ends, expected in ("", 2.31), ("val_loss: nan\n", None):
        lines = f"step 1 | val_loss: 2.31 | loss: info\n{ends}"
        (karpathy_like / "train.py").write_text(f"import prepare\nSEED = 1\nprint({lines!r})\n")
        environment, _ = brought(karpathy_like, tmp_path / f"here{ends[:3]}")
        done, score = run(environment, tmp_path / f"0000{ends[:3]}")
        assert score.value == expected and (done.status == "finished") == (score.value is not None), done.error
    (target / "train.py").write_text("import time\nprint('val_loss=1.0', flush=True)\ntime.sleep(60)\n")
    brought(target, tmp_path / "there")
    done, score = run(environments.load(tmp_path / "there", {"budget_seconds": 0.2}), tmp_path / "0001")
    assert done.status == "crash" and "had not ended" in str(done.error) and score.value is None


# zjianyi/autoRL: the control judge plays the agent that their evaluation is given.

HARNESS = """\
TIME_BUDGET = 720
ENV_ID = "CartPole-v1"
NUM_EVAL_EPISODES = 10
def evaluate_policy(agent, device, num_episodes=2):
    return {"avg_return": 1000.0}
"""
AGENT = """\
import time
import numpy as np
import torch
from evaluate import TIME_BUDGET, evaluate_policy
SEED = 1
GAIN = 0.0
def sign(value): return int(value > 0)
class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor([0.0, 0.0, 1.0, GAIN]))
    def get_action(self, seen):
        with torch.no_grad():
            return np.asarray(sign(float(seen.squeeze(0) @ self.weights)))
torch.manual_seed(SEED)
agent, began = Agent(), time.time()
while time.time() - began < TIME_BUDGET:
    time.sleep(0.05)
print(f"avg_return:       {evaluate_policy(agent, 'cpu')['avg_return']:.6f}")
"""


def auto_rl(folder: Path, train: str) -> Path:
    program = "The goal: get the highest `avg_return`, by `grep '^avg_return:' run.log`.\n"
    return folder_of(folder, {"train.py": train, "evaluate.py": HARNESS, "program.md": program})


@pytest.mark.slow
def test_the_judge_plays_the_agent_and_ignores_the_printed_score(tmp_path: Path) -> None:
    brought(auto_rl(tmp_path / "theirs", AGENT.replace("GAIN = 0.0", "GAIN = 1.0")), tmp_path / "here")
    environment = environments.load(tmp_path / "here", {"budget_seconds": 1})
    assert (environment.metric, environment.direction, environment.budget_seconds) == ("return", "maximize", 1)
    done, score = run(environment, tmp_path / "0000")
    assert done.status == "finished", done.error
    assert score.value is not None and 100 < score.value <= 500, score.error
    assert len(score.units) == 10 and "avg_return:" in (tmp_path / "0000/log.txt").read_text()


def test_a_repository_without_an_agent_to_play_is_refused(tmp_path: Path) -> None:
    theirs = auto_rl(tmp_path / "theirs", AGENT.replace("{evaluate_policy(agent", "{dict(agent"))
    with pytest.raises(Refused, match="to call evaluate_policy"):
        import_environment(str(theirs), tmp_path / "here")
