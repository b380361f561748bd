"""What a job asks of Slurm, and what is refused before one is submitted. No Slurm is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import environments
from environments.plugins import Refused
from flows.cli.set_option import parse_settings
from flows.engine.slurm import commands, slurm_check
from flows.engine.slurm.commands import AtLimit, JobState, SlurmAway
from flows.engine.slurm.request import JobRequest, environment_of_a_job, pattern, request_of, script
from flows.engine.slurm.slurm_job import end_left
from flows.spec import wishes
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.slurm_options import SlurmOptions
from tasks.store.launch_files import Launches
from tests.support.toy import QUADRATIC, quadratic


def request(folder: Path, toml: str = "", **options: Any) -> JobRequest:
    made = quadratic(folder, toml=QUADRATIC.replace('judge = "command"', f'judge = "command"\n{toml}'))
    return JobRequest(SlurmOptions.of(options), environments.load(made))


def test_a_job_asks_for_what_its_environment_needs(tmp_path: Path) -> None:
    plain = request(tmp_path / "plain").arguments()
    assert "--cpus-per-task=1" in plain and "--time=6" in plain and "--no-requeue" in plain
    assert not any(each.startswith(("--mem", "--gres", "--partition")) for each in plain)
    large = request(tmp_path / "large", 'cores = 4\ngpus = 2\ndevice = "cuda"', memory_gb=2, partition="gpu")
    assert {"--cpus-per-task=4", "--gres=gpu:2", "--mem=2048M", "--partition=gpu"} <= set(large.arguments())


def test_what_a_person_states_goes_before_what_the_environment_says(tmp_path: Path) -> None:
    stated = request(tmp_path, 'device = "cuda"', gpus=0, minutes=90, sbatch=["--constraint=a100"])
    arguments = stated.arguments()
    assert "--time=90" in arguments and arguments[-1] == "--constraint=a100"
    assert not any(each.startswith("--gres") for each in arguments)


def test_the_limit_of_a_control_has_time_for_its_judgements_and_none_for_training(tmp_path: Path) -> None:
    long = request(tmp_path, "", minutes=None)
    longer = JobRequest(long.options, long.environment.model_copy(update={"budget_seconds": 7200.0}))
    assert longer.minutes() == long.minutes() + 120
    assert longer.minutes("untrained") == long.minutes("untrained")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitoin": "gpu"}, "partition"),
        ({"partition": "gpu; rm"}, "partition"),
        ({"sbatch": ["-p gpu"]}, "--name=value"),
        ({"sbatch": ["--requeue"]}, "the engine sets requeue"),
        ({"sbatch": ["--wra=true"]}, "the engine sets wrap"),
        ({"sbatch": ["--constraint=a\n#SBATCH --wrap=true"]}, "--name=value"),
        ({"minutes": 0}, "minutes"),
        ({"gpus": -1}, "gpus"),
    ],
)
def test_a_wrong_option_of_slurm_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        SlurmOptions.of(options)


def test_options_of_slurm_come_from_the_command_line_and_may_change(tmp_path: Path) -> None:
    parsed = parse_settings(["slurm.partition=gpu", 'slurm.sbatch=["--exclude=node-3"]', "slurm.minutes=30"])
    spec = CampaignSpec.of(
        environment=str(quadratic(tmp_path / "quad")), name="night", launch="slurm", advanced=parsed.stated
    )
    assert spec.slurm == SlurmOptions(partition="gpu", sbatch=("--exclude=node-3",), minutes=30)
    environment = spec.loaded_environment()
    made = request_of(spec, environment)
    assert made is not None and made.options == spec.slurm
    assert request_of(spec.model_copy(update={"launch": "gpu-pair"}), environment) is None


def test_a_spec_that_submits_jobs_with_options_is_asked_about(tmp_path: Path) -> None:
    asked = {"environment": "cartpole", "launch": "slurm", "advanced": {"slurm_options": {"sbatch": ["--qos=high"]}}}
    (wish,) = wishes.of_spec(asked, tmp_path / "night.toml")
    assert "Slurm" in wish and "--qos=high" in wish


def test_a_job_gets_the_login_of_prefect_and_no_other_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    for name, value in (
        ("OPENAI_API_KEY", "sk-0123456789"), ("MLFLOW_TRACKING_PASSWORD", "0123456789"), ("CUDA_VISIBLE_DEVICES", "3"),
        ("SLURM_JOB_ID", "17"), ("SLURM_CONF", "/etc/slurm.conf"), ("NIGHTSHIFT_HOME", "/srv/runs"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    with temporary_settings({PREFECT_API_URL: "http://server:4200/api", PREFECT_API_AUTH_STRING: "me:0123456789"}):
        given = environment_of_a_job()
    assert given["PREFECT_API_URL"] == "http://server:4200/api" and given["PREFECT_API_AUTH_STRING"] == "me:0123456789"
    assert given["SLURM_CONF"] == "/etc/slurm.conf" and given["NIGHTSHIFT_HOME"] == "/srv/runs"
    assert not {"OPENAI_API_KEY", "MLFLOW_TRACKING_PASSWORD", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"} & given.keys()


def test_a_machine_without_slurm_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match=r"sbatch, scontrol.* not on PATH"):
        slurm_check.check(request(tmp_path / "quad"), "http://127.0.0.1:4200/api")


def test_the_script_withholds_gpus_that_slurm_did_not_give_and_names_survive_a_shell() -> None:
    text = script("1234; rm -rf /")
    assert 'CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}"' in text and "'1234; rm -rf /'" in text
    assert pattern(Path("/srv/100%/a\\b")) == "/srv/100%%/a\\\\b"


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)", AtLimit),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", SlurmAway),
        ("sbatch: error: invalid partition specified: gpuu", Refused),
    ],
)
def test_what_sbatch_refuses_for_now_is_waited_for(
    says: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(kind) as raised:
        commands.submit(["--time=1"], "job.sh", {"PATH": f"{tmp_path}:/bin"})
    assert type(raised.value) is kind and says[:70] in str(raised.value)


def test_a_state_says_whether_a_job_waits_or_is_over() -> None:
    assert JobState("17", "PENDING", "Resources").is_queued
    assert not JobState("17", "PENDING", "BeginTime", restarts=1).is_queued
    assert JobState("17", "NODE_FAIL", "None", node="n3").words == "Slurm job 17 NODE_FAIL on n3"
    assert JobState("17", "PREEMPTED").is_over and not JobState("17", "COMPLETING").is_over


def test_launches_without_jobs_leave_nothing_to_cancel(tmp_path: Path) -> None:
    launches = Launches(tmp_path, "0007-1")
    assert launches.job(1) is None and end_left(tmp_path) == []
    launches.folder.mkdir(parents=True)
    launches.submitted(1, "17")
    assert launches.job(1) == "17" and end_left(tmp_path) == []  # no request: nobody waits for it
