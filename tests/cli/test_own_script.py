"""`nightshift compare --train ... --eval ...`: a verdict about a user's own script, without an environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from environments.plugins import Refused
from flows.cli import own_script
from tasks.importing._runner import PROGRAMS
from tests.support.toy import command, environment, folder_of

TRAIN = """\
import argparse, json, os, random, time, zipfile

parser = argparse.ArgumentParser()
for name in ("--config", "--seed", "--out"):
    parser.add_argument(name)
args = parser.parse_args()
lr = json.load(open(args.config))["lr"]
draw = random.Random(args.seed)
os.makedirs("logs", exist_ok=True)
open("logs/progress.txt", "w").write("a script may write where it stands")
weights = [lr + draw.gauss(0, 1) for _ in range(100)]
with zipfile.ZipFile(args.out + ".zip", "w") as model:  # as Stable-Baselines3 does, with the date in it
    model.writestr("weights", json.dumps(weights))
    model.writestr("started", str(time.time()))
"""
EVAL = """\
import json, random, sys, zipfile

weights = json.loads(zipfile.ZipFile(sys.argv[1] + ".zip").read("weights"))
noise = random.SystemRandom().gauss(0, 0.01)
print(f"mean_reward={weights[0] + noise:.3f} +/- 3.10")
"""
COMMANDS = (
    "--train", "python train.py --config {config} --seed {seed} --out {out}", "--eval", "python eval.py {out}",
    "--a", "tuned.json", "--b", "default.json", "--runs", "5v3",
)  # fmt: skip
SAY = ("python", "-c", "import sys; print(sys.argv[1]); print(*sys.argv[2:], file=sys.stderr)")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {"train.py": TRAIN, "eval.py": EVAL, "tuned.json": '{"lr": 20.0}', "default.json": '{"lr": 1.0}'}
    return folder_of(tmp_path / "project", files)


def begun(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("compare", *arguments, "--json"), cwd=project, env=environment(None, PYTHONPATH=str(Path.cwd())),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def compare(project: Path, *arguments: str) -> tuple[int, Any]:
    """The exit code and the document."""
    with begun(project, *arguments) as process:
        shown = process.communicate(timeout=220)[0]
    return process.returncode, json.loads(shown)


def test_one_command_says_whether_a_beats_b_and_a_second_one_adds_runs(project: Path) -> None:
    includes = 'import os, sys\nassert os.path.exists(os.path.join(os.path.dirname(sys.argv[2]), "default.json"))\n'
    (project / "train.py").write_text(includes + TRAIN)
    code, found = compare(project, *COMMANDS)
    assert (code, found["verdict"]) == (0, "better"), found["words"]
    assert found["gain"] == pytest.approx(19, abs=4) and 0 < found["low"] < found["gain"]
    assert [sum(run["arm"] == arm for run in found["runs"]) for arm in "AB"] == [5, 3]
    assert Path(found["directory"], "comparison.png").is_file()
    assert not (project / "logs").exists(), "it ran in a copy"
    again = compare(project, *COMMANDS)[1]
    assert again["runs"] == found["runs"], "asking again is no new chance"
    code, more = compare(project, "--more", "4v2")
    assert code == 0 and len(more["runs"]) == 14 and more["runs"][:8] == found["runs"]
    assert found["level"] < more["level"] < 0.05, "more runs get what is left of the error"
    code, found = compare(project, *COMMANDS, "--minimize", "--minutes", "2")
    assert (code, found["verdict"]) == (3, "worse"), found["words"]


@pytest.mark.slow
def test_a_script_that_forgot_its_seed_is_found_by_its_weights_whatever_the_date_in_its_file(project: Path) -> None:
    (project / "train.py").write_text(TRAIN.replace("random.Random(args.seed)", "random.Random(0)"))
    one_slot = ("--set", "device=cpu", "--set", f"cores={len(os.sched_getaffinity(0))}")
    code, found = compare(project, *COMMANDS, *one_slot)
    assert code == 1 and "ignores its seed" in found["words"] and found["gain"] is None
    assert len(found["runs"]) < 8


@pytest.mark.slow
def test_a_comparison_killed_with_9_goes_on_and_repeats_no_finished_run(project: Path, home: Path) -> None:
    (project / "train.py").write_text("import time\ntime.sleep(2)\n" + TRAIN)
    with begun(project, *COMMANDS) as process:
        while len(before := list(home.glob(".comparisons/*/*/trials/*/fresh.json"))) < 3 and process.poll() is None:
            time.sleep(0.1)
        process.kill()
    kept = {path: path.read_bytes() for path in before}
    code, found = compare(project, *COMMANDS)
    assert code == 0 and len(found["runs"]) == 8
    assert kept and all(path.read_bytes() == content for path, content in kept.items())


@pytest.mark.slow
def test_a_script_that_saves_when_its_time_is_over_is_asked_once(project: Path) -> None:
    saves = """
import signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(time.time()))
while not asked:
    time.sleep(0.02)
time.sleep(0.3)
lr += 100 * (len(asked) - 1)
"""
    (project / "train.py").write_text(TRAIN.replace("draw = random", saves + "draw = random"))
    code, found = compare(project, *COMMANDS, "--set", "budget_seconds=4")
    assert code == 0, found["words"]
    assert found["a"]["score"] == pytest.approx(20, abs=4), "a second signal would have told"
    assert "5 of 5 runs of A and 3 of 3 runs of B were ended" in found["words"]


@pytest.mark.slow
def test_the_command_names_the_interpreter_with_its_editable_packages_and_large_data_stays_in_place(
    project: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=True)
    package = tmp_path / "own/depot"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("BONUS = 100.0\n")
    (next((project / ".venv/lib").glob("python3*")) / "site-packages/depot.pth").write_text(f"{package.parent}\n")
    data = project / "data"
    data.mkdir()
    with (data / "large.bin").open("wb") as file:
        file.truncate(own_script.LARGEST_BYTES + 1)
    uses = "import depot, sys\nassert sys.prefix.endswith('.venv')\nopen('data/large.bin').read(1)\nopen('data/new', 'w')\n"
    (project / "train.py").write_text(uses + TRAIN.replace("lr + draw", "lr + depot.BONUS + draw"))
    commands = [word.replace("python ", ".venv/bin/python ") for word in COMMANDS]
    code, found = compare(project, *commands)
    assert code == 0, found["words"]
    assert found["b"]["score"] == pytest.approx(101, abs=4)


@pytest.mark.slow
def test_the_best_trial_of_a_study_meets_the_median_and_a_searched_seed_is_left_out(project: Path) -> None:
    import optuna

    study = optuna.create_study(storage=f"sqlite:///{project}/study.db", direction="minimize")
    for lr, seed in ((1.0, 7), (30.0, 8), (20.0, 9)):
        study.enqueue_trial({"lr": lr, "seed": seed})
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 30) + 0 * trial.suggest_int("seed", 0, 9), n_trials=3)
    own = [*COMMANDS[:4], *COMMANDS[8:]]
    code, found = compare(project, *own, "--optuna", "study.db")
    assert (code, found["verdict"]) == (0, "better"), found["words"]
    assert [found[arm]["named"] for arm in "ab"] == ["trial 0, the best of 3", "trial 2, the median of 3"]
    named, _ = own_script.of_study(str(project / "study.db"), "default")
    assert [json.loads(text) for _, text in named] == [{"lr": 1.0}, {}]


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        ("loading\nMean reward: 12.50 +/- 3.25", {"score": 12.5}),
        ("Mean return over 100 episodes: 1,213.4.", {"score": 1213.4}),
        ("mean reward: 12,034.5 +/- 1,076.3", {"score": 12034.5}),
        ("tensor(195.3, device='cuda:0') ± nan", {"score": 195.3}),
        ("episodes 20\nreturn -1.5e2", {"score": -150.0}),
        ('{"score": 0.25}\n', {"score": 0.25}),
        ('{"units": [1, 0]}\ndone', {"units": [1, 0]}),
        ("v2 done", None),
        ("return 7\fat exit: 1 leaked object", {"score": 7.0}),
    ],
)
def test_the_last_number_that_is_printed_is_the_score(tmp_path: Path, printed: str, result: object) -> None:
    shutil.copy(PROGRAMS / "run.py", tmp_path / "train.py")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "params.json").write_text("{}")
    (tmp_path / "repository").mkdir()
    judge = [sys.executable, "train.py", "judge", tmp_path, "result.json", "--", *SAY, *printed.split("\f")]
    done = subprocess.run(judge, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode == 0) == (result is not None), done.stderr
    assert result is None or json.loads((tmp_path / "result.json").read_text()) == result


def test_a_command_gets_what_it_names_of_both_sides_and_what_lacks_is_refused_before_anything_runs(
    project: Path, tmp_path: Path
) -> None:
    cases = {
        "python train.py --config {config} --out {out}": r"needs \{seed\}",
        "python train.py --config {config} --seed {seed}": r"needs \{seed\}",
        "python train.py --batch {batch} --seed {seed} --out {out}": r"no plain value for \{batch\}",
        "bin/python train.py --config {config} --seed {seed} --out {out}": "bin/python does not run",
        "python train.py --lr {lr} --n {n} --seed {seed} --out {out}": "",
    }
    (project / "b.yml").write_text("lr: 0.1\nn: 3\n")
    sides = ("a", '{"lr": 0.2, "n": 3}'), ("b.yml", "b.yml")
    for number, (train, why) in enumerate(cases.items()):
        with pytest.raises(Refused, match=why) if why else nullcontext():
            question = own_script.question(train, COMMANDS[3], *sides, tmp_path / str(number), {}, folder=project)
    params = [question.environment.complete(side.params) for side in question.sides.values()]
    assert params == [{"lr": 0.2, "n": 3}, {"lr": 0.1, "n": 3}]
    for name, there in (("itself", "itself"), ("empty", "/dev/null"), ("keys", "/etc/ssh")):
        (project / name).symlink_to(there)
    with pytest.raises(Refused, match="may not read"):
        own_script.question(train, COMMANDS[3], *sides, tmp_path / "again", {}, folder=project)


def test_an_entry_of_rl_zoo_meets_the_defaults_of_the_same_task(tmp_path: Path) -> None:
    entry = "{n_envs: 8, n_timesteps: !!float 1e5, policy: 'MlpPolicy', learning_rate: lin_0.001}"
    (tmp_path / "ppo.yml").write_text(f"CartPole-v1: {entry}\n")
    question = own_script.of_rl_zoo(f"{tmp_path}/ppo.yml#CartPole-v1", 10, tmp_path, {})
    folder = question.environment.folder
    tuned, default = (
        yaml.safe_load((folder / "repository" / str(side.params["config"])).read_text())["CartPole-v1"]
        for side in question.sides.values()
    )
    assert default == {"n_timesteps": 1e5, "policy": "MlpPolicy"} and tuned == yaml.safe_load(entry)
    toml = (folder / "environment.toml").read_text()
    assert "--algo ppo --env CartPole-v1" in toml and "zoo_episodes.py ppo CartPole-v1" in toml
    assert (folder / "repository/zoo_episodes.py").is_file()

    logs = tmp_path / "logs/ppo/CartPole-v1_1/CartPole-v1"
    logs.mkdir(parents=True)
    ordered = "!!python/object/apply:collections.OrderedDict\n- - - {}\n    - {}\n  - - {}\n    - {}\n"
    (logs / "args.yml").write_text("- [[algo, ppo], [env, CartPole-v1], [n_timesteps, 5000]]")
    (logs / "config.yml").write_text(ordered.format("n_timesteps", "100000", "n_envs", "8"))
    (tmp_path / "draft").mkdir()
    own_script.of_rl_zoo(str(logs.parent), 10, tmp_path / "draft", {})
    tuned = yaml.safe_load((tmp_path / "draft/tuned.yml").read_text())
    assert tuned == {"CartPole-v1": {"n_timesteps": 5000, "n_envs": 8}}
    with pytest.raises(Refused, match="Did you mean 'CartPole-v1'"):
        own_script.of_rl_zoo(str(tmp_path / "ppo.yml#CartPole-v0"), 10, tmp_path, {})
