"""prime-rl: configurations of an old and a new version in today's keys, sweeps, results.tsv."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import earlier_trials
from environments.plugins import Refused
from tasks.importing import Imported, imported
from tasks.importing.reading import results_tsv

OLD = """\
inference_gpu_ids = [0]
max_steps = 30
[model]
name = "Qwen/Qwen2.5-0.5B-Instruct"
[orchestrator]
batch_size = 64
rollouts_per_example = 4
[orchestrator.sampling]
temperature = 0.9
[[orchestrator.env]]
id = "primeintellect/gsm8k"
[orchestrator.eval]
num_examples = 100
[trainer.optim]
type = "muon"
lr = 3e-7
[trainer.loss]
token_mask_high = 5.0
kl_tau = 0.05
[trainer.model]
compile = {}
"""
NEW = """\
max_steps = 10
seq_len = 1024
[model]
name = "me/other"
[orchestrator]
group_size = 16
[[orchestrator.train.source]]
name = "a"
env.taskset.id = "gsm8k"
[[orchestrator.eval.source]]
name = "b"
env.taskset.id = "hendrycks-math"
[trainer.loss]
kl_tau = 0.05
"""
SWEEP = """\
name = "rates"
base = ["base.toml"]
output_dir = "study"
strategy = { type = "random", num_trials = 8 }
objective = { metric = "eval/gsm8k/pass@1", direction = "maximize" }
[parameters."trainer.optim.lr"]
distribution = "log_uniform"
min = 1e-6
max = 1e-5
[parameters.orchestrator.rollouts_per_example]
values = [4, 8]
[parameters."trainer.model.lora.rank"]
values = [8, 16]
[parameters.max_steps]
values = [5, 9]
"""


def laid(made: Imported, folder: Path) -> Path:
    """The environment, written out."""
    folder.mkdir()
    for name, content in made.files.items():
        (folder / name).write_text(content if isinstance(content, str) else content.read_text())
    return folder


def left(made: Imported) -> dict[str, str]:
    return {term.theirs: term.ours for term in made.left}


def test_an_old_configuration_is_carried_where_its_keys_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(OLD)
    (tmp_path / "prepare.py").write_text("TIME_BUDGET = 300\nraise SystemExit('it was run')\n")
    name, made = imported(str(tmp_path))
    environment = environments.load(laid(made, tmp_path / "made"))
    environment.check_files()
    assert (name, environment.budget_steps, environment.budget_seconds) == ("prime_rl", 30, 300)
    baseline = environment.defaults
    assert (baseline["learning_rate"], baseline["batch_size"], baseline["group_size"]) == (3e-7, 64, 4)
    assert (baseline["temperature"], baseline["kl_tau"]) == (0.9, 0.0)  # the same name, and another meaning since
    assert tomllib.loads(str(made.files["train.toml"]))["trainer"]["optim"]["type"] == "muon"
    why = left(made)
    assert "mean something else" in why["trainer.loss.token_mask_high = 5.0"]
    assert {"trainer.loss.kl_tau = 0.05", "inference_gpu_ids = [0]"} <= why.keys()


def test_a_new_configuration_keeps_its_keys_and_finds_the_environment_of_both_datasets(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(NEW)
    _, made = imported(str(tmp_path / "mine.toml"))
    environment = environments.load(laid(made, tmp_path / "made"))
    assert environment.defaults["kl_tau"] == 0.05 and environment.defaults["group_size"] == 16
    assert environment.prepare is not None
    assert environment.prepare.settings["math"] and environment.prepare.settings["model"] == "me/other"
    assert environment.prepare.settings["model_revision"] == "main" and "revision of the model" in left(made)
    assert tomllib.loads(str(made.files["train.toml"]))["seq_len"] == 1024


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OLD.replace("primeintellect/gsm8k", "me/wordle"), "no environment here has its questions"),
        (NEW.replace('"gsm8k"', '"reverse-text"'), "together"),
        ('[orchestrator]\nbatch_size = 4\n[model]\nname = "x"\n', "says what is trained on"),
    ],
)
def test_questions_that_no_environment_has_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.toml").write_text(text)
    with pytest.raises(Refused, match=said):
        imported(str(tmp_path))


def test_a_value_that_a_log_scale_does_not_have_is_left(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(OLD.replace("lr = 3e-7", "lr = 0.0"))
    _, made = imported(str(tmp_path))
    assert "log scale" in left(made)["trainer.optim.lr = 0.0"]
    assert environments.load(laid(made, tmp_path / "made")).defaults["learning_rate"] == 5e-6


CURRICULUM = """
[orchestrator.train.source.curriculum.sampler]
type = "difficulty_pool"
seed = 7
pools.easy = { threshold = 1.0, weight = 0.1 }
[orchestrator.train.source.curriculum.gates.no_signal]
type = "advantage_range"
"""


def test_a_source_s_curriculum_is_carried_where_there_is_one_source(tmp_path: Path) -> None:
    one = NEW.partition("[[orchestrator.eval")[0] + CURRICULUM
    (tmp_path / "train.toml").write_text(one)
    _, made = imported(str(tmp_path))
    train = tomllib.loads(str(made.files["train.toml"]))
    [source] = train["orchestrator"]["train"]["source"]
    assert source == {"curriculum": tomllib.loads(one)["orchestrator"]["train"]["source"][0]["curriculum"]}
    (tmp_path / "train.toml").write_text(f"{one}[[orchestrator.train.source]]\nenv.taskset.id = 'math'\n")
    assert "several sources" in left(imported(str(tmp_path))[1])["orchestrator.train.source"]


def a_sweep(folder: Path) -> Path:
    (folder / "base.toml").write_text(OLD)
    (folder / "sweep.toml").write_text(SWEEP)
    return folder / "sweep.toml"


def test_a_sweep_becomes_the_space_and_what_it_starts_from_the_file(tmp_path: Path) -> None:
    name, made = imported(str(a_sweep(tmp_path)))
    environment = environments.load(laid(made, tmp_path / "made"))
    assert name == "prime_rl_sweep" and list(environment.space) == ["learning_rate", "group_size", "lora_rank"]
    assert environment.defaults["group_size"] == 4 and environment.defaults["lora_rank"] == 8
    assert tomllib.loads(str(made.files["train.toml"]))["orchestrator"]["batch_size"] == 64
    assert made.options == ("--proposer", "random_search", "--trials", "8")
    assert {"output_dir", "objective: eval/gsm8k/pass@1", "max_steps"} <= left(made).keys()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["base.toml"]', '["gone.toml"]', "there is no gone.toml"),
        ('name = "rates"', 'entrypoint = "sft"', "only rl is"),
        ("min = 1e-6", "", "with min and max"),
        ("values = [4, 8]", "values = [[4], 8]", "must be a list of numbers"),
        ("min = 1e-6", f"min = {10**400}", "with min and max"),
        (
            "orchestrator.rollouts_per_example]\nvalues = [4, 8]",
            "orchestrator]\nrollouts_per_example = 3",
            "a table with",
        ),
    ],
)
def test_a_sweep_that_cannot_be_carried_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    place = a_sweep(tmp_path)
    place.write_text(SWEEP.replace(old, new))
    with pytest.raises(Refused, match=said):
        imported(str(place))


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_line_of_results_tsv_has_the_parameters_of_its_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    commits = []
    for text in (OLD, OLD.replace("3e-7", "9e-7")):
        (tmp_path / "train.toml").write_text(text)
        git(tmp_path, "add", "train.toml")
        git(tmp_path, "commit", "-qm", "x")
        commits.append(git(tmp_path, "rev-parse", "--short=7", "HEAD"))
    lines = [
        f"{commits[0]}\t0.35\t38.0\tkeep\tbaseline", f"{commits[1]}\t0.38\t38.2\tkeep\tlr \"9e-7",
        "d4e5f6a\t0.000000\t0.0\tcrash\tOOM", "--help\tnan\t0.0\tdiscard\ta commit that is none", "", "short",
    ]  # fmt: skip
    (tmp_path / "results.tsv").write_text("\n".join(["commit\teval_score\tmemory_gb\tstatus\tdescription", *lines]))
    history = imported(str(tmp_path))[1].history
    assert [one.score for one in history] == [0.35, 0.38, None, None]
    assert [one.params.get("learning_rate") for one in history] == [3e-7, 9e-7, None, None]
    assert history[1].note == 'results.tsv, line 3: keep: lr "9e-7'
    (tmp_path / earlier_trials.FILE).write_text(earlier_trials.text(history))
    assert len(earlier_trials.read(tmp_path)) == 4


@pytest.mark.parametrize("text", ["", "a\tb\n1\t2\n", "\0\xff\n\t\t\n", "commit\tstatus\tdescription\nx\ty\tz\n"])
def test_a_results_tsv_of_another_form_has_no_trials(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.tsv").write_text(text)
    assert results_tsv.trials(tmp_path / "results.tsv") == ()


def test_a_file_at_a_commit_is_read_without_running_the_repositorys_programs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.toml").write_text("lr = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    ran: Any = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.pager", "filter.x.smudge", "diff.x.textconv"):
        git(tmp_path, "config", key, f"touch {ran}")
    (tmp_path / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert results_tsv.at_commit(tmp_path, commit, "train.toml") == "lr = 1\n"
    assert results_tsv.at_commit(tmp_path, "HEAD", "train.toml") is None
    for key, value in {
        "core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://nobody@127.0.0.1/x", "core.sshCommand": f"touch {ran}; false",
    }.items():  # fmt: skip
        git(tmp_path, "config", key, value)
    assert results_tsv.at_commit(tmp_path, "1" * 40, "train.toml") is None, "it is not fetched"
    assert not ran.exists()
