"""`nightshift doctor --for`: each fault of a machine or an environment has its own line, and real runs come last."""

from __future__ import annotations

import json
import shlex
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.cli.doctor import environment_checks, first_runs, model_memory, report
from flows.cli.doctor.machine import Check
from flows.cli.doctor.model_memory import Model, answers_at_once, model_of, of_training
from tests.support.fake_prime_rl.laying import Faults, base_model, lay
from tests.support.prime_rl_problem import laid
from tests.support.text_exam import TASKSET, stand_in
from tests.support.toy import FIT, QUADRATIC, SANDBOX, nightshift, quadratic, told

needs_bwrap = pytest.mark.skipif(SANDBOX.level != "bwrap", reason="prime-rl's processes need bubblewrap")
ORDER = ["files", "packages", "judge", "sandbox", "room", "data", "space"]
OF_PRIME_RL = ["prime_rl", "driver", "toolkit", "attention", "memory", "loopback", "kernels"]


@pytest.fixture(autouse=True)
def home_is_there(home: Path) -> None:
    home.mkdir(mode=0o700, parents=True)


def looked_at(environment: Environment, home: Path) -> dict[str, Check]:
    return {name: check() for name, check in environment_checks.checks(environment, home).items()}


def states(checks: dict[str, Check], *names: str) -> dict[str, str]:
    return {name: checks[name].state for name in names or checks}


# Any environment


def test_data_that_is_not_prepared_is_so_by_a_command_that_finds_the_environment(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "my problem", toml=f'{QUADRATIC}\n[prepare]\nprogram = "fit.py"\ndisk_gb = 0.01\n')
    remedy = environment_checks.data(environments.load(folder), home).remedy
    assert shlex.split(remedy.split("`")[1]) == ["nightshift", "env", "prepare", str(folder)]


def test_an_environment_on_the_cpu_is_in_order_from_its_files_to_its_room(tmp_path: Path, home: Path) -> None:
    checks = looked_at(environments.load(quadratic(tmp_path / "env")), home)
    assert list(checks) == ORDER
    assert set(states(checks).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "line", "word"),
    [
        ("files", 'program = ["fit.py", "gone.py"]', "gone.py"),
        ("judge", 'eval_cmd = "python judge.py {out}"', "result"),
        ("sandbox", 'readable = ["/nowhere/at/all"]', "/nowhere/at/all"),
        ("room", 'device = "cuda"', "no usable GPU"),
        ("data", '[prepare]\nprogram = "fit.py"\ndisk_gb = 1e6', "1e+06 GiB"),
    ],
)
def test_a_fault_of_an_environment_is_bad_with_its_remedy(
    name: str, line: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + ":/usr/bin:/bin")  # no nvidia-smi of this machine
    folder = quadratic(tmp_path / "env")
    file, key = folder / "environment.toml", line.partition(" ")[0]
    kept = [old for old in file.read_text().splitlines() if not old.startswith(key)]
    place = kept.index("[command]") + 1 if key == "eval_cmd" else 0 if "[" not in line[:1] else len(kept)
    file.write_text("\n".join([*kept[:place], line, *kept[place:]]) + "\n")
    check = looked_at(environments.load(folder), home)[name]
    assert check.state == "bad" and word in check.fact and check.remedy


def test_a_module_that_a_program_imports_and_this_python_lacks_is_named(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "env", fit="import json, of_nobody.part\nfrom also_nobody import x\n" + FIT)
    check = looked_at(environments.load(folder), home)["packages"]
    assert check.state == "bad" and "of_nobody, also_nobody" in check.fact and "pip install" in check.remedy


def test_a_program_that_is_no_python_is_bad_and_one_of_another_interpreter_is_not_looked_into(
    tmp_path: Path, home: Path
) -> None:
    folder = quadratic(tmp_path / "env", fit="def (")
    assert looked_at(environments.load(folder), home)["packages"].state == "bad"
    other = environments.load(folder, {"train_cmd": "bash fit.py {out} {x}"})
    assert looked_at(other, home)["packages"].state == "ok"


def test_limits_that_the_machine_does_not_have_are_a_note(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "env")
    much: dict[str, Value] = {"limits.out_gb": 1e6, "limits.scratch_gb": 1e5}
    check = looked_at(environments.load(folder, much), home)["space"]
    assert check.state == "note" and "out_gb" in check.remedy and "scratch_gb" in check.remedy


# prime-rl


def machine(
    tmp_path: Path, driver: str = "570.86.15", capability: str = "9.0", second: str = "", used: str = "3",
    total: str = "81559", cards: int = 2, ends: int = 0, **overrides: Value,
) -> Environment:  # fmt: skip
    """The stand-in's problem on a machine whose nvidia-smi says this."""
    folder, checkout = laid(tmp_path)
    overrides = {"gpus": 2, **overrides}
    answers = {
        "index": ["0", "1"], "uuid": ["GPU-a", "GPU-b"], "name": ["Stand-in"] * 2, "driver_version": [driver] * 2,
        "compute_cap": [capability, second or capability], "memory.used": [used] * 2, "memory.total": [total] * 2,
    }  # fmt: skip
    script = (
        f"#!{sys.executable}\nimport sys\nrows = {answers!r}\nfields = sys.argv[1].partition('=')[2].split(',')\n"
        f"for at in range({cards}):\n    print(', '.join(rows[field][at] for field in fields))\n"
        f"sys.exit({ends})\n"
    )
    (checkout / ".venv/bin/nvidia-smi").write_text(script)
    dotted = {name.replace("__", "."): value for name, value in overrides.items()}
    return environments.load(folder, dotted)


def found(name: str, environment: Environment, home: Path) -> Check:
    return environment_checks.checks(environment, home)[name]()


def sized(folder: Path, weights: int, layers: int = 24) -> str:
    """A model directory of so many weights that nobody has to store; its path."""
    folder.mkdir()
    config = {
        "model_type": "qwen2", "num_hidden_layers": layers, "hidden_size": 896, "intermediate_size": 4864,
        "vocab_size": 151_936, "num_attention_heads": 14, "num_key_value_heads": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [weights], "data_offsets": [0, 2 * weights]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return str(folder)


@needs_bwrap
def test_a_machine_for_prime_rl_is_in_order_but_for_kept_kernels(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = machine(tmp_path, fixed__model=sized(tmp_path / "model", 494_032_768))
    monkeypatch.setenv("PATH", f"{environment.fixed['prime_rl']}/.venv/bin:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    checks = looked_at(environment, home)
    assert list(checks) == [*ORDER, *OF_PRIME_RL]
    bad = {name: check for name, check in checks.items() if check.state != "ok"}
    assert list(bad) == ["data", "kernels"], bad
    assert "flash_attention_2" in checks["attention"].fact and "494,032,768" in checks["memory"].fact
    kept = Path(str(environment.fixed["prime_rl"])) / ".cache"
    (kept / "vllm").mkdir(parents=True)
    assert "compiled at an unknown place" in found("kernels", environment, home).fact
    (kept / "made_at").write_text("/tmp/home/prime_rl_cache\n")
    assert found("kernels", environment, home).state == "ok"


@pytest.mark.parametrize(
    ("name", "how", "state", "word"),
    [
        ("room", {"gpus": 1}, "bad", "gpus = 1"),
        ("driver", {"driver": "520.61.05"}, "bad", "520"),
        ("driver", {"driver": "560.35.03"}, "note", "12.8"),
        ("driver", {"driver": "[N/A]"}, "bad", "N/A"),
        ("driver", {"cards": 1}, "bad", "lists 1"),
        ("driver", {"cards": 0}, "bad", "lists no GPU"),
        ("driver", {"ends": 9}, "bad", "nvidia-smi"),
        ("toolkit", {"capability": "12.0"}, "note", "12.0"),
        ("toolkit", {"cards": 0}, "note", "not looked at"),
        ("attention", {"capability": "7.5"}, "bad", "7.5"),
        ("attention", {"second": "8.9"}, "note", "8.9"),
        ("memory", {"used": "70112"}, "bad", "GiB"),
        ("memory", {"total": "[N/A]"}, "note", "does not tell"),
        ("memory", {"fixed__model": "/nowhere"}, "note", "no model"),
        ("kernels", {"fixed__cache": "/nowhere"}, "bad", "/nowhere"),
        ("prime_rl", {"fixed__prime_rl": "/nowhere"}, "bad", "no /nowhere/.venv/bin/rl"),
        ("prime_rl", {"fixed__prime_rl_commit": "559b4477"}, "bad", "559b4477"),
        ("prime_rl", {"fixed__prime_rl_commit": ""}, "note", "empty"),
        ("prime_rl", {"fixed__stall_deadline": "soon"}, "bad", "stall_deadline"),
    ],
)
def test_a_fault_of_a_gpu_box_has_its_line(
    name: str, how: dict[str, Any], state: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    check = found(name, machine(tmp_path, **how), home)
    assert (check.name, check.state) == (name, state) and word in check.fact, check
    assert check.remedy


@pytest.mark.parametrize("stated", [None, "0,1", "GPU-a,GPU-b"])
def test_gpus_that_a_variable_names_and_nvidia_smi_does_not_are_none(
    stated: str | None, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = machine(tmp_path, cards=0)
    if stated:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", stated)
    checks = {name: found(name, environment, home) for name in ("driver", "toolkit", "attention", "memory")}
    assert states(checks) == {"driver": "bad", "toolkit": "note", "attention": "note", "memory": "note"}


def test_the_driver_is_compared_with_the_cuda_of_prime_rls_own_torch(tmp_path: Path, home: Path) -> None:
    environment = machine(tmp_path, driver="570.86.15")
    file = Path(str(environment.fixed["prime_rl"])) / ".venv/lib/python3.12/site-packages/torch/version.py"
    file.parent.mkdir(parents=True)
    file.write_text("__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    check = found("driver", environment, home)
    assert check.state == "bad" and "13.0" in check.fact and "580" in check.remedy


@pytest.mark.parametrize(("capability", "state"), [("8.9", "bad"), ("12.0", "bad"), ("8.0", "note"), ("9.0", "note")])
def test_a_driver_older_than_vllms_cuda_is_bad_where_it_compiles_vllms_attention(
    capability: str, state: str, tmp_path: Path, home: Path
) -> None:
    environment = machine(tmp_path, driver="570.86.15", capability=capability)
    packages = Path(str(environment.fixed["prime_rl"])) / ".venv/lib/python3.12/site-packages"
    (packages / "vllm-0.26.0+cu129.dist-info").mkdir(parents=True)
    check = found("driver", environment, home)
    assert check.state == state and "vLLM 12.9" in check.fact and "575" in check.remedy, check


def test_a_python_that_a_trial_cannot_see_is_bad(tmp_path: Path, home: Path) -> None:
    environment = machine(tmp_path)
    elsewhere = tmp_path / "elsewhere/bin/python3.12"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    (Path(str(environment.fixed["prime_rl"])) / ".venv/bin/python").symlink_to(elsewhere)
    check = found("prime_rl", environment, home)
    assert check.state == "bad" and str(elsewhere) in check.fact and "readable" in check.remedy


@pytest.mark.parametrize(
    ("script", "capability", "state"),
    [
        ("echo 'Cuda compilation tools, release 12.8, V12.8.93'", "9.0", "ok"),
        ("echo 'Cuda compilation tools, release 12.8, V12.8.93'", "12.0", "bad"),
        ("echo 'Cuda compilation tools, release 12.9, V12.9.41'", "12.0", "ok"),
        ("exit 1", "9.0", "bad"),
    ],
)
def test_a_compiler_that_is_found_must_work_for_these_gpus(
    script: str, capability: str, state: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin/nvcc"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:/usr/bin:/bin")
    assert found("toolkit", machine(tmp_path, capability=capability), home).state == state


def test_an_attention_of_hopper_on_another_gpu_is_bad(tmp_path: Path, home: Path) -> None:
    environment = machine(tmp_path, capability="8.9")
    with (environment.folder / "train.toml").open("a") as file:
        file.write('\n[trainer.model]\nattn = "flash_attention_3"\n')
    check = found("attention", environment, home)
    assert check.state == "bad" and "flash_attention_3" in check.fact


@pytest.mark.parametrize(("weights", "state"), [(494_032_768, "ok"), (8_000_000_000, "bad")])
def test_a_model_is_compared_with_the_memory_of_the_gpus(weights: int, state: str, tmp_path: Path, home: Path) -> None:
    environment = machine(tmp_path, total="24564", fixed__model=sized(tmp_path / "model", weights))
    with (environment.folder / "train.toml").open("a") as file:
        file.write("\n[trainer.model]\noptim_cpu_offload = false\n")
    check = found("memory", environment, home)
    assert check.state == state, check
    assert bool(check.remedy) == (state == "bad")


def test_a_model_whose_sizes_are_unknown_is_a_note(tmp_path: Path, home: Path) -> None:
    folder = Path(sized(tmp_path / "model", 5))
    for name, text in (("config.json", '{"model_type": "mamba"}'), ("model.safetensors", "no such file")):
        kept = (folder / name).read_bytes()
        (folder / name).write_text(text)
        with pytest.raises(ValueError, match=r"state|safetensors"):
            model_of(folder)
        (folder / name).write_bytes(kept)
    assert model_of(folder).weights == 5


def test_the_estimate_grows_with_what_it_is_made_of() -> None:
    model = Model(weights=10**9, layers=24, hidden=2048, mlp=8192, vocabulary=150_000, cached=512)
    base = of_training(model, {})
    adam = of_training(model, {"trainer.model.optim_cpu_offload": False})
    assert adam - base == pytest.approx(8e9 * model_memory.UNUSABLE)
    assert of_training(model, {"trainer.model.optimization_dtype": "bfloat16"}) < base
    assert of_training(model, {"seq_len": 8192}) > of_training(model, {"seq_len": 1024})
    chunked = {"seq_len": 8192, "trainer.model.fused_lm_head_token_chunk_size": 512}
    whole = {**chunked, "trainer.model.fused_lm_head_token_chunk_size": "disabled"}
    assert of_training(model, whole) > of_training(model, chunked)
    eighty = 80 * model_memory.GIB
    assert answers_at_once(model, {}, eighty) == 2 * answers_at_once(
        model, {"inference.vllm.max_model_len": 4096}, eighty
    )
    assert answers_at_once(model, {}, 2 * model_memory.GIB) < 1


@pytest.mark.parametrize("lora", [{"trainer.model.lora": {}}, {"trainer.model.lora.rank": 16}])
def test_an_adapter_has_gradients_and_moments_of_its_own_alone(lora: dict[str, object]) -> None:
    model = Model(weights=10**9, layers=24, hidden=2048, mlp=8192, vocabulary=150_000, cached=512)
    whole = {"trainer.model.optim_cpu_offload": False}
    saved = of_training(model, whole) - of_training(model, whole | lora)
    assert 0.9 * 12e9 < saved / model_memory.UNUSABLE < 12e9
    eighty = 80 * model_memory.GIB
    assert 0.9 < answers_at_once(model, lora, eighty) / answers_at_once(model, {}, eighty) < 1
    assert of_training(model, whole | {"trainer.model.lora": "None"}) == of_training(model, whole)


# Real runs


def test_a_short_training_goes_the_way_of_a_trial(tmp_path: Path, home: Path) -> None:
    environment = environments.load(quadratic(tmp_path / "env"))
    check = first_runs.short_training(environment, home)
    assert check.state == "ok" and "loss 2.25" in check.fact
    assert first_runs.answer(environment, home).fact == "its judge starts no language model"
    broken = environments.load(quadratic(tmp_path / "broken", fit="raise SystemExit('no luck')"))
    check = first_runs.short_training(broken, home)
    assert check.state == "bad" and ".tries" in check.remedy


def test_a_run_of_minutes_is_shortened_and_asks_few_questions() -> None:
    gsm8k = environments.named("gsm8k_math")
    small = first_runs.shortened(gsm8k)
    assert (small.budget_steps, small.budget_seconds) == (2, 300)
    assert small.judge.model_dump()["questions"] == 2 and small.judge.model_dump()["samples"] == 1
    assert first_runs.shortened(environments.named("lunar_lander")).budget_seconds == 10


def test_what_is_bad_keeps_expensive_checks_from_being_made(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = environments.load(quadratic(tmp_path / "env", fit="import of_nobody\n"))
    assert report.doctor(True, environment, train=True) == 1
    document = json.loads(capsys.readouterr().out)
    last = document["checks"][-2:]
    assert [check["name"] for check in last] == ["answer", "short_training"]
    assert all("packages" in check["fact"] and check["state"] == "note" for check in last)
    assert document["environment"] == "env" and not (home / ".tries").exists()


def test_options_about_an_environment_want_one_and_an_unknown_one_is_refused() -> None:
    for words in (["--train"], ["--set", "x=1"], ["--trust"]):
        with pytest.raises(Refused, match="--for"):
            told("doctor", *words)
    done = nightshift("doctor", "--for", "lunar_landr")
    assert done.returncode == 2 and done.stdout == "" and "lunar_lander" in done.stderr


PREPARE = """\
import hashlib, json, pathlib, shutil, sys

folder = pathlib.Path(sys.argv[1])
shutil.copytree(pathlib.Path(__file__).with_name("base"), folder / "data/base")
(folder / "judge").mkdir()
for number, name in enumerate(("data/train", "judge/search", "judge/confirm", "judge/report")):
    lines = []
    for question in (f"{number}{n}+1" for n in range(4)):
        known = {"id": hashlib.sha256(question.encode()).hexdigest()[:16], "question": question, "answer": "1"}
        lines.append(json.dumps(known) + chr(10))
    (folder / f"{name}.jsonl").write_text("".join(lines))
"""


@pytest.mark.slow
@pytest.mark.skipif(SANDBOX.level == "landlock", reason="Landlock leaves a program no loopback to serve on")
@pytest.mark.parametrize(("mode", "state"), [("works", "ok"), ("fails", "bad")])
def test_the_judges_model_is_started_and_answers_with_a_token(
    mode: str, state: str, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "env"
    base_model(folder / "base")
    (folder / "base/generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    (folder / "taskset.py").write_text(TASKSET)
    (folder / "prepare.py").write_text(PREPARE)
    names = [path.relative_to(folder).as_posix() for path in folder.glob("base/*")]
    (folder / "environment.toml").write_text(
        'metric = "pass@1"\ndirection = "maximize"\ntrainer = "command"\ntrain_cmd = "true"\nbudget_seconds = 9\n'
        f'judge = "text"\ndevice = "cpu"\n[prepare]\nfiles = {json.dumps(names)}\ndisk_gb = 0.01\n'
        f'[text]\nquestions = 3\nbackend = "vllm"\nvllm = {json.dumps(str(stand_in(tmp_path)))}\n'
        f'vllm_args = ["--mode", "{mode}"]\nstart_seconds = 30\n'
    )
    check = first_runs.answer(environments.load(folder), home)
    assert check.state == state, check
    if state == "bad":
        assert "Free memory on device" in check.fact and "judge.txt" in check.remedy


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize(("mode", "word"), [("normal", "2 steps"), ("out of memory", "out of GPU memory")])
def test_two_steps_of_prime_rl_go_through_recipe_launcher_and_judge(
    mode: str, word: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checkout = laid(tmp_path)
    lay(checkout, Faults(mode=mode))
    monkeypatch.setenv("PATH", f"{checkout}/.venv/bin:/usr/bin:/bin")
    check = first_runs.short_training(environments.load(folder, {"gpus": 2}), home)
    assert (check.state == "ok") == (mode == "normal") and word in check.fact, check
